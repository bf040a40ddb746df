/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c: binomial trees. Rank v (counted from the root) has the parent v without its lowest set bit.
 *
 * reduce: leaves send first; a rank adds its children one after the other and sends to its parent. broadcast: the same
 * tree downwards, farthest child first. all_reduce: both, through rank 0.
 *
 * Cost, K ranks, N bytes: log2 K messages of N bytes in a row (twice for all_reduce); the root receives or sends up to
 * N log2 K. TMP: 2N. For small vectors over a network, where latencies count; sums are added along the tree (16-bit
 * types round at every level).
 */
#include "comm/moves.h"

/* The sum goes to `to` of the root; other ranks keep partial sums in TMP, or in OUT when they may. */
static void reduce(struct moves *p, const struct coll *c, int root, bool out_everywhere)
{
    int v = (c->rank - root + c->size) % c->size;
    bool leaf = v % 2 == 1 || c->size == 1;
    enum side acc = v == 0 || out_everywhere ? SIDE_OUT : SIDE_TMP;
    int64_t arrives = acc == SIDE_TMP ? c->n : 0;
    if (!leaf || v == 0) comm_moves_copy(p, SIDE_IN, 0, acc, 0, c->n);
    for (int bit = 1; bit < c->size; bit *= 2) {
        if (v & bit) {
            comm_moves_send(p, (v - bit + root) % c->size, leaf ? SIDE_IN : acc, 0, c->n);
            break;
        }
        if (v + bit >= c->size) continue;
        comm_moves_recv(p, (v + bit + root) % c->size, SIDE_TMP, arrives, c->n);
        comm_moves_fence(p);
        comm_moves_add(p, SIDE_TMP, arrives, acc, 0, c->n);
    }
    if (v == 0 && c->red == COMM_AVG) comm_moves_scale(p, SIDE_OUT, 0, c->n);
    comm_moves_fence(p);
}

static void broadcast(struct moves *p, const struct coll *c, int root)
{
    int v = (c->rank - root + c->size) % c->size, bit = 1;
    while (bit < c->size && !(v & bit)) bit *= 2;
    if (v) comm_moves_recv(p, (v - bit + root) % c->size, SIDE_OUT, 0, c->n);
    comm_moves_fence(p);
    for (bit /= 2; bit >= 1; bit /= 2)
        if (v + bit < c->size) comm_moves_send(p, (v + bit + root) % c->size, SIDE_OUT, 0, c->n);
}

bool tree_write(struct moves *p, const struct coll *c)
{
    switch (c->op) {
    case COMM_REDUCE: reduce(p, c, c->root, false); return true;
    case COMM_BROADCAST: broadcast(p, c, c->root); return true;
    case COMM_ALL_REDUCE:
        reduce(p, c, 0, true);
        broadcast(p, c, 0);
        return true;
    default: return false;
    }
}
