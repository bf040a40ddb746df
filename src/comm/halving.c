/* SPDX-License-Identifier: Apache-2.0 */
/* halving.c: recursive halving, then recursive doubling: all_reduce for any number of ranks.
 *
 * Let M be the largest power of two in K. The first 2(K-M) ranks pair up: the even one gives its vector to the odd one
 * and waits for the result. The M ranks that remain exchange halves: in each round a rank sends the half that its
 * partner keeps and adds what it receives to the half that it keeps itself, until it holds 1/M of the sum; the rounds
 * are then retraced with whole pieces.
 *
 * Cost per rank, N bytes: 2N(M-1)/M bytes in 2 log2 M messages; when K is no power of two, pairs send N more, in two
 * more messages. TMP: N, or N/2 for powers of two. Fewer messages than the ring for the same bytes: for middle sizes
 * over a network. Sums are added along a tree (16-bit types round at every level).
 * (Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.)
 */
#include "base/thread.h"
#include "comm/moves.h"

/* The first element of piece i of n cut over m. */
static int64_t edge(int64_t n, int i, int m)
{
    int64_t lo, hi;
    if (i == m) return n;
    team_split(n, i, m, &lo, &hi);
    return lo;
}

/* The communicator's rank of the i-th rank that remains. */
static int remaining(int i, int extra) { return i < extra ? 2 * i + 1 : i + extra; }

static void halve_and_double(struct moves *p, const struct coll *c, int me, int m, int extra)
{
    int lo = 0, hi = m; /* pieces held */
    for (int half = m / 2; half >= 1; half /= 2) {
        int mid = lo + half, peer = remaining(me ^ half, extra);
        bool low = !(me & half);
        int64_t a = edge(c->n, lo, m), b = edge(c->n, mid, m), z = edge(c->n, hi, m);
        comm_moves_send(p, peer, SIDE_OUT, low ? b : a, low ? z - b : b - a);
        comm_moves_recv(p, peer, SIDE_TMP, 0, low ? b - a : z - b);
        comm_moves_fence(p);
        comm_moves_add(p, SIDE_TMP, 0, SIDE_OUT, low ? a : b, low ? b - a : z - b);
        if (low) hi = mid;
        else lo = mid;
    }
    int64_t mine = edge(c->n, me, m);
    if (c->red == COMM_AVG) comm_moves_scale(p, SIDE_OUT, mine, edge(c->n, me + 1, m) - mine);
    for (int half = 1; half < m; half *= 2) {
        int peer = remaining(me ^ half, extra), first = me / half * half, theirs = first ^ half;
        int64_t a = edge(c->n, first, m), b = edge(c->n, theirs, m);
        comm_moves_send(p, peer, SIDE_OUT, a, edge(c->n, first + half, m) - a);
        comm_moves_recv(p, peer, SIDE_OUT, b, edge(c->n, theirs + half, m) - b);
        comm_moves_fence(p);
    }
}

bool halving_write(struct moves *p, const struct coll *c)
{
    if (c->op != COMM_ALL_REDUCE) return false;
    int m = 1;
    while (2 * m <= c->size) m *= 2;
    int extra = c->size - m;
    bool paired = c->rank < 2 * extra, gives = paired && c->rank % 2 == 0;
    if (gives) {
        comm_moves_send(p, c->rank + 1, SIDE_IN, 0, c->n);
        comm_moves_fence(p);
        comm_moves_recv(p, c->rank + 1, SIDE_OUT, 0, c->n);
        return true;
    }
    comm_moves_copy(p, SIDE_IN, 0, SIDE_OUT, 0, c->n);
    if (paired) {
        comm_moves_recv(p, c->rank - 1, SIDE_TMP, 0, c->n);
        comm_moves_fence(p);
        comm_moves_add(p, SIDE_TMP, 0, SIDE_OUT, 0, c->n);
    }
    halve_and_double(p, c, paired ? c->rank / 2 : c->rank - extra, m, extra);
    if (paired) comm_moves_send(p, c->rank - 1, SIDE_OUT, 0, c->n);
    return true;
}
