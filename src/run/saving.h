/* SPDX-License-Identifier: Apache-2.0 */
/* saving.h: a checkpoint that is written beside the steps.
 *
 *   saving_begin    all ranks: the state is worth it, the directory is made, each copies what it writes
 * (state/snapshot.h): for so long the steps wait writing         a thread of each rank writes its file, with checksums,
 * and syncs it publishing      when all have: a thread of rank 0 publishes
 *
 * From one to the next goes saving_next, when every rank says that it is not busy: ranks learn that of each other at
 * the end of a step, with what they tell each other there anyway, so no step waits for a disk. What is published is
 * byte for byte what a save of that step by all ranks together is (saved.h). Memory: the engine's snapshot_room, one
 * state.
 *
 * A process that dies leaves what crashed saves leave (checkpoint/ckpt.h); a failure is told on all ranks with the
 * words of any other save. Floor 8. Order: Collective over all ranks where it says so.
 */
#ifndef TUTTI_RUN_SAVING_H
#define TUTTI_RUN_SAVING_H

#include "run/saved.h"

struct saving;
/* g, r and what s points to outlive it; the engine has room for snapshots (engine_config.snapshots).
 *   fails   as save_checkpoint, *out NULL: nothing is left. Collective */
int saving_begin(struct saving **out, const struct engine *g, const struct ranks *r, const struct save_info *s,
                 struct err *e);
/* This rank's thread is at work. Local. */
bool saving_is_busy(const struct saving *x);
/* When no rank is busy: OK and *over false: publishing begins; *over true: published. An error: it failed, on all
 * ranks, and nothing is left. After *over or an error saving_free. Collective. */
int saving_next(struct saving *x, bool *over, struct err *e);
/* Waits until it is over. Fails as saving_next. Collective. */
int saving_finish(struct saving *x, struct err *e);
/* Of one that is over, on rank 0. */
struct ckpt_told saving_told(const struct saving *x);
int64_t saving_step(const struct saving *x);
/* From saving_begin on: seconds so far, and for how many of them the steps waited: for the copy, and in saving_next and
 * saving_finish. */
double saving_seconds(const struct saving *x, double *paused);
/* Waits for this rank's thread; what is not over stays a leftover. NULL is fine. Local. */
void saving_free(struct saving *x);

#endif
