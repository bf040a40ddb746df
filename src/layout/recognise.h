/* SPDX-License-Identifier: Apache-2.0 */
/* recognise.h: recognising a route as a sequence of collectives.
 *
 * From the letters of two layouts alone, without listing a message, lower() finds steps that turn one into the other:
 *
 *   letter on an axis        step                 traffic per rank of a group of k, n elements whole
 *   R -> S                   LOWER_SLICE          none: each keeps its piece
 *   S -> R                   LOWER_ALL_GATHER     n (k-1)/k
 *   P -> S                   LOWER_REDUCE_SCATTER n (k-1)/k
 *   P -> R                   LOWER_ALL_REDUCE     2n (k-1)/k
 *   S(i) -> S(j)             LOWER_ALL_TO_ALL     n/k (k-1)/k
 *   held by one pp -> by more  LOWER_BROADCAST    n
 *   held by some pp -> by fewer of them           LOWER_FORGET: nothing moves
 *   anything else            LOWER_POINT_TO_POINT the route's own messages (one step, the last)
 *
 * Steps are ordered so that data is cut down before it travels and grows at the end. Neighbouring steps of one kind
 * are merged into one over several axes (FSDP over dp_shard and cp is one all-gather). I counts as R.
 *
 * A sum that is reduced by collectives may be rounded in another order than the route's.
 * Floor 1; includes base only. Order: Local; the same arguments give the same steps on every rank.
 */
#ifndef TUTTI_LAYOUT_RECOGNISE_H
#define TUTTI_LAYOUT_RECOGNISE_H

#include "layout/route.h"

enum lower_kind {
    LOWER_SLICE,
    LOWER_REDUCE_SCATTER,
    LOWER_ALL_TO_ALL,
    LOWER_ALL_REDUCE,
    LOWER_ALL_GATHER,
    LOWER_BROADCAST,
    LOWER_FORGET,
    LOWER_POINT_TO_POINT,
    LOWER_N
};
const char *lower_kind_name(enum lower_kind k); /* "all-gather" */

struct lower_step {
    enum lower_kind kind;
    int n_axes;
    struct mesh_axis axis[LAYOUT_MAX_PLACES]; /* the group: outermost first, in the order of the pieces */
    int dim;     /* ALL_GATHER, REDUCE_SCATTER, SLICE: the dim of the pieces; ALL_TO_ALL: the dim that is joined */
    int dim_cut; /* ALL_TO_ALL: the dim that is cut */
    bool even;   /* all pieces of all groups have the same size */
    struct layout before, after;
};

#define LOWER_MAX_STEPS (2 * LAYOUT_MAX_PLACES)
struct lowering {
    int n; /* 0: the layouts place every number alike */
    struct lower_step step[LOWER_MAX_STEPS];
};

/* ERR_REQUEST exactly where route_new refuses. */
int lower_route(struct lowering *w, const struct layout *from, const struct layout *to, struct err *e);
/* The ranks that a step joins with `rank`, in the order of the pieces; for BROADCAST the root comes first. Returns
 * how many (0: the rank has no part in it); out (may be NULL) holds n_ranks. */
int lower_group(const struct lower_step *s, int rank, int *out);
/* Elements that `rank` sends in this step, by the table above, from real box sizes. */
int64_t lower_traffic(const struct lower_step *s, int rank);
/* "reduce-scatter dim 0 over dp_shard, cp; all-reduce over dp_replicate"; "nothing" for no steps. */
void lower_print(const struct lowering *w, struct str *out);

#endif
