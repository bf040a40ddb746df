/* SPDX-License-Identifier: Apache-2.0 */
/* build.h: what engine_new makes on paper: the schedule, the stages this rank holds with their programs, and its
 * itinerary. Private to engine/, but for build_plan, which whoever draws or checks a schedule calls, too, and
 * build_in_order, which the config asks. Floor 6. Order: Same(config) but for what belongs to one rank.
 */
#ifndef TUTTI_ENGINE_BUILD_H
#define TUTTI_ENGINE_BUILD_H

#include "engine/engine.h"

/* The schedule that a config asks for, with its messages, for `ranks` pipeline ranks and m microbatches. *s may be set
 * when it fails; free it. */
int build_plan(struct schedule **s, const struct pipeline_config *c, int ranks, int m, struct err *e);
/* Whether gradients can be added up in one order (state/exact.h): every rank has one stage and finishes a microbatch
 * before it begins the next, or there is one only. */
bool build_in_order(const struct schedule *s);
int build_pipe_rank(const struct engine *g); /* along pp */
/* Whether this rank computes gradients of weights behind those of inputs; once there is a schedule. */
bool build_puts_off(const struct engine *g);
/* g->when, when_eval, peak, parts; and the table of parameters. */
int build_schedule(struct engine *g, struct err *e);
/* g->stage: tapes and programs. */
int build_stages(struct engine *g, struct err *e);
/* g->all, all_eval, of the stages and the store: what the schedule leaves out is put in, and all of it proved. */
int build_lists(struct engine *g, struct err *e);
/* g->go, go_eval. */
int build_itineraries(struct engine *g, struct err *e);
/* For copies_init: pipeline ranks that hold a parameter; ctx is the engine. */
int build_holders(void *ctx, int param, int *out);
void build_free(struct engine *g);

#endif
