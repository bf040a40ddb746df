/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.h: which picture, and which place of it, a row of the stream is (attrs.h): for shapes and every kernel
 * family. Floors 0-1 and kernel.h only. Order: Local.
 */
#ifndef TUTTI_KERNEL_PICTURES_H
#define TUTTI_KERNEL_PICTURES_H

#include "kernel/kernel.h"
#include "layout/sequence.h"

struct picture_place {
    int64_t picture, place;
};

/* Rows of one sequence that the part has. */
static inline int64_t picture_rows_each(const struct picture_rows *a)
{
    return context_rows(a->seq, a->parts, a->part, 1);
}

static inline struct picture_place picture_place_of(const struct picture_rows *a, int64_t row)
{
    int64_t each = picture_rows_each(a), at = a->first + row;
    return (struct picture_place){at / each, context_place(a->seq, a->parts, a->part, at % each)};
}

/* Places before those of patches: 1, or 0 where no class is told. */
static inline int64_t patches_lead(const struct patches_attrs *a)
{
    int64_t side = a->image / a->patch;
    return a->at.seq - side * side;
}

/* Where the first pixel of patch i is, of row y of channel c of it. */
static inline int64_t picture_pixel(const struct patches_attrs *a, int64_t i, int64_t c, int64_t y)
{
    int64_t side = a->image / a->patch;
    return (c * a->image + i / side * a->patch + y) * a->image + i % side * a->patch;
}

/* What a row counts in its picture's pool. */
static inline double pool_share(const struct pool_attrs *a, int64_t place)
{
    if (a->kind == POOL_CLASS) return place == 0;
    return place > 0 ? 1 / (double)(a->at.seq - 1) : 0;
}

#endif
