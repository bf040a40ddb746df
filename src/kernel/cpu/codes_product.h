/* SPDX-License-Identifier: Apache-2.0 */
/* codes_product.h: products of few rows straight from codes (codes_product.c chooses), one function per instruction set
 * that has it. Includes: packed_rows.h, cpuid.h. Order: Local; any thread. */
#ifndef TUTTI_KERNEL_CPU_CODES_PRODUCT_H
#define TUTTI_KERNEL_CPU_CODES_PRODUCT_H

#include "kernel/cpuid.h"
#include "kernel/packed_rows.h"

enum { CODED_FEW = 8 };

/* y[i * ldy + r] = the sum over c of x[i * ldx + c] times number (r, c) of a, rounded to a->t (f32 or bf16): summed in
 * f32, in an order that cols alone decides. s: packed_scales_init of a, or of rows of the same product. m at most
 * CODED_FEW. */
typedef void coded_dot_fn(const struct packed_args *a, const struct packed_scales *s, const float *x, int64_t ldx,
                          int m, float *y, int64_t ldy);

/* NULL: codes of this processor become panels first. */
struct coded_registers {
    enum isa needs;
    coded_dot_fn *dot;
};
#if defined(__x86_64__)
#define CODED_ISA "avx2"
coded_dot_fn coded_dot_avx2;
static const struct coded_registers coded_registers = {ISA_AVX2, coded_dot_avx2};
#else
#define CODED_ISA "none"
static const struct coded_registers coded_registers = {ISA_REF, NULL};
#endif

#endif
