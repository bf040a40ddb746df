/* SPDX-License-Identifier: Apache-2.0 */
/* shape.h: the sizes of a tensor, row-major, dim 0 outermost. Floor 1; includes base only. Order: Local. */
#ifndef TUTTI_LAYOUT_SHAPE_H
#define TUTTI_LAYOUT_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHAPE_MAX_DIMS 5

struct shape {
    int nd;                    /* 0: a scalar, one element */
    int64_t n[SHAPE_MAX_DIMS]; /* entries from nd on are 0 */
};

struct shape shape_of(int nd, const int64_t *n);
#define SHAPE_OF(...)                                                                                                  \
    shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})
bool shape_equal(const struct shape *a, const struct shape *b);

/* Elements. For shapes of our own making: CHECKs that nothing is negative and nothing overflows. */
int64_t shape_numel(const struct shape *s);
/* For shapes from outside (files): 0, or -1 when nd or a size is negative or too large, or elements times
 * element_bytes do not fit in an int64_t. */
int shape_measure(const struct shape *s, size_t element_bytes, int64_t *numel, int64_t *bytes);

/* "[50257, 768]"; out holds 128 chars. */
char *shape_print(char out[128], const struct shape *s);

#endif
