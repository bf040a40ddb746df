/* SPDX-License-Identifier: Apache-2.0 */
/* witness.h: whether two ranks that compute the same get the same. Every so many steps (run.replay_every) each rank
 * first computes the part of the batch that another rank is about to take (its witness), with the same parameters, then
 * its own as always. Of every instruction's result there is a hash; the two lists are compared before the update. So a
 * bit that flips in an activation, in a gradient before it is summed, or in a copy of a weight, on one of the two ranks
 * in either pass, shows as the first result that differs, by name.
 *
 *   witness of a rank   the rank that is s parts behind it, the same place along tp, cp, pp and ep. s is the least for
 *                       which that holds for all: ranks of one ep exchange tokens, and move together
 *   who is wrong        a third rank computes the part as well, 2s behind; where there are only two, both compute it
 *                       once more. Two that agree outvote one; else both are named
 *
 * Cost: such a step takes twice as long, and a pass over every result for the hash. What it cannot see: sums over ranks
 * and updates (replicas are compared for these, engine/replicas.h), a wrong weight of which there is one copy that all
 * were given, and a bit that flipped before both passes in memory that both read. Ranks whose kernels differ (other
 * instruction sets) have other bits by right, and are refused. With experts, rows on their way to them are not looked
 * at (how many there are is data): what comes back, and gradients of experts' weights, are.
 * Floor 10. Order: Collective(world).
 */
#ifndef TUTTI_TRAIN_WITNESS_H
#define TUTTI_TRAIN_WITNESS_H

#include "config/ranks.h"

struct witness;
/* ERR_REQUEST where no rank has a witness, or the ranks' kernels differ. g and r are borrowed. */
int witness_new(struct witness **out, struct engine *g, const struct ranks *r, struct err *e);
void witness_free(struct witness *w);

/* Fills in the part of the step's batch with that number; what it points to stays until the next call. */
typedef int witness_part_fn(void *ctx, int part, struct engine_batch *out, struct err *e);

struct witness_report { /* the same on every rank */
    bool differ;
    int ranks[2], n_ranks; /* who is wrong; both, where that cannot be told */
    char tensor[64];
    char text[512];
};

/* engine_step of `own`, witnessed. ERR_* of part() on any rank, before anything was computed. */
int witness_step(struct witness *w, witness_part_fn *part, void *ctx, const struct engine_batch *own, int64_t step,
                 double lr, struct engine_report *r, bool *finite, struct witness_report *found, struct err *e);

#endif
