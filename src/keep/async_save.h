/* SPDX-License-Identifier: Apache-2.0 */
/* async_save.h: a checkpoint that is written beside the steps.
 *
 *   async_save_begin   all ranks: the state is worth it, the directory is made, each copies what it writes
 *                      (state/snapshot.h): for so long the steps wait
 *   writing            a thread of each rank writes its file, with checksums, and syncs it
 *   publishing         when all have: a thread of rank 0 publishes
 *
 * From one to the next goes async_save_next, when every rank says that it is not busy: ranks learn that of each other
 * at the end of a step, with what they tell each other there anyway, so no step waits for a disk. What is published is
 * byte for byte what a save of that step by all ranks together is (run_checkpoint.h). Memory: the engine's
 * snapshot_room, one state.
 *
 * A process that dies leaves what crashed saves leave (checkpoint/ckpt.h); a failure is told on all ranks with the
 * words of any other save. Floor 8. Order: Collective over all ranks where it says so.
 */
#ifndef TUTTI_KEEP_ASYNC_SAVE_H
#define TUTTI_KEEP_ASYNC_SAVE_H

#include "keep/run_checkpoint.h"

struct async_save;
/* g, r and what s points to outlive it; the engine has room for snapshots (engine_config.snapshots).
 *   fails   as save_checkpoint, *out NULL: nothing is left. Collective */
int async_save_begin(struct async_save **out, const struct engine *g, const struct ranks *r, const struct save_info *s,
                     struct err *e);
/* This rank's thread is at work. Local. */
bool async_save_is_busy(const struct async_save *x);
/* When no rank is busy: OK and *over false: publishing begins; *over true: published. An error: it failed, on all
 * ranks, and nothing is left. After *over or an error async_save_free. Collective. */
int async_save_next(struct async_save *x, bool *over, struct err *e);
/* Waits until it is over. Fails as async_save_next. Collective. */
int async_save_finish(struct async_save *x, struct err *e);
/* Of one that is over, on rank 0. */
struct ckpt_told async_save_told(const struct async_save *x);
int64_t async_save_step(const struct async_save *x);
/* From async_save_begin on: seconds so far, and for how many of them the steps waited: for the copy, and in
 * async_save_next and async_save_finish. */
double async_save_seconds(const struct async_save *x, double *paused);
/* Waits for this rank's thread; what is not over stays a leftover. NULL is fine. Local. */
void async_save_free(struct async_save *x);

#endif
