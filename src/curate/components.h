/* SPDX-License-Identifier: Apache-2.0 */
/* components.h: which vertices hang together, in memory that is given: the least vertex of each one's component.
 *
 * Edges come at any rank in any order; the answer does not depend on that. Stars in turn (Kiveris, Lattanzi, Mirrokni,
 * Rastogi, Vassilvitskii, "Connected components in MapReduce and beyond", 2014): union-find would want a word per
 * vertex in one memory. Rounds: about log2 of the longest way in a component, two shuffles each.
 * Includes: base, comm. Order: Collective(world) as shuffle.h has it.
 */
#ifndef TUTTI_CURATE_COMPONENTS_H
#define TUTTI_CURATE_COMPONENTS_H

#include "comm/comm.h"

struct components;
struct components *components_new(struct comm *world, const char *dir, size_t memory);
int components_put(struct components *c, uint64_t a, uint64_t b, struct err *e); /* a != b */
int components_finish(struct components *c, struct err *e);
/* 1 with a vertex that is not its component's least, and that one; each such vertex once, at one of the ranks; 0: no
 * more. Local. */
int components_next(struct components *c, uint64_t *vertex, uint64_t *least, struct err *e);
int components_rounds(const struct components *c);
void components_free(struct components *c);

#endif
