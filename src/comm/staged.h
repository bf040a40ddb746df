/* SPDX-License-Identifier: Apache-2.0 */
/* staged.h: collectives of processes that share a window of memory but not their buffers.
 *
 * Layout of the window, after the meeting place: a line of counters per rank; two stages per rank; two results.
 *
 *     counters  rounds that this rank has put in, worked on, taken out: ever growing, one writer
 *     stage     what a rank offers to the others in a round
 *     result    what comes out of a round for everybody
 *
 * Order: Collective(group) in effect; every function returns at once.
 */
#ifndef TUTTI_COMM_STAGED_H
#define TUTTI_COMM_STAGED_H

#include "comm/impl.h"

/* Bytes of a stage, the group's c->stage_bytes: the larger the fewer meetings, as long as stages stay in cache. */
#define STAGE_MPI ((size_t)256 << 10)
#define STAGE_LOCAL ((size_t)8 << 10) /* threads: only for operations of one round */

struct staged_line {
    _Alignas(64) atomic_llong in, worked, out; /* rounds */
};

size_t staged_bytes(int size, size_t stage);
/* Makes the window's meeting place and counters, whatever the memory held: a library may take it from malloc. By one
 * rank, before any other looks at it. */
void staged_init(struct meet *window, int size);
/* Of a group whose ranks could read each other's buffers: small enough that copies cost less than a second meeting. The
 * same answer on all ranks. */
bool staged_small(const struct comm *c, const struct op *o);
/* Copies the first round in, before the rank arrives at the meeting: its arrival then says both. False: the stage is
 * still being read, try again. */
bool staged_prepare(struct comm *c, struct op *o);
bool staged_work(struct comm *c, struct op *o); /* true: finished */
/* A rank has gone through fewer steps than this one. */
bool staged_behind(struct comm *c, int rank);

#endif
