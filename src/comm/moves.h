/* SPDX-License-Identifier: Apache-2.0 */
/* moves.h: what an algorithm is: a list of moves for one rank, over messages. Plain data.
 *
 * An algorithm (ring.c, tree.c, ...) writes the list and does nothing; execute.c carries it out over any transport, the
 * ledger counts its sends, and the null transport stops there.
 *
 * Invariants
 *   1. Sends and receives are posted as they are met and complete at the next fence; the end is a fence. Nothing
 *      touches what a pending step uses.
 *   2. Between two ranks, the k-th send of one has the size of the k-th receive of the other.
 *   3. Counts and places are elements. IN is only read; OUT may be the same memory as IN (all_reduce, broadcast).
 *
 * Order: Local; the same arguments give matching programs on all ranks.
 */
#ifndef TUTTI_COMM_MOVES_H
#define TUTTI_COMM_MOVES_H

#include "comm/comm.h"

/* One collective, as an algorithm sees it. */
struct coll {
    enum comm_op op;
    enum comm_red red;
    enum dtype dtype;
    int root, rank, size;
    int64_t n;             /* elements: of the buffer; reduce_scatter: of in; all_gather: of out */
    const int64_t *in_at;  /* [size+1] where piece p of IN begins: reduce_scatter, all_to_all; else NULL */
    const int64_t *out_at; /* [size+1] the same for OUT: all_gather, all_to_all */
    const int64_t *even;   /* [size+1] n cut evenly */
    const int *host;       /* [size] the host of each rank, numbered from 0 by first appearance */
};

enum side { SIDE_IN, SIDE_OUT, SIDE_TMP };
enum move_kind {
    MOVE_SEND,  /* n elements at `from` to peer */
    MOVE_RECV,  /* n elements from peer to `to` */
    MOVE_FENCE, /* all sends and receives so far are complete */
    MOVE_COPY,  /* to = from */
    MOVE_ADD,   /* to = to op from, one rounding */
    MOVE_SCALE, /* to /= size, for the average */
    MOVE_FOLD, /* to = fold over p in 0..n_src-1 of source p: `from` + (p + rotate) % n_src * stride, but `own_at` in IN
                  for p == own (-1: none); divided by size when `final` */
    MOVE_NATIVE /* the transport's own collective */
};
struct move {
    enum move_kind kind;
    enum side from_side, to_side;
    int peer;
    int64_t from, to, n;
    int n_src, own; /* FOLD */
    int64_t stride, own_at;
    int rotate;
    bool final;
};

struct moves {
    struct move *move;
    int n, room;
    int64_t tmp; /* elements of TMP that it needs */
};
void comm_moves_clear(struct moves *p);
void comm_moves_free(struct moves *p);
void comm_moves_send(struct moves *p, int peer, enum side from, int64_t at, int64_t n);
void comm_moves_recv(struct moves *p, int peer, enum side to, int64_t at, int64_t n);
void comm_moves_fence(struct moves *p);
void comm_moves_copy(struct moves *p, enum side from, int64_t from_at, enum side to, int64_t to_at, int64_t n);
void comm_moves_add(struct moves *p, enum side from, int64_t from_at, enum side to, int64_t to_at, int64_t n);
void comm_moves_scale(struct moves *p, enum side at, int64_t to, int64_t n);
void comm_moves_fold(struct moves *p, struct move s); /* kind is set here */
void comm_moves_native(struct moves *p);

/* Bytes and messages to other ranks. */
struct comm_traffic comm_moves_traffic(const struct moves *p, int rank, enum dtype t);
/* Seconds by the alpha-beta model: per stretch between fences, messages * latency_s + the larger of bytes sent and
 * received / bytes_per_s. */
double comm_moves_cost(const struct moves *p, int rank, enum dtype t, double latency_s, double bytes_per_s);

/* ---- the algorithms, one file each -------------------------------------------------------------------------- */

/* Writes the program of rank c->rank; false: this algorithm does not do that operation for that group. */
typedef bool algorithm_fn(struct moves *p, const struct coll *c);
struct algorithm {
    const char *name;
    bool (*write)(struct moves *p, const struct coll *c);
    bool rank_order; /* float sums have the bits of rank order with one rounding */
    bool shared;     /* the transport may run it in shared memory; the program says what that counts as */
    bool native;     /* needs a transport with collectives of its own */
};
enum {
    ALGORITHM_DIRECT,
    ALGORITHM_RING,
    ALGORITHM_HALVING,
    ALGORITHM_TREE,
    ALGORITHM_CHAIN,
    ALGORITHM_PAIRWISE,
    ALGORITHM_GATHER,
    ALGORITHM_TWO_LEVEL,
    ALGORITHM_NATIVE,
    ALGORITHM_N
};
extern const struct algorithm algorithms[ALGORITHM_N];

algorithm_fn direct_write, ring_write, halving_write, tree_write, chain_write, pairwise_write, gather_write,
    two_level_write, native_write;

#endif
