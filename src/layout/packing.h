/* SPDX-License-Identifier: Apache-2.0 */
/* packing.h: how a matrix that nobody steps is kept in few bits. On paper; the loops are kernel/packed_rows.h.
 *
 *   name    code                          scale of a block                                  bits a number
 *   nf4     4 bits, a table of 16         64 numbers; 8 bits, of 256 of them fp32; a mean   4.127
 *   mxfp4   4 bits, E2M1                  32 numbers; a power of two, E8M0                  4.25
 *   int8    8 bits, -127 to 127           32 numbers; a power of two, E8M0                  8.25
 *
 * nf4 is NormalFloat with double quantisation (Dettmers et al. 2023, "QLoRA", section 3): the table is that of the
 * paper's appendix E. A block's largest size a is its scale. Of all a of the matrix the mean is taken away, and what is
 * left is rounded, in blocks of PACKING_GROUP, to the dynamic map with a sign (Dettmers et al. 2022) times the largest
 * of the block. A number is divided by a, as it was before that rounding, and becomes the nearest of the table.
 * mxfp4's scale is the least power of two with which the largest number fits (layout/codec.h), so nothing saturates.
 * int8's is that too: the largest number of a block becomes a code of 64 to 127 or their negatives, and every value is
 * a number of bf16, so that whoever multiplies with it in f32 or in bf16 has the same one. Rejected: the largest number
 * over 127 as the scale, half a bit finer on average, whose values bf16 would round a second time.
 *
 * Blocks are cut in rows, at multiples of the block of the column in the whole matrix; a row's last block has what is
 * left. Blocks are numbered row after row over the whole matrix, and groups are cut by that number. So the same codes
 * come out whoever holds which rows, or columns from a block's beginning on. Where a row is a whole number of blocks,
 * these are the blocks and codes of bitsandbytes.
 *
 * A byte has two codes of 4 bits, the first in its upper half, or one of 8 bits, in two's complement.
 *
 * Value of a number: fp32(table[code] * scale), where nf4's scale is fp32(fp32(map[code of the scale] * group's) +
 * mean); then rounded to the type that is computed in. Floor 1. Order: Local.
 */
#ifndef TUTTI_LAYOUT_PACKING_H
#define TUTTI_LAYOUT_PACKING_H

#include <stdbool.h>
#include <stdint.h>

enum packing { PACKING_NONE, PACKING_NF4, PACKING_MXFP4, PACKING_INT8, PACKING_N };
enum { PACKING_GROUP = 256, PACKING_CODES = 16, PACKING_MAP = 256 };
#define PACKING_NAMES "none|nf4|mxfp4"   /* of a base that adapters are trained beside */
#define PACKING_WEIGHTS "int8|nf4|mxfp4" /* of weights that a model writes with */

struct packing_row {
    const char *name;
    int64_t block;
    bool grouped; /* scales are in 8 bits themselves, with a scale for each group of them */
    int per_byte; /* codes */
};
const struct packing_row *packing_row(enum packing p);
int packing_find(const char *name); /* -1: there is none of this name */

static inline int64_t packing_row_blocks(enum packing p, int64_t cols)
{
    int64_t block = packing_row(p)->block;
    return (cols + block - 1) / block;
}
/* Of a row's codes. */
static inline int64_t packing_row_bytes(enum packing p, int64_t cols)
{
    int64_t per = packing_row(p)->per_byte;
    return (cols + per - 1) / per;
}
/* fp32 values beside the scales of a matrix: one for each group, then the mean. 0: it has no groups. */
int64_t packing_groups(enum packing p, int64_t rows, int64_t cols);

/* The 16 values of codes of 4 bits. */
void packing_table(enum packing p, float out[PACKING_CODES]);
/* Those of the codes of scales, rising: seven decades below 1, each with twice the values of the one below. */
void packing_map(float out[PACKING_MAP]);

/* A block as fp32 to codes, one a byte: n numbers, all finite; returns its scale, but for nf4 a power of two. */
float packing_encode(enum packing p, const float *x, int64_t n, uint8_t *codes);
/* All scales of a matrix, to their codes. groups: packing_groups values. */
void packing_encode_scales(enum packing p, const float *scale, int64_t n, uint8_t *codes, float *groups);

#endif
