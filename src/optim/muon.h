/* SPDX-License-Identifier: Apache-2.0 */
/* muon.h: one step of Muon (Jordan et al. 2024) on matrices that are owned (state/own.h).
 *
 *   m = momentum m + g           elementwise, where the matrix's piece lies
 *   u = g + momentum m           (Nesterov's; without: m)
 *   o = orthogonalised u         five Newton-Schulz steps of the whole matrix, in bf16
 *   w -= lr (0.2 sqrt(max(rows, cols)) o + weight_decay w)
 *                                the factor gives an update the size that AdamW's has, so that both share a learning
 *                                rate and a decay (Liu et al., "Muon is scalable for LLM training", 2025)
 *
 * Along the shard axes the owner has all of it and nothing travels. Where the matrix is cut over tp (an expert's: over
 * etp), u travels in fp32 to one of these ranks by a route, and the parts of o back in bf16. The matrices of a unit go
 * in turns, the costliest first, one on each rank at a time.
 *
 * Newton-Schulz: x = u / |u|; five times x = a x + (b g + c g g) x with g = x x^T (tall matrices: g = x^T x, from the
 * right), which moves every singular value into [0.7, 1.2]. Products by the kernels of OP_LINEAR, in bf16 with sums in
 * fp32: each result is rounded to 8 bits.
 *
 * Exact: u's bits do not depend on the layout but for the gradient's; o is a function of u's bits, whoever computes it.
 * Memory, planned like all else: of the largest matrix W of m x n on any rank, k = min(m, n): 8 mn + 4 k k bytes (tall:
 * 8 k k), and where matrices are cut 6 bytes per element of a turn's parts.
 * Floors 0-3. Order: Collective over tp.
 */
#ifndef TUTTI_OPTIM_MUON_H
#define TUTTI_OPTIM_MUON_H

#include "comm/comm.h"
#include "optim/optim.h"

struct muon;

/* *out NULL where no group is stepped by Muon. tp: the data plane's group along tp; NULL: of size 1. Kernels are those
 * of st. */
int muon_new(struct muon **out, struct store *s, const struct optim_config *c, struct stream *st, struct comm *tp,
             struct err *e);
void muon_free(struct muon *x); /* NULL is fine */
/* Of this rank's products in a step of all matrices: five times 4 k k l + 2 k k k, k the shorter side and l the longer.
 */
double muon_flops(const struct muon *x); /* 0 of NULL */
/* Steps the matrices among parameters [first, first + n), whole units (state/units.h), of groups that are Muon's. */
void muon_step(struct muon *x, const struct optim_call *call, int first, int n);

#endif
