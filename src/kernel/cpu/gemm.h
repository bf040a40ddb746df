/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h: one matrix product on a team of threads, C_MN = A_MK B_KN + bias_N + acc_MN, any storage order of A and B,
 * any element types that tile.h packs, f32 sums. LINEAR's three directions are three calls of it.
 *
 * Invariants
 *   1. The same bits for any number of threads: depth is never split among threads, and where it is cut depends
 *      on the shape alone.
 *   2. Nothing allocates: scratch of gemm_scratch() bytes comes with the call.
 *   3. out.acc is NULL, out.c itself with the same dtype and row length, or memory that C does not overlap.
 * Includes: base, kernel/cpu/tile.h. Order: Local to the owner of the team.
 */
#ifndef TUTTI_KERNEL_CPU_GEMM_H
#define TUTTI_KERNEL_CPU_GEMM_H

#include "base/thread.h"
#include "kernel/cpu/tile.h"

struct gemm {
    int64_t m, n, k;   /* all > 0 */
    struct tile_src a; /* lanes are rows of C */
    struct tile_src b; /* lanes are columns of C */
    struct tile_out out;
};

size_t gemm_scratch(const struct tile_ops *o, const struct gemm *g, int n_threads);
/* Enough for this product and for those with fewer rows or less depth. */
size_t gemm_scratch_most(const struct tile_ops *o, const struct gemm *g, int n_threads);
/* scratch: 64-byte aligned, gemm_scratch(o, g, team_size(team)) bytes or more. */
void gemm_run(const struct tile_ops *o, const struct gemm *g, void *scratch, struct team *team);

/* Few rows (m <= o->dot_rows), both operands depth-dense and of one dtype, f32 or bf16: reads b once, packs
 * nothing, needs no scratch. */
bool gemm_is_few_rows(const struct tile_ops *o, const struct gemm *g);
void gemm_few_rows(const struct tile_ops *o, const struct gemm *g, struct team *team);

#endif
