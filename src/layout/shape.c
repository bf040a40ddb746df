/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of tensors. Counting elements is the one thing here that can go wrong: it is checked by division-free
 * overflow tests of the compiler, once, and everybody counts through it. */
#include "layout/shape.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

struct shape shape_of(int nd, const int64_t *n)
{
    CHECK(nd >= 0 && nd <= SHAPE_MAX_DIMS, "a tensor of %d dims; at most %d", nd, SHAPE_MAX_DIMS);
    struct shape s = {.nd = nd};
    for (int d = 0; d < nd; d++) s.n[d] = n[d];
    return s;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    return a->nd == b->nd && !memcmp(a->n, b->n, (size_t)a->nd * sizeof a->n[0]);
}

int shape_measure(const struct shape *s, size_t element_bytes, int64_t *numel, int64_t *bytes)
{
    if (s->nd < 0 || s->nd > SHAPE_MAX_DIMS) return -1;
    int64_t n = 1, nonzero = 1; /* nonzero: a size of 0 must not hide an overflow of the others */
    for (int d = 0; d < s->nd; d++) {
        if (s->n[d] < 0 || (s->n[d] && __builtin_mul_overflow(nonzero, s->n[d], &nonzero))) return -1;
        n *= s->n[d];
    }
    if (__builtin_mul_overflow(nonzero, element_bytes, &nonzero)) return -1;
    *numel = n;
    *bytes = n ? nonzero : 0;
    return 0;
}

int64_t shape_numel(const struct shape *s)
{
    int64_t n, bytes;
    char text[128];
    CHECK(shape_measure(s, 1, &n, &bytes) == 0, "the elements of %s cannot be counted", shape_print(text, s));
    return n;
}

char *shape_print(char out[128], const struct shape *s)
{
    int n = snprintf(out, 128, "[");
    for (int d = 0; d < s->nd && d < SHAPE_MAX_DIMS; d++)
        n += snprintf(out + n, (size_t)(128 - n), "%s%lld", d ? ", " : "", (long long)s->n[d]);
    snprintf(out + n, (size_t)(128 - n), "]");
    return out;
}
