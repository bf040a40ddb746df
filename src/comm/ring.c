/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c: pieces travel around a ring; every rank talks to its two neighbours only.
 *
 * reduce_scatter: in step s = 0..K-2 rank r sends the partial sum of piece r-1-s to r+1 and receives that of piece
 * r-2-s, to which it adds its own; after K-1 steps it holds piece r complete. all_gather: in step s it sends piece r-s
 * and receives piece r-s-1. all_reduce: the one, then the other.
 *
 * Cost per rank, K ranks, N bytes: reduce_scatter and all_gather N(K-1)/K bytes in K-1 messages, one after the other;
 * all_reduce twice that. TMP: two pieces. The bytes are the least possible and no link carries more than one stream,
 * which is what torus networks want; the price is K-1 latencies and an order of sums that begins at another rank for
 * each piece (16-bit types round at every hop).
 * (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009.)
 */
#include "comm/moves.h"

static int64_t widest(const struct coll *c, const int64_t *at)
{
    int64_t most = 0;
    for (int p = 0; p < c->size; p++)
        if (at[p + 1] - at[p] > most) most = at[p + 1] - at[p];
    return most;
}

static int wrap(const struct coll *c, int rank) { return ((rank % c->size) + c->size) % c->size; }

/* The sum of everybody's piece `rank` goes to `to`. */
static void scatter(struct moves *p, const struct coll *c, const int64_t *at, int64_t to)
{
    int next = wrap(c, c->rank + 1), last = wrap(c, c->rank - 1);
    int64_t half[2] = {0, widest(c, at)};
    for (int s = 0; s < c->size - 1; s++) {
        int out = wrap(c, c->rank - 1 - s), in = wrap(c, c->rank - 2 - s);
        int64_t here = half[s % 2], before = half[(s + 1) % 2];
        comm_moves_send(p, next, s ? SIDE_TMP : SIDE_IN, s ? before : at[out], at[out + 1] - at[out]);
        comm_moves_recv(p, last, SIDE_TMP, here, at[in + 1] - at[in]);
        comm_moves_fence(p);
        comm_moves_add(p, SIDE_IN, at[in], SIDE_TMP, here, at[in + 1] - at[in]);
    }
    int64_t mine = at[c->rank + 1] - at[c->rank];
    if (c->size == 1) comm_moves_copy(p, SIDE_IN, 0, SIDE_OUT, to, mine);
    else comm_moves_copy(p, SIDE_TMP, half[c->size % 2], SIDE_OUT, to, mine);
    if (c->red == COMM_AVG) comm_moves_scale(p, SIDE_OUT, to, mine);
}

static void gather(struct moves *p, const struct coll *c, const int64_t *at)
{
    int next = wrap(c, c->rank + 1), last = wrap(c, c->rank - 1);
    for (int s = 0; s < c->size - 1; s++) {
        int out = wrap(c, c->rank - s), in = wrap(c, c->rank - s - 1);
        comm_moves_send(p, next, SIDE_OUT, at[out], at[out + 1] - at[out]);
        comm_moves_recv(p, last, SIDE_OUT, at[in], at[in + 1] - at[in]);
        comm_moves_fence(p);
    }
}

bool ring_write(struct moves *p, const struct coll *c)
{
    switch (c->op) {
    case COMM_REDUCE_SCATTER: scatter(p, c, c->in_at, 0); return true;
    case COMM_ALL_GATHER:
        comm_moves_copy(p, SIDE_IN, 0, SIDE_OUT, c->out_at[c->rank], c->out_at[c->rank + 1] - c->out_at[c->rank]);
        gather(p, c, c->out_at);
        return true;
    case COMM_ALL_REDUCE:
        scatter(p, c, c->even, c->even[c->rank]);
        gather(p, c, c->even);
        return true;
    default: return false;
    }
}
