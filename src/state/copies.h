/* SPDX-License-Identifier: Apache-2.0 */
/* copies.h: parameters that live on several ranks of one axis and are used there for different work: a tied embedding
 * on the first and the last stage of a pipeline, every stage of a bidirectional one. Each holder's gradient is its own
 * part of the sum; after the reduction over the data-parallel ranks the holders add theirs up, element by element of
 * what each steps, and then make the same update of the same values.
 *
 * Invariants
 *   1. Sums run in rank order in fp32: every holder gets the same bits.
 *   2. Initial values need no message: they are f(seed, name, index).
 * Floors 0-2. Order: as stated.
 */
#ifndef TUTTI_STATE_COPIES_H
#define TUTTI_STATE_COPIES_H

#include "comm/comm.h"
#include "state/store.h"

struct copies_set {
    struct comm *group, *host; /* of the holders' devices; of their hosts */
    int *ranks, n;             /* of the axis, ascending */
};
struct copies {
    struct store *s;
    struct copies_set *set;
    int n, room;
    int *set_of; /* by parameter; -1: only here, or not here */
};

/* holders(ctx, param, out) writes the ranks of `along` that hold a parameter, ascending, and returns how many; the same
 * on every rank. along: NULL where the axis has size 1. Collective(along). */
typedef int copies_holders_fn(void *ctx, int param, int *out);
int copies_init(struct copies *x, struct store *s, struct comm *along, copies_holders_fn *holders, void *ctx,
                struct err *e);
void copies_fini(struct copies *x);
/* What this rank sent so far. */
struct comm_traffic copies_traffic(const struct copies *x);
/* Adds up the gradients of what this rank steps. Collective(every set), the same order everywhere. */
void copies_sum(struct copies *x);

#endif
