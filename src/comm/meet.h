/* SPDX-License-Identifier: Apache-2.0 */
/* meet.h: where the ranks of a group come together before an operation: descriptors side by side, and the work of a
 * shared-memory operation dealt out in chunks. Memory that all ranks of the group see; between processes it holds no
 * pointer that another process follows.
 *
 * The k-th operation that meets has number m = k, from 0, and uses slot m % MEET_SLOTS. In a slot every rank has two
 * cache lines of its own, which it alone stores to (but for `next`, which whoever takes a chunk advances):
 *
 *     seat    arrived, and what the others need to know: written once, before `arrived`
 *     share   chunks taken from this rank's share, chunks that this rank has done
 *
 * Invariants
 *   1. A seat is written before its `arrived` and not after; everybody reads seats of ranks that have arrived.
 *   2. A rank that enters m has left m-1, and has seen everybody arrive at m-1, hence leave m-2. So nobody uses the
 *      slot of m any more when m % MEET_SLOTS comes round again (MEET_SLOTS >= 3), and nothing needs to be counted
 *      or handed back.
 * Order: Collective(group) in effect; every function here returns at once.
 */
#ifndef TUTTI_COMM_MEET_H
#define TUTTI_COMM_MEET_H

#include <stdatomic.h>

#include "comm/board.h"

#define MEET_SLOTS 4

struct meet_seat {
    _Alignas(64) atomic_llong arrived; /* m + 1 */
    uint64_t print;                    /* of the descriptor: equal ones are not looked at further */
    uint64_t in, out;                  /* threads: pointers; processes: names of blocks.h, or 0 */
    int64_t most;                      /* elements of the largest piece */
    bool alone;                        /* the rank has nothing else open */
};
struct meet_share {
    _Alignas(64) atomic_llong next; /* the first chunk of this rank's share that nobody has taken */
    atomic_llong done;              /* chunks, of any share, that this rank has done */
};
struct meet {
    int32_t size;
    int64_t share_at, desc_at, slot_bytes; /* within a slot */
    _Alignas(64) char slots[];
};

size_t meet_bytes(int size);
void meet_init(struct meet *m, int size);

struct meet_seat *meet_seat(struct meet *m, int64_t number, int rank);
struct meet_share *meet_share(struct meet *m, int64_t number, int rank);

/* Sits down; `seat` is copied but for its first two fields. */
void meet_enter(struct meet *m, int64_t number, int rank, const struct desc *d, const struct meet_seat *seat);
bool meet_arrived(struct meet *m, int64_t number, int rank);
/* Everybody from *seen on has arrived; *seen (0 at first) remembers how far it looked. */
bool meet_full(struct meet *m, int64_t number, int *seen);
/* 0, or ERR_IO naming both sides. When full only. world: the world ranks of the group. */
int meet_compare(struct meet *m, int64_t number, const int *world, struct err *e);

#endif
