/* SPDX-License-Identifier: Apache-2.0 */
/* packed_rows.h: matrices kept in few bits (layout/packing.h), as the numbers that are computed with. One
 * implementation per family (formats.h); all give the bits of the reference (ref/packed_rows.c), for any
 * team. Includes: kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_PACKED_ROWS_H
#define TUTTI_KERNEL_PACKED_ROWS_H

#include "kernel/kernel.h"
#include "layout/packing.h"

struct packed_args { /* of a box of a matrix, whose columns begin at a block */
    enum packing packing;
    int64_t rows, cols;
    int64_t first, row_blocks; /* the number of the box's first block in the matrix, and how many a row of it has */
    const uint8_t *codes;      /* [rows, packing_row_bytes] */
    const uint8_t *scales;     /* [rows, ceil(cols / block)] */
    const float *groups;       /* of the whole matrix, then the mean; NULL: the packing has none */
    int64_t n_groups;          /* values there, the mean included */
    void *x;                   /* [rows, cols], f32, bf16 or f16 */
    enum dtype t;
};
/* As a call of the operation table, and what a call says. */
struct kernel_call packed_call(const struct packed_args *a);
struct packed_args packed_of(const struct kernel_call *c);
/* On a stream: x from the rest. */
void packed_unpack(struct stream *s, const struct packed_args *a);

/* The scale of block k of row r of the box. */
struct packed_scales {
    const struct packed_args *a;
    float map[PACKING_MAP];
    int64_t blocks; /* of a row of the box */
};
void packed_scales_init(struct packed_scales *s, const struct packed_args *a);
/* Not inline: families are compiled to contract products and sums, and here each is rounded. */
float packed_scale(const struct packed_scales *s, int64_t r, int64_t k);

/* Element i of x becomes v, rounded to its type. */
static inline void packed_put(void *x, enum dtype t, int64_t i, float v)
{
    if (t == DT_F32) ((float *)x)[i] = v;
    else if (t == DT_BF16) ((bf16 *)x)[i] = bf16_from_f32(v);
    else ((uint16_t *)x)[i] = f16_from_f32(v);
}

/* Number c of a row of codes, before its scale. bytes: codes have 8 bits; else value is packing_table's. */
static inline float packed_code(bool bytes, const uint8_t *codes, const float value[PACKING_CODES], int64_t c)
{
    if (bytes) return (float)((const int8_t *)codes)[c];
    return value[c % 2 ? codes[c / 2] & 15 : codes[c / 2] >> 4];
}

void packed_unpack_ref(struct team *team, const struct packed_args *a);

#endif
