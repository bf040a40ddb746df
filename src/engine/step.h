/* SPDX-License-Identifier: Apache-2.0 */
/* step.h: what a step (step.c) and an evaluation (engine.c) share. Private to the room. */
#ifndef TUTTI_ENGINE_STEP_H
#define TUTTI_ENGINE_STEP_H

#include "engine/engine.h"

/* Loss, right answers and loads of all ranks, after tally_read; n_trained: tokens that the batch has a loss of. */
void step_read_loss(struct engine *g, int64_t n_trained, struct engine_report *r);

#endif
