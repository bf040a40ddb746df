/* SPDX-License-Identifier: Apache-2.0 */
/* codec.h: how numbers are written while they travel between ranks. On paper; the loops are kernel/codec_rows.h.
 *
 *   kept      as they are kept: nothing is rounded
 *   bf16      2 bytes, rounded to nearest even
 *   fp8       E4M3 codes in blocks, a byte each
 *   fp8-e5m2  E5M2 codes in blocks
 *   int8      whole numbers up to +-127 in blocks
 *
 * A block is up to CODEC_BLOCK neighbours in a row, and shares a scale: the least power of two with which its largest
 * number fits, a byte in E8M0 (the OCP microscaling formats have such blocks; their scale may saturate the largest
 * number, this one does not). Blocks are cut at multiples of CODEC_BLOCK of the column in the whole tensor, and no
 * block goes over the end of a row: so whoever holds a part of the rows, or columns from a multiple on, cuts them
 * alike.
 *
 * Written, a matrix is the codes of its rows one after the other, then the scales in the same order, filled up to a
 * multiple of 4 bytes.
 *
 * Invariants
 *   1. What has been through a codec goes through it again unchanged: with a scale that is a power of two every code of
 *      a block has a code at the block's next smaller scale, too.
 *   2. A block with a number that is not finite becomes NaN as a whole, but for bf16, where each stays what it is. None
 *      is lost.
 *   3. Finite numbers stay finite, but for those that round to 2^128, which fp32 does not have: they become Inf.
 * Floor 1. Order: Local.
 */
#ifndef TUTTI_LAYOUT_CODEC_H
#define TUTTI_LAYOUT_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "layout/dtype.h"
#include "layout/format.h"

enum codec { CODEC_KEPT, CODEC_BF16, CODEC_FP8, CODEC_FP8_E5M2, CODEC_INT8, CODEC_N };
enum { CODEC_BLOCK = 32, CODEC_NAN = 255 /* the scale of a block that is not finite */ };

struct codec_row {
    const char *name;
    enum format format;
    bool blocks;
};
const struct codec_row *codec_row(enum codec c); /* kept has a name only */

/* What is written: rows one after the other, of columns [first, first + cols) of the whole tensor. */
struct codec_rows {
    int64_t rows, cols, first;
};
/* Blocks of a row; where block k begins, in columns from the row's own first (k = blocks: the end). */
int64_t codec_blocks(const struct codec_rows *r);
int64_t codec_block_at(const struct codec_rows *r, int64_t k);
/* Bytes of them, written; t: what they are kept in. And where the scales begin. */
size_t codec_bytes(enum codec c, const struct codec_rows *r, enum dtype t);
size_t codec_scales_at(enum codec c, const struct codec_rows *r);

/* The scale of a block from the bits of its largest number, without sign: the code of E8M0, CODEC_NAN where that is not
 * finite. Never 0: so small a scale would be one of fp32's subnormal numbers. Past 2^127 the largest number saturates.
 */
static inline uint32_t codec_scale(uint32_t largest, const struct format_info *f)
{
    int power = f->special == FORMAT_TWOS ? 0 : (int)(f->max_code >> f->fraction) - f->bias; /* of max */
    uint32_t mantissa =
        f->special == FORMAT_TWOS ? 0x7e0000u : (f->max_code & ((1u << f->fraction) - 1)) << (23 - f->fraction);
    if (largest >= 0x7f800000u) return CODEC_NAN;
    int code = (int)(largest >> 23) - power + ((largest & 0x7fffff) > mantissa);
    return code < 1 ? 1 : code > 254 ? 254 : (uint32_t)code;
}

#endif
