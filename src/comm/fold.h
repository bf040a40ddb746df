/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h: the one arithmetic loop of the communicator. dst_j[i] = (src_0[i] op src_1[i] op ...) * scale for all j.
 *
 * Sources are taken in the order given; f32, bf16 and f16 are added in fp32, f64 in fp64, integers modulo 2^bits; one
 * rounding at the end (nearest, ties to even). max(a, b) is a > b ? a : b, min likewise, so a NaN gives way to what
 * comes after it. Every implementation gives the same bits.
 *
 * AVG: floats are multiplied by 1/divisor after the sum, integers divided by it (towards zero). For other reductions
 * and for sums that are not complete yet, divisor is 1. A destination may be one of the sources, at the same index.
 * Cost: one pass; n_src reads, n_dst writes per element. Order: Local; any thread.
 */
#ifndef TUTTI_COMM_FOLD_H
#define TUTTI_COMM_FOLD_H

#include "comm/comm.h"

struct fold {
    void *const *dst;
    const void *const *src;
    int n_dst, n_src; /* n_src >= 1 */
    int64_t n;
    int64_t divisor;
};

typedef void fold_fn(const struct fold *f);
/* Indexed by dtype and by sum, max, min (AVG is sum with a divisor). NULL: that dtype can only be moved. */
struct fold_table {
    const char *name;
    fold_fn *fn[DT_N][3];
};
extern const struct fold_table fold_portable;
#if defined(__x86_64__)
extern const struct fold_table fold_avx2, fold_avx512;
#elif defined(__aarch64__)
extern const struct fold_table fold_neon;
#endif
/* The best that this processor runs, and all that it runs, the portable one first (NULL past the end). */
const struct fold_table *fold_best(void);
const struct fold_table *fold_at(int i);

void fold_run(const struct fold_table *t, enum dtype dt, enum comm_red r, const struct fold *f);
bool fold_can(enum dtype dt);

#endif
