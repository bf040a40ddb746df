/* meet.h: where the ranks of a group come together before an operation: descriptors side by side, and the work of a
 * shared-memory operation dealt out in chunks. Memory that all ranks of the group see; between processes it holds no
 * pointer that another process follows.
 *
 * A slot goes through these states for its operation number m (the k-th operation that meets has m = k, from 0, and
 * uses slot m % MEET_SLOTS):
 *
 *     open (gen == m) --each rank writes its part, arrived++--> full (arrived == size)
 *     full --all chunks taken and done (none for plain meetings)--> finished (done == n_chunks)
 *     finished --each rank left++; the last clears it--> open for m + MEET_SLOTS
 *
 * Invariants
 *   1. A part is written before its rank counts as arrived and not after; everybody reads parts only when full.
 *   2. No rank leaves before the slot is finished, so buffers in parts stay valid while chunks run.
 * Order: Collective(group) in effect; every function here returns at once.
 */
#ifndef TUTTI_COMM_MEET_H
#define TUTTI_COMM_MEET_H

#include <stdatomic.h>

#include "comm/board.h"

#define MEET_SLOTS 16

struct meet_part {
    struct desc desc;
    const void *in;
    void *out;
    const int64_t *in_at, *out_at; /* pieces, as struct coll has them */
    atomic_llong arrived;          /* m + 1 */
};
struct meet_cursor {
    _Alignas(64) atomic_llong next; /* chunk */
};
struct meet_slot {
    _Alignas(64) atomic_llong gen;
    atomic_int arrived, left;
    _Alignas(64) atomic_llong done; /* chunks */
};
struct meet {
    int32_t size;
    int64_t part_at, cursor_at, slot_bytes; /* within a slot */
    _Alignas(64) char slots[];
};

size_t meet_bytes(int size);
void meet_init(struct meet *m, int size);

struct meet_slot *meet_slot(struct meet *m, int64_t number);
struct meet_part *meet_part(struct meet *m, struct meet_slot *s, int rank);
struct meet_cursor *meet_cursor(struct meet *m, struct meet_slot *s, int rank);

/* False: the slot is still in use by stragglers of an earlier operation; try again later. */
bool meet_enter(struct meet *m, int64_t number, int rank, const struct meet_part *part);
bool meet_full(struct meet *m, int64_t number);
bool meet_arrived(struct meet *m, int64_t number, int rank);
/* 0, or ERR_IO naming both sides. Full slots only. world: the world ranks of the group. */
int meet_compare(struct meet *m, int64_t number, const int *world, struct err *e);
void meet_leave(struct meet *m, int64_t number);

#endif
