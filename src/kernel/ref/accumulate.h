/* SPDX-License-Identifier: Apache-2.0 */
/* accumulate.h: sums of products as tensor cores make them, as a pure function of one instruction, and chains of it.
 *
 * One instruction makes d = c + sum of a_i b_i for a block of k products. As measured on an H100 (every one of 131,000
 * results of each of four kinds of wgmma, to the bit; scripts/cuda/products.cu):
 *   1. Products are exact: integers (significands) multiplied, exponents added, not normalised. A subnormal operand has
 *      the exponent of its format's smallest normal number and no hidden bit.
 *   2. c takes part as one more term, with its own exponent.
 *   3. All terms are shifted to the largest exponent among those that are not zero; `fraction` bits are kept below it,
 *      and what falls off is cut off (towards zero).
 *   4. The sum of what is left is exact; it is cut off (towards zero) to `out` fraction bits of an fp32.
 *
 *   way                   operands    k   fraction  out  where it is from
 *   hopper-bf16           bf16, f16   16  25        23   measured
 *   hopper-fp8            bf16, f16   16  25        23   measured
 *                         FP8         32  13        13   measured; cuBLAS with fast accumulation chains it over depth
 *   hopper-fp8-promoted   as hopper-fp8, and the sum of each 128 of depth begins at 0 and is added in fp32, to nearest:
 *                         measured (cuBLAS without fast accumulation; DeepSeek-V3, 3.3.2)
 *   ampere-bf16           bf16, f16    8  24        23   not measured here: arXiv 2511.10909 (k of 16 in two halves)
 *
 * What is Inf or NaN is summed as in fp32; the NaN is 0x7fffffff.
 * Cost: some 20 instructions per product and thread: not fast, on purpose. Includes: base, layout/dtype.h. Order:
 * Local.
 */
#ifndef TUTTI_KERNEL_REF_ACCUMULATE_H
#define TUTTI_KERNEL_REF_ACCUMULATE_H

#include <stdint.h>

enum { ACCUMULATE_MOST_K = 32, ACCUMULATE_PROMOTED = 128 };

struct accumulate_unit {
    int k, fraction, out;
};
struct accumulate_way {
    const char *name;
    struct accumulate_unit wide, fp8; /* for bf16 and f16 operands; for FP8 ones. k 0: has none */
    int promoted;                     /* of FP8: depth after which a sum is added in fp32; 0: never */
};
enum { ACCUMULATE_WAYS = 4 };
extern const struct accumulate_way accumulate_ways[ACCUMULATE_WAYS];

/* An operand ready to be multiplied: its significand times 2^(exponent - 10). */
struct accumulate_term {
    int16_t significand, exponent;
    float value; /* looked at where the significand is 0: 0, Inf or NaN */
};
/* x is a value of a format whose smallest normal number is 2^lowest, with at most 10 fraction bits. */
struct accumulate_term accumulate_term(float x, int lowest);

/* One instruction on n <= k products (the rest are zeros). */
float accumulate_step(const struct accumulate_unit *u, const struct accumulate_term *a, const struct accumulate_term *b,
                      int n, float c);
/* n products in order, c at first 0; promoted as the way has it. */
float accumulate_chain(const struct accumulate_unit *u, int promoted, const struct accumulate_term *a,
                       const struct accumulate_term *b, int64_t n);

#endif
