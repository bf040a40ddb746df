/* SPDX-License-Identifier: Apache-2.0 */
/* work.h: the FLOPs of a step as its batch makes them. What a program says of itself holds for sequences that exist and
 * masks that show all pairs; of each batch it is known which sequences are there and which pairs are shown. Floor 6.
 * Order: Local unless said.
 */
#ifndef TUTTI_ENGINE_WORK_H
#define TUTTI_ENGINE_WORK_H

#include "engine/engine.h"

/* FLOPs of this rank, without recomputation: for a sequence, and for a pair that a mask shows. The sums over all ranks
 * are the model's. */
struct work_cost {
    double sequence[2];      /* but for the pairs below; forward alone, and with backward */
    double pair[2][PAIRS_N]; /* of each kind */
};
void work_cost_of(const struct engine *g, struct work_cost *c);
/* FLOPs of engine_step (trains) or engine_evaluate that gave r. */
double work_flops(const struct work_cost *c, const struct engine_report *r, bool trains);

/* Counts the pairs that masks show in this part of a batch: pairs[k] of kind k, and in g->shown, by microbatch, which
 * share they are of the pairs with nothing hidden. */
void work_count(struct engine *g, const struct engine_batch *b, int64_t pairs[PAIRS_N]);

#endif
