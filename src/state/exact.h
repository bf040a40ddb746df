/* SPDX-License-Identifier: Apache-2.0 */
/* exact.h: gradients summed in an order that no data-parallel layout changes (numerics.exact_order).
 *
 * The T microbatches of the global batch are numbered as their sequences are. Their gradients are summed along one
 * tree: a range is split in halves while its length is even; what is left, an odd run, is added up one after the other.
 *
 *   T = 12:   (((0 + 1) + 2) + ((3 + 4) + 5)) + (((6 + 7) + 8) + ((9 + 10) + 11))
 *
 * P ranks with P a power of two and T a multiple of P hold one subtree each, ranks of dp_shard are neighbours, replicas
 * the level above: so every rank sums its own subtree with a binary counter of gradient buffers, and what is left is
 * the same tree over ranks. Across ranks pieces are exchanged (all-to-all) and summed here in the tree's order: the
 * order is not the transport's. For two ranks it is that of every reduction.
 *
 * Cost, beside a reduction per step: log2(runs) whole gradients in fp32, and N pieces of the largest parameter while
 * ranks are summed; as many bytes on the wire as a reduce-scatter; no overlap with backward from four ranks up.
 * Loss and gradient norm: engine/tally.c, kernel/words.c.
 * Floors 0-2. Order: as stated.
 */
#ifndef TUTTI_STATE_EXACT_H
#define TUTTI_STATE_EXACT_H

#include "comm/comm.h"
#include "state/store.h"

enum { EXACT_MAX_LEVELS = 16 };

struct exact {
    struct store *s;
    struct stream *stream; /* where sums are enqueued; borrowed */
    int64_t run, n_runs;   /* microbatches that are added one after the other; how many such runs this rank has: 2^k */
    struct buffer level[EXACT_MAX_LEVELS]; /* sums of 2^k runs that wait for their neighbour */
    int n_levels;
    struct buffer parts;  /* the ranks' pieces of one parameter */
    int64_t *send, *recv; /* scratch: elements per rank */
};

/* A run of T microbatches: T's largest odd divisor. */
int64_t exact_run(int64_t n_microbatches);
int exact_init(struct exact *x, struct store *s, struct stream *st, int64_t n_microbatches, int shard, int replicate,
               struct err *e);
void exact_fini(struct exact *x);
/* The gradient buffer holds the sum of a run (from 0) of this unit: it takes its place in the tree. After the last run
 * the buffer holds the sum of all; after others the next run overwrites it. Local. */
void exact_run_end(struct exact *x, int unit, int64_t run);
/* piece = the sum over ranks of their `whole`, of which it is this rank's piece (parameter `param`). Waits.
 * Collective(c), c being dp_shard. */
void exact_reduce_scatter(struct exact *x, struct comm *c, const float *whole, float *piece, int param);
/* v[n] = the sum over ranks. Waits. Collective(c). */
void exact_all_reduce(struct exact *x, struct comm *c, float *v, int64_t n, const char *what);

#endif
