/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c: everything to everybody in log2 K rounds, then each rank does the sum itself.
 *
 * TMP holds blocks; block j of rank r is what rank r+j contributes. A rank that has the first h blocks sends them to
 * r-h and receives blocks h..2h-1 from r+h. all_gather (even pieces) then puts blocks in place; all_reduce folds the
 * vectors of all ranks in rank order.
 *
 * Cost per rank, K ranks, N bytes each: N(K-1) bytes in ceil(log2 K) messages; all_reduce reads K N. TMP: K N. The
 * fewest latencies that an all_reduce in rank order can have: for small vectors over a network.
 * (Bruck and others, Efficient algorithms for all-to-all communications, 1997.)
 */
#include "comm/moves.h"

static void blocks(struct moves *p, const struct coll *c, int64_t n)
{
    comm_moves_copy(p, SIDE_IN, 0, SIDE_TMP, 0, n);
    for (int have = 1; have < c->size; have *= 2) {
        int more = have < c->size - have ? have : c->size - have;
        comm_moves_send(p, (c->rank - have + c->size) % c->size, SIDE_TMP, 0, more * n);
        comm_moves_recv(p, (c->rank + have) % c->size, SIDE_TMP, have * n, more * n);
        comm_moves_fence(p);
    }
}

static bool even_pieces(const struct coll *c)
{
    for (int i = 0; i < c->size; i++)
        if (c->out_at[i + 1] - c->out_at[i] != c->out_at[1]) return false;
    return true;
}

bool gather_write(struct moves *p, const struct coll *c)
{
    if (c->op == COMM_ALL_REDUCE) {
        blocks(p, c, c->n);
        comm_moves_fold(p, (struct move){.from_side = SIDE_TMP,
                                         .to_side = SIDE_OUT,
                                         .n = c->n,
                                         .n_src = c->size,
                                         .own = -1,
                                         .stride = c->n,
                                         .rotate = c->size - c->rank,
                                         .final = true});
        return true;
    }
    if (c->op == COMM_ALL_GATHER && even_pieces(c)) {
        int64_t n = c->out_at[1];
        blocks(p, c, n);
        for (int j = 0; j < c->size; j++) comm_moves_copy(p, SIDE_TMP, j * n, SIDE_OUT, (c->rank + j) % c->size * n, n);
        return true;
    }
    return false;
}
