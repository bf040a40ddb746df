/* SPDX-License-Identifier: Apache-2.0 */
/* pairwise.c: all-to-all in K-1 rounds, in each of which every rank exchanges with one other (K a power of two: rank
 * xor round) or sends to one and receives from another (rank + round, rank - round).
 *
 * Cost per rank: the N(K-1)/K bytes that have to move, in K-1 messages one after the other. direct.c starts all of
 * them at once, which is faster until the network or the receivers' memory is congested.
 */
#include "comm/moves.h"

bool pairwise_write(struct moves *p, const struct coll *c)
{
    if (c->op != COMM_ALL_TO_ALL) return false;
    int r = c->rank, k = c->size;
    bool power = !(k & (k - 1));
    comm_moves_copy(p, SIDE_IN, c->in_at[r], SIDE_OUT, c->out_at[r], c->in_at[r + 1] - c->in_at[r]);
    for (int i = 1; i < k; i++) {
        int dst = power ? r ^ i : (r + i) % k, src = power ? r ^ i : (r - i + k) % k;
        comm_moves_send(p, dst, SIDE_IN, c->in_at[dst], c->in_at[dst + 1] - c->in_at[dst]);
        comm_moves_recv(p, src, SIDE_OUT, c->out_at[src], c->out_at[src + 1] - c->out_at[src]);
        comm_moves_fence(p);
    }
    return true;
}
