/* SPDX-License-Identifier: Apache-2.0 */
/* xent_row.h: one row of a cross-entropy, in numbers alone: where a target stands in a part of the vocabulary, and how
 * the parts' statistics become the whole row's (xent_parts.h). For the host and for a GPU. Order: Local. */
#ifndef TUTTI_KERNEL_XENT_ROW_H
#define TUTTI_KERNEL_XENT_ROW_H

#include <math.h>
#include <stdint.h>

#include "base/fn.h"

struct xent_row {
    double max, sum, logit; /* of the whole row */
};
enum { XENT_UNTRAINED = -1, XENT_ELSEWHERE = -2, XENT_NONE = -3 };

/* The column, or -1: not trained; -2: in another part; -3: no token of the vocabulary. */
TUTTI_FN int64_t xent_place(int32_t target, int64_t first, int64_t whole, int64_t cols)
{
    int64_t at = target - first;
    if (target < -1 || target >= whole) return XENT_NONE;
    if (target < 0) return XENT_UNTRAINED;
    return at >= 0 && at < cols ? at : (int64_t)XENT_ELSEWHERE;
}

/* stats: row r of part 0; the same row of the next part is `apart` numbers further. */
TUTTI_FN struct xent_row xent_whole_row(const float *stats, int64_t apart, int parts)
{
    struct xent_row x = {-(double)INFINITY, 0, 0};
    for (int p = 0; p < parts; p++) {
        const float *v = stats + p * apart;
        x.max =
            (double)v[0] > x.max ? (double)v[0] : x.max; /* as fmax; with it gcc 12 for Arm ends in an internal error */
        x.logit += (double)v[2];
    }
    for (int p = 0; p < parts; p++) {
        const float *v = stats + p * apart;
        if (v[1] > 0) x.sum += (double)v[1] * exp((double)v[0] - x.max);
    }
    return x;
}

#endif
