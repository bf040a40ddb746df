/* SPDX-License-Identifier: Apache-2.0 */
/* own.h: whole matrices on one rank of those that share out state, for optimizers that need a matrix as a whole (Muon).
 * A parameter that is owned is not cut into rows: its piece (units.h) is all that is held here on its owner and nothing
 * on the others. Gradients are reduced to the owner and parameters gathered from it by the operations that carry rows,
 * so a step needs no message of its own along the shard axes.
 *
 * Owners balance work: matrices of falling cost, one after the other, go to the rank that has the least so far (at most
 * 4/3 of the best there is: Graham 1969), a stage and an expert's place at a time.
 *
 * Invariants
 *   1. A pure function of the table: every rank finds the same owners.
 * Floors 0-2. Order: Same(table).
 */
#ifndef TUTTI_STATE_OWN_H
#define TUTTI_STATE_OWN_H

#include "state/param.h"

/* Multiplications that a matrix costs its owner, up to a factor. */
double own_cost(const struct param *p);
/* Gives every stepped matrix of these groups (bit 1u << group) an owner, and places all of the table anew. */
void own_matrices(struct param_table *t, unsigned groups);

#endif
