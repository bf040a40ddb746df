/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h: one matrix product on a team of threads, C_MN = A_MK B_KN + bias_N + acc_MN, any storage order of A and B,
 * any element types that tile.h packs, f32 sums. LINEAR's three directions are three calls of it.
 *
 * Invariants
 *   1. The same bits for any number of threads: depth is never split among threads, and where it is cut depends
 *      on the shape alone.
 *   2. Nothing allocates: scratch of gemm_scratch() bytes comes with the call.
 *   3. out.acc is NULL, out.c itself with the same dtype and row length, or memory that C does not overlap.
 * Includes: base, kernel/cpu/tile/tile.h. Order: Local to the owner of the team.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_GEMM_H
#define TUTTI_KERNEL_CPU_TILE_GEMM_H

#include "base/thread.h"
#include "kernel/cpu/tile/tile.h"
#include "kernel/kernel.h"

/* Numbers that an operand's elements are still to be multiplied by, one per block: (lane l, depth d) by
 * p[(lane_at + l) / lanes * lane_step + (depth_at + d) / depth * depth_step]. */
struct gemm_scales {
    const float *p;
    int64_t lane_step, depth_step;
    int lanes, depth, lane_at, depth_at;
};

struct gemm {
    int64_t m, n, k;   /* all > 0 */
    int64_t k_whole;   /* > 0: this is a part of a product so deep, which begins at a slice of it: cut as that is */
    struct tile_src a; /* lanes are rows of C */
    struct tile_src b; /* lanes are columns of C */
    struct tile_out out;
    /* `blocks`: sums of the depth of one block each, times scale_a * scale_b, are added up in f32 with one rounding
     * each, in order (DeepSeek-V3, section 3.3.2). Both have the same depth and depth_at. */
    bool blocks;
    struct gemm_scales scale_a, scale_b;
    /* a and b are one operand, n = m, no bias, acc or blocks: tiles above the diagonal are copied from below it, which
     * has the same bits. */
    bool gram;
};

/* Where a product of these panels cuts its depth. */
static inline struct depth_rule gemm_depth(const struct tile_ops *o) { return (struct depth_rule){o->kc, o->step}; }

size_t gemm_scratch(const struct tile_ops *o, const struct gemm *g, int n_threads);
/* Enough for this product and for those with fewer rows or less depth. */
size_t gemm_scratch_most(const struct tile_ops *o, const struct gemm *g, int n_threads);
/* scratch: 64-byte aligned, gemm_scratch(o, g, team_size(team)) bytes or more. */
void gemm_run(const struct tile_ops *o, const struct gemm *g, void *scratch, struct team *team);

/* Few rows (m <= o->dot_rows), no blocks, both operands depth-dense and of one dtype, f32 or bf16: reads b once, packs
 * nothing, needs no scratch. */
bool gemm_is_few_rows(const struct tile_ops *o, const struct gemm *g);
void gemm_few_rows(const struct tile_ops *o, const struct gemm *g, struct team *team);

#endif
