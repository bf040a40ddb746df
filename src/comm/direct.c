/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c: every rank speaks to every other, sums in rank order.
 *
 * In shared memory this is the algorithm of meet_work.c: each rank reads its piece of every peer's buffer and writes
 * the result where it belongs; the transport runs that instead. Over messages it is the same data flow, written here:
 * pieces go straight to the rank that reduces them, which adds them in rank order in fp32, and results go straight to
 * where they are wanted. Bits and bytes are equal either way.
 *
 * Cost per rank, K ranks, N bytes: all_reduce 2N(K-1)/K in 2(K-1) messages, two stretches; reduce_scatter, all_gather
 * and all_to_all half of that; broadcast and reduce N(K-1)/K each way through pieces of all ranks. TMP: N.
 * The bytes are those of the ring, which are the least; a ring has 2(K-1) stretches and rounds K-1 times.
 */
#include "comm/moves.h"

/* Piece `rank` of everybody's IN (pieces begin at at[]) is folded into `to`. */
static void scatter(struct moves *p, const struct coll *c, const int64_t *at, enum side to, int64_t to_at)
{
    int64_t mine = at[c->rank + 1] - at[c->rank];
    for (int d = 1; d < c->size; d++) {
        int dst = (c->rank + d) % c->size, src = (c->rank - d + c->size) % c->size;
        comm_moves_send(p, dst, SIDE_IN, at[dst], at[dst + 1] - at[dst]);
        comm_moves_recv(p, src, SIDE_TMP, src * mine, mine);
    }
    comm_moves_fence(p);
    comm_moves_fold(p, (struct move){.from_side = SIDE_TMP,
                                     .to_side = to,
                                     .to = to_at,
                                     .n = mine,
                                     .n_src = c->size,
                                     .own = c->rank,
                                     .own_at = at[c->rank],
                                     .stride = mine,
                                     .final = true});
}

/* Everybody's piece, which is at `from`, goes to all others' OUT. */
static void gather(struct moves *p, const struct coll *c, const int64_t *at, enum side from, int64_t from_at)
{
    for (int d = 1; d < c->size; d++) {
        int dst = (c->rank + d) % c->size, src = (c->rank - d + c->size) % c->size;
        comm_moves_send(p, dst, from, from_at, at[c->rank + 1] - at[c->rank]);
        comm_moves_recv(p, src, SIDE_OUT, at[src], at[src + 1] - at[src]);
    }
    comm_moves_fence(p);
}

static void all_reduce(struct moves *p, const struct coll *c, const int64_t *at)
{
    scatter(p, c, at, SIDE_OUT, at[c->rank]);
    gather(p, c, at, SIDE_OUT, at[c->rank]);
}

/* Pieces are folded by their ranks and collected by the root. */
static void reduce(struct moves *p, const struct coll *c, const int64_t *at)
{
    bool root = c->rank == c->root;
    int64_t mine = at[c->rank + 1] - at[c->rank], folded = c->size * mine;
    scatter(p, c, at, root ? SIDE_OUT : SIDE_TMP, root ? at[c->rank] : folded);
    if (!root) comm_moves_send(p, c->root, SIDE_TMP, folded, mine);
    for (int src = 0; root && src < c->size; src++)
        if (src != c->rank) comm_moves_recv(p, src, SIDE_OUT, at[src], at[src + 1] - at[src]);
    comm_moves_fence(p);
}

/* The root deals the pieces out, then everybody passes its piece on. */
static void broadcast(struct moves *p, const struct coll *c, const int64_t *at)
{
    int64_t mine = at[c->rank + 1] - at[c->rank];
    if (c->rank != c->root) comm_moves_recv(p, c->root, SIDE_OUT, at[c->rank], mine);
    for (int dst = 0; c->rank == c->root && dst < c->size; dst++)
        if (dst != c->root) comm_moves_send(p, dst, SIDE_OUT, at[dst], at[dst + 1] - at[dst]);
    comm_moves_fence(p);
    for (int d = 1; d < c->size; d++) {
        int dst = (c->rank + d) % c->size, src = (c->rank - d + c->size) % c->size;
        if (dst != c->root) comm_moves_send(p, dst, SIDE_OUT, at[c->rank], mine);
        if (c->rank != c->root) comm_moves_recv(p, src, SIDE_OUT, at[src], at[src + 1] - at[src]);
    }
    comm_moves_fence(p);
}

static void all_to_all(struct moves *p, const struct coll *c)
{
    int r = c->rank;
    comm_moves_copy(p, SIDE_IN, c->in_at[r], SIDE_OUT, c->out_at[r], c->in_at[r + 1] - c->in_at[r]);
    for (int d = 1; d < c->size; d++) {
        int dst = (r + d) % c->size, src = (r - d + c->size) % c->size;
        comm_moves_send(p, dst, SIDE_IN, c->in_at[dst], c->in_at[dst + 1] - c->in_at[dst]);
        comm_moves_recv(p, src, SIDE_OUT, c->out_at[src], c->out_at[src + 1] - c->out_at[src]);
    }
}

/* Dissemination: after round i everybody has heard, directly or not, from 2^(i+1) ranks. */
static void barrier(struct moves *p, const struct coll *c)
{
    for (int d = 1; d < c->size; d *= 2) {
        comm_moves_send(p, (c->rank + d) % c->size, SIDE_TMP, 0, 1);
        comm_moves_recv(p, (c->rank - d + c->size) % c->size, SIDE_TMP, 1, 1);
        comm_moves_fence(p);
    }
}

bool direct_write(struct moves *p, const struct coll *c)
{
    switch (c->op) {
    case COMM_ALL_REDUCE: all_reduce(p, c, c->even); return true;
    case COMM_REDUCE: reduce(p, c, c->even); return true;
    case COMM_BROADCAST: broadcast(p, c, c->even); return true;
    case COMM_REDUCE_SCATTER: scatter(p, c, c->in_at, SIDE_OUT, 0); return true;
    case COMM_ALL_GATHER:
        comm_moves_copy(p, SIDE_IN, 0, SIDE_OUT, c->out_at[c->rank], c->out_at[c->rank + 1] - c->out_at[c->rank]);
        gather(p, c, c->out_at, SIDE_IN, 0);
        return true;
    case COMM_ALL_TO_ALL: all_to_all(p, c); return true;
    case COMM_BARRIER: barrier(p, c); return true;
    default: return false;
    }
}
