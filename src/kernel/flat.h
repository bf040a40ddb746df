/* SPDX-License-Identifier: Apache-2.0 */
/* flat.h: the constants and orders of summation that every family of flat operations shares.
 *
 * Invariants
 *   1. A sum of squares is formed per block of FLAT_BLOCK elements in FLAT_LANES interleaved fp64 lanes (element i
 *      of the block adds into lane i % FLAT_LANES), folded by flat_fold; block sums are added in order.
 *   2. Every family computes AdamW from these factors with the fused operations that ref/flat.c spells out, so all
 *      families agree to the bit.
 * Includes: kernel.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_FLAT_H
#define TUTTI_KERNEL_FLAT_H

#include <math.h>

#include "kernel/kernel.h"

enum { FLAT_BLOCK = 4096, FLAT_LANES = 16 };

static inline double flat_fold(double lane[FLAT_LANES])
{
    for (int half = FLAT_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* AdamW (Loshchilov and Hutter 2019) as PyTorch orders it: p -= lr wd p, then
 * p -= lr/bias1 * m / (sqrt(v) / sqrt(bias2) + eps). */
struct adamw_factors {
    float new1, new2;  /* 1 - beta */
    float decay;       /* -lr * weight_decay */
    float root_scale;  /* 1 / sqrt(bias2) */
    float step;        /* -lr / bias1 */
};
static inline struct adamw_factors adamw_factors(const struct adamw_args *a)
{
    return (struct adamw_factors){
        .new1 = 1.0f - a->beta1,
        .new2 = 1.0f - a->beta2,
        .decay = -a->lr * a->weight_decay,
        .root_scale = (float)(1.0 / sqrt(a->bias2)),
        .step = -a->lr / a->bias1,
    };
}

#endif
