/* SPDX-License-Identifier: Apache-2.0 */
/* codes_product.h: products of few rows straight from codes (codes_product.c chooses), one function per instruction set
 * that has it. Includes: packed_rows.h, cpuid.h. Order: Local; any thread. */
#ifndef TUTTI_KERNEL_CPU_BITS_CODES_PRODUCT_H
#define TUTTI_KERNEL_CPU_BITS_CODES_PRODUCT_H

#include "kernel/cpuid.h"
#include "kernel/packed_rows.h"

enum { CODED_FEW = 8 };

/* y[i * ldy + r] = the sum over c of x[i * ldx + c] times number (r, c) of a, rounded to a->t (f32 or bf16): summed in
 * f32, in an order that cols alone decides. s: packed_scales_init of a, or of rows of the same product. m at most
 * CODED_FEW. */
typedef void coded_dot_fn(const struct packed_args *a, const struct packed_scales *s, const float *x, int64_t ldx,
                          int m, float *y, int64_t ldy);

/* The same of rows of bf16, by integers. A block of CODED_FIXED_BLOCK numbers of x is 16-bit integers times one power
 * of two: where all sizes of the block are below 2^e, as little as it can be, an integer is x / 2^(e - 15), to the
 * nearest. So numbers from 2^(e - 8) on, which is at most 1/128 of the largest, are exact, since bf16 has no more
 * digits, and a smaller one is off by 2^(e - 16) at most (where e is below -96, as with -96). Numbers of int8 and mxfp4
 * are exact; those of nf4 are off by 2^-15 of their block's scale at most, and are not rounded to bf16 as whole weights
 * are. What a block adds up to is exact in int32; as a float, and where blocks are added, it is rounded to fp32. A sum
 * differs from that of x and the format's numbers w, by all that is not fp32's rounding, at most by
 *
 *     sum over blocks of 2^(e - 16) sum |w|, and for nf4 2^-15 sum over blocks of scale sum |x|. */
enum { CODED_FIXED_BLOCK = 32, CODED_STEP = 64, CODED_CHUNK = 256 };
struct coded_fixed {
    const int16_t *x;     /* [m, cols], in an order of its own in each CODED_STEP */
    const float *scale;   /* [m, blocks] */
    int64_t cols, blocks; /* coded_fixed_cols, and that over CODED_FIXED_BLOCK */
};
/* Columns with those that are zeros. */
static inline int64_t coded_fixed_cols(int64_t cols) { return (cols + CODED_CHUNK - 1) / CODED_CHUNK * CODED_CHUNK; }
static inline size_t coded_fixed_bytes(int m, int64_t cols)
{
    const size_t each = (size_t)coded_fixed_cols(cols);
    return (size_t)m * (each * sizeof(int16_t) + each / CODED_FIXED_BLOCK * sizeof(float));
}
/* A row of x, for products with codes of p. false: it has a number that is none, infinite, or 2^100 or more. */
typedef bool coded_fix_fn(enum packing p, const bf16 *x, int64_t cols, int16_t *whole_x, float *scale);
typedef void coded_fixed_fn(const struct packed_args *a, const struct packed_scales *s, const struct coded_fixed *x,
                            int m, float *y, int64_t ldy);

/* dot NULL: codes of this processor become panels first. fix NULL: rows of bf16 are multiplied as floats. */
struct coded_registers {
    enum isa needs;
    coded_dot_fn *dot;
    coded_fix_fn *fix;
    coded_fixed_fn *fixed;
};
#if defined(__x86_64__)
#define CODED_ISA "avx2"
coded_dot_fn coded_dot_avx2;
coded_fix_fn coded_fix_avx2;
coded_fixed_fn coded_fixed_avx2;
static const struct coded_registers coded_registers = {ISA_AVX2, coded_dot_avx2, coded_fix_avx2, coded_fixed_avx2};
#else
#define CODED_ISA "none"
static const struct coded_registers coded_registers = {ISA_REF, NULL, NULL, NULL};
#endif

#endif
