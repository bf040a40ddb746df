/* SPDX-License-Identifier: Apache-2.0 */
/* tracer.h: which steps of a run are traced, and when its events are collected (run.trace and its sisters).
 * Floor 9. Order: Collective(world) unless said otherwise.
 */
#ifndef TUTTI_WATCH_TRACER_H
#define TUTTI_WATCH_TRACER_H

#include "config/config.h"
#include "engine/engine.h"
#include "config/ranks.h"
#include "engine/trace.h"

struct tracer {
    struct trace trace;
    const struct config *cfg;
    struct engine *engine;
    const struct ranks *ranks;
    char place[96];
    struct str schedule;
    int64_t began;      /* the run, with this step */
    int64_t first, end; /* steps [first, end) are traced; end 0: nothing is */
};

/* The run goes on with `step`. Nothing is traced without run.trace. Local. */
void tracer_begin(struct tracer *x, const struct config *c, struct engine *g, const struct ranks *r, int64_t step);
/* Before a step. Fails when the file cannot be made before the first one; later a run does not end because of it: that
 * is said. */
int tracer_before(struct tracer *x, int64_t step, struct err *e);
/* The step that began at from_s is over; step: done. Local. */
void tracer_after(struct tracer *x, int64_t step, double from_s);
/* The run ends after so many steps: what was traced is written. */
void tracer_end(struct tracer *x, int64_t step);

#endif
