/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.h: the saved state of a rank as it is between two steps, copied into memory of the host and back.
 *
 * A snapshot is a list of parts: of each array that is saved (state/array.h), of each parameter that it covers, the
 * values that this rank writes to a checkpoint, or all that it holds. The parts lie one behind the other in the list's
 * order, arrays by arrays, each at a multiple of SNAPSHOT_ALIGN, so the same store gives the same list with the same
 * offsets: what was taken on one start of a run is given back on the next with the same layout. The memory is the
 * caller's: a buffer of the engine that a thread writes to disk from (keep/async_save.h), or memory that outlives the
 * process.
 * Floors 0-3. Order: Local.
 */
#ifndef TUTTI_STATE_SNAPSHOT_H
#define TUTTI_STATE_SNAPSHOT_H

#include "state/store.h"

#define SNAPSHOT_ALIGN ((size_t)64)

struct snapshot_part {
    int array, param;       /* of the store (store_array), of the table of parameters */
    struct array_span span; /* which values of that parameter's */
    size_t at, bytes;       /* in the memory */
};
struct snapshot {
    struct snapshot_part *part; /* none is empty */
    int64_t n;
    size_t bytes; /* of memory: a multiple of SNAPSHOT_ALIGN */
};

/* What is held: what this rank writes to a checkpoint, each value of the state on one rank (store_writes); all that it
 * has, copies of whole state too (store_held). */
enum snapshot_of { SNAPSHOT_WRITTEN, SNAPSHOT_HELD };
void snapshot_init(struct snapshot *x, const struct store *s, enum snapshot_of of);
void snapshot_free(struct snapshot *x); /* also of a zeroed struct */
/* Copies the state to `memory`, of x->bytes; waits until it is there. st: the stream that computes. What lies between
 * parts is not touched.
 *   fails   as device_status: what waited on a disk is not what was put there */
int snapshot_take(const struct snapshot *x, const struct store *s, struct stream *st, void *memory, struct err *e);
/* The other way round; the compute copies and copies on other ranks are the caller's to derive. Waits. */
void snapshot_give(const struct snapshot *x, const struct store *s, struct stream *st, const void *memory);

#endif
