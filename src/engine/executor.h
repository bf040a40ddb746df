/* SPDX-License-Identifier: Apache-2.0 */
/* executor.h: runs an itinerary: loops over this rank's steps and hands each to a program or a communicator. It
 * decides nothing: order, slabs, buffers and microbatches are written there. There is no other training loop: gradient
 * accumulation, evaluation and pipelines all pass here.
 * Floor 6. Order: Collective over all ranks of the pipeline and data axes.
 */
#ifndef TUTTI_ENGINE_EXECUTOR_H
#define TUTTI_ENGINE_EXECUTOR_H

#include "engine/engine.h"

typedef void executor_look_fn(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i);

/* One step's worth of g->go (training) or g->go_eval, up to the gradients. look (may be NULL) is called after every
 * instruction: a window. */
void executor_run(struct engine *g, bool training, const struct step_info *info, executor_look_fn *look, void *ctx);
/* The rest of g->go, once the norm of all gradients is known and worth a step: parameters are updated and published.
 * made: updates that optimizers made before, which are fewer than steps where some were skipped. Enqueues. */
void executor_update(struct engine *g, int64_t step, int64_t made, double lr);

#endif
