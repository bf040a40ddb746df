/* SPDX-License-Identifier: Apache-2.0 */
/* stage_costs.h: what the stages of a pipeline compute, so that its schedule can be simulated before anything has run:
 * FLOPs from the programs themselves, as rank 0 and its counterparts on the other stages have them.
 * Floor 11; may use run/. Order: Local.
 */
#ifndef TUTTI_PLAN_STAGE_COSTS_H
#define TUTTI_PLAN_STAGE_COSTS_H

#include "config/config.h"
#include "engine/engine.h"

/* FLOPs of one microbatch by stage; the caller frees *out, one per stage of g's schedule. g: rank 0, whose own stages
 * are read off; the other ranks' engines are made for it and freed. */
int stage_costs(struct schedule_stage_cost **out, const struct config *c, const struct engine *g, struct err *e);

#endif
