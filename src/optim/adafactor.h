/* SPDX-License-Identifier: Apache-2.0 */
/* adafactor.h: one step of Adafactor (Shazeer & Stern 2018, Algorithms 4 and 5, without momentum).
 *
 *   beta = 1 - t^-0.8                                                 t from 1
 *   r_i <- beta r_i + (1 - beta) (mean over columns of g^2 + 1e-30)   a value per row, c_j one per column
 *   u_ij = g_ij / root(r_i c_j / mean(r))                             vectors: u = g / root(v), v kept whole
 *   u <- u / max(1, rms(u) / clip)
 *   w -= lr (u + weight_decay w)                                      relative: lr max(1e-3, rms(w))
 *
 * Every rank that holds anything of a matrix has all its factors (ARRAY_FACTORS): rows + columns values. What travels:
 * sums over rows and columns in fp64, rows + columns of them per matrix, and then two numbers per tensor, over the
 * ranks that share out state (from zero 1 on; an expert's over those that hold the same expert) and over tp, a unit at
 * a time. So no matrix has to be whole anywhere.
 *
 * Exact: sums run in fp64 and are rounded once to fp32, so layouts differ where a sum falls on two sides of a rounding.
 * Memory, planned: the sums of the largest unit, and 16 bytes per row of the largest piece. Floors 0-3.
 * Order: Collective over shard (expert) and tp.
 */
#ifndef TUTTI_OPTIM_ADAFACTOR_H
#define TUTTI_OPTIM_ADAFACTOR_H

#include "comm/comm.h"
#include "optim/optim.h"

struct adafactor_groups { /* of the data plane; NULL: of size 1 */
    struct comm *shard, *expert, *tp;
};

/* *out NULL where no group is stepped by it. */
int adafactor_new(struct adafactor **out, struct store *s, const struct optim_config *c, struct stream *st,
                  const struct adafactor_groups *g, struct err *e);
void adafactor_free(struct adafactor *x); /* NULL is fine */
/* Steps what is its own among parameters [first, first + n), whole units (state/units.h). */
void adafactor_step(struct adafactor *x, const struct optim_call *call, int first, int n);

#endif
