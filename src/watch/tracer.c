/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting costs time in which no step runs, so it is done between steps and, if it can wait, after the last one:
 * parameters of zero 1 and 2 that are under way from one step to the next would otherwise travel meanwhile, and look
 * cheaper than they are. */
#include "watch/tracer.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { SCHEDULE_ACTIONS = 20000 }; /* of a schedule that the file repeats, at most */

static void name_place(struct tracer *x)
{
    size_t at = 0;
    const struct par *p = &x->ranks->par;
    bool experts = x->engine->cfg.model.moe.experts > 0;
    if (x->ranks->server >= 0) snprintf(x->place, sizeof x->place, "server %d", x->ranks->server);
    for (int a = 0; x->ranks->server < 0 && a < AXIS_N && at < sizeof x->place; a++)
        if (p->size[a] > 1 && (experts || (a != AXIS_EDP && a != AXIS_ETP)))
            at += (size_t)snprintf(x->place + at, sizeof x->place - at, "%s%s %d", at ? ", " : "",
                                   axis_name((enum axis)a), p->rank[a]);
}

static void print_schedule(struct tracer *x)
{
    const struct schedule *s = x->engine->when;
    if (s && s->n_ranks > 1 && (int64_t)s->n_stages * s->n_microbatches <= SCHEDULE_ACTIONS / 8)
        schedule_print(s, &x->schedule);
}

void tracer_begin(struct tracer *x, const struct config *c, struct engine *g, const struct ranks *r, int64_t step)
{
    *x = (struct tracer){.cfg = c, .engine = g, .ranks = r, .began = step};
    if (!c->run.trace) return;
    trace_init(&x->trace, g->trace_ring.p, g->trace_ring.bytes);
    x->first = c->run.trace_from ? c->run.trace_from - 1 : step + 1;
    if (x->first < step) x->first = step;
    x->end = x->first + c->run.trace_steps;
    if (x->end > c->run.steps) x->end = c->run.steps;
    g->trace = &x->trace;
}

static int open_trace(struct tracer *x, int64_t step, struct err *e)
{
    name_place(x);
    print_schedule(x);
    struct trace_info info = {
        .path = x->cfg->run.trace,
        .ledger = &x->engine->dev->ledger,
        .place = x->place,
        .schedule = str_text(&x->schedule),
        .stage_rank = x->ranks->server < 0 ? x->ranks->par.rank[AXIS_PP] : 0,
    };
    int rc = trace_open(&x->trace, &info, x->ranks->world, e);
    str_free(&x->schedule);
    if (!rc) return OK;
    err_prefix(e, "run.trace");
    struct comm *w = x->ranks->world;
    if (step == x->began || (w && comm_status(w, NULL))) return rc;
    if (x->ranks->rank == 0) log_warn("%s; the run goes on without a trace", e->text);
    trace_free(&x->trace);
    x->engine->trace = NULL;
    x->first = x->end = 0;
    return OK;
}

static bool half_full(struct tracer *x)
{
    int64_t full = 2 * x->trace.n >= x->trace.room;
    struct comm *w = x->ranks->world;
    x->trace.paused = true;
    if (w) comm_wait(w, comm_all_reduce(w, &full, &full, 1, DT_I64, COMM_MAX, "trace: half full?"));
    x->trace.paused = false;
    return full;
}

static void end_trace(struct tracer *x, int64_t step)
{
    trace_close(&x->trace, x->ranks->world);
    if (x->ranks->rank == 0)
        log_info("trace of steps %lld to %lld: %s (tutti trace says where the time went; ui.perfetto.dev shows it)",
                 (long long)x->first + 1, (long long)step, x->cfg->run.trace);
    x->end = 0;
}

int tracer_before(struct tracer *x, int64_t step, struct err *e)
{
    struct trace *t = &x->trace;
    if (x->end <= x->first) return OK;
    if (step == x->end && t->open) {
        end_trace(x, step);
        return OK;
    }
    /* A step early: what is under way from it to the first step of the trace is seen. */
    int rc = !t->open && step + 1 >= x->first && step < x->end ? open_trace(x, step, e) : OK;
    int64_t every = x->cfg->run.trace_collect, done = step - x->first;
    bool due = t->open && done > 0 && (every ? done % every == 0 : half_full(x));
    if (!rc && due) trace_collect(t, x->ranks->world);
    trace_turn(t, !rc && x->end && step >= x->first && step < x->end);
    t->step = step;
    return rc;
}

void tracer_after(struct tracer *x, int64_t step, double from_s)
{
    trace_add(&x->trace, TRACE_STEP, "", step - 1, from_s, clock_now_s());
}

void tracer_end(struct tracer *x, int64_t step)
{
    if (x->trace.open) end_trace(x, step);
}
