/* SPDX-License-Identifier: Apache-2.0 */
/* exponent_bins.h: numbers counted by their exponent: how many are 0, how many are not finite, how many have a size in
 * [2^e, 2^(e+1)), subnormal ones too. Includes kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_EXPONENT_BINS_H
#define TUTTI_KERNEL_EXPONENT_BINS_H

#include "kernel/kernel.h"

enum { EXPONENT_ZERO, EXPONENT_NOT_FINITE, EXPONENT_FIRST, EXPONENT_LEAST = -149, EXPONENT_MOST = 127 };
enum { EXPONENT_BINS = EXPONENT_FIRST + EXPONENT_MOST - EXPONENT_LEAST + 1 };

/* Adds the numbers of a view of f32, bf16 or f16, on memory that the caller can touch. */
void exponents_count(const struct view *v, int64_t bins[EXPONENT_BINS]);
/* The call that adds them `times` over to bins, on a device; carries it out. */
struct kernel_call exponents_call(const struct view *v, int64_t times, int64_t *bins);
void exponents_add(const struct kernel_call *c);

#endif
