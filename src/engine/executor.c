/* SPDX-License-Identifier: Apache-2.0 */
/* One step after another. What arrives and leaves goes by ticket: the rank waits where the itinerary says ARRIVE or
 * CLEAR, and once at the end for messages that nobody had taken yet. The thread's name carries step and action: a CHECK
 * that fires, gdb and top all show it. */
#include "engine/executor.h"

#include "engine/feed.h"
#include "engine/tally.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static void bind_microbatch(struct engine *g, int microbatch)
{
    double *stat = tally_at(g, microbatch);
    g->slot[SLOT_STAT] = stat;
    for (int k = 0; k < g->cfg.model.mtp.depth; k++)
        g->slot[slot_ahead(g->params.n, to_int(model_blocks(&g->cfg.model)), k)] = stat ? stat + 2 + 2 * k : NULL;
    feed_bind(g, microbatch);
}

/* ---- units come and go ---- */
static void bind_unit(struct engine *g, int unit, int slot, bool grad)
{
    const struct unit *u = &g->store.units.unit[unit];
    for (int i = u->first; i < u->first + u->n; i++)
        if (grad) g->slot[slot_grad(i)] = exchange_grad_ptr(&g->exchange, i, slot);
        else g->slot[slot_param(i)] = exchange_param_ptr(&g->exchange, i, slot);
}

/* Gradients of the unit begin anew. */
static void forget_unit(struct engine *g, int unit)
{
    const struct unit *u = &g->store.units.unit[unit];
    for (int i = u->first; i < u->first + u->n; i++) g->written[slot_grad(i)] = 0;
}

static void trace_unit(struct engine *g, int unit, int sign)
{
    if (g->trace)
        trace_count(g->trace, COUNTER_GATHERED,
                    sign * g->store.units.unit[unit].numel * (int64_t)dtype_bytes(g->store.dtype));
}

/* What is sent must be whole: what nothing writes is zeros. */
static void zero_unwritten(struct engine *g, const struct step *x, int phase)
{
    const struct cut *c = &g->stage[x->stage].cut;
    for (int i = 0; i < c->n_unwritten; i++) {
        const struct unwritten *w = &c->unwritten[i];
        if (w->unit != x->unit || w->phase != phase) continue;
        void *p = exchange_grad_ptr(&g->exchange, w->param, x->slot);
        if (p) stream_zero(g->stream, p, to_size(g->params.p[w->param].held) * 4);
    }
}

static void reduce_unit(struct engine *g, const struct step *x)
{
    struct exchange *e = &g->exchange;
    if (x->slot >= 0) zero_unwritten(g, x, x->phase);
    if (x->slot < 0 && e->exact) { /* a run of microbatches is in the gradient buffer, the next one starts anew */
        exact_run_end(&e->tree, x->unit, x->nth);
        if (!x->last) forget_unit(g, x->unit);
    }
    const bool *leaves = x->slot >= 0 ? g->stage[x->stage].cut.leaves[x->phase] : NULL;
    if (x->slot >= 0 || x->last) exchange_reduce(e, x->unit, x->slot, leaves, x->last);
}

static void run_unit(struct engine *g, const struct step *x)
{
    switch (x->kind) {
    case STEP_GATHER:
        trace_unit(g, x->unit, 1);
        exchange_gather(&g->exchange, x->unit, x->slot);
        return;
    case STEP_NEED:
        exchange_gather_wait(&g->exchange, x->unit);
        if (x->slot >= 0) bind_unit(g, x->unit, x->slot, false);
        return;
    case STEP_RELEASE: trace_unit(g, x->unit, -1); return;
    case STEP_OPEN:
        exchange_slot_free(&g->exchange, x->slot);
        bind_unit(g, x->unit, x->slot, true);
        forget_unit(g, x->unit);
        return;
    case STEP_PUBLISH:
        if (tally_goes(g)) exchange_publish_unit(&g->exchange, x->unit);
        return;
    default: reduce_unit(g, x);
    }
}

/* ---- steps ---- */
static void *crossing(const struct engine *g, int buffer) { return buffer >= 0 ? g->crossing[buffer].p : NULL; }

static void *slab(const struct buffer *pool, const int *at, int class, int i)
{
    return i >= 0 ? pool[at[class] + i].p : NULL;
}

struct running {
    struct engine *g; /* these stay the same over a step */
    bool training;
    const struct step_info *info;
    executor_look_fn *look;
    void *look_ctx;
    struct program_walk walk; /* these from a phase's first part to its last */
    struct trace_program traced;
    double began_s; /* and this of an action's */
};

/* F takes a slab of activations; B gives it back, or W where one slab is for both (itinerary.h). */
static void trace_slabs(struct engine *g, const struct engine_stage *s, const struct step *x, bool takes)
{
    if (!g->trace || !s->train) return;
    bool b = x->a.kind == ACTION_B || x->a.kind == ACTION_BW || x->a.kind == ACTION_RECOMPUTE,
         w = x->a.kind == ACTION_W || x->a.kind == ACTION_BW;
    int64_t act = x->act >= 0 ? (int64_t)s->train->bytes[HOME_ACT] : 0,
            wgrad = x->wgrad >= 0 ? (int64_t)s->train->bytes[HOME_WGRAD] : 0;
    if (takes) trace_count(g->trace, COUNTER_SLABS, (x->a.kind == ACTION_F ? act : 0) + (b ? wgrad : 0));
    else trace_count(g->trace, COUNTER_SLABS, -((s->train->joint ? w : b) ? act : 0) - (w ? wgrad : 0));
}

static struct program_args args_of(struct running *r, const struct step *x, const struct step_info *here)
{
    struct engine *g = r->g;
    const struct engine_stage *s = &g->stage[x->stage];
    return (struct program_args){
        .stream = g->stream,
        .step = here,
        .batch = g->cfg.micro,
        .shown = g->shown + (int64_t)x->a.microbatch * PAIRS_N,
        .slot = g->slot,
        .act = slab(g->act, g->act_at, s->act_class, x->act),
        .wgrad = slab(g->wgrad, g->wgrad_at, s->wgrad_class, x->wgrad),
        .scratch = g->scratch.p,
        .away = slab(g->away, g->act_at, s->act_class, x->act),
        .written = g->written,
        .fallen = g->fallback.fallen,
        .kept = g->recipes.kept_made,
        .ranks = par_run_carrier(&g->collectives),
        .copies = away_run_carrier(&g->putting_away),
        .profile = g->profile,
        .place = &g->place.program,
        .look = r->look,
        .look_ctx = r->look_ctx,
    };
}

/* Parts first to last of a phase. */
static void run_parts(struct running *r, const struct step *x, int phase, int first, int last,
                      const struct program_args *a)
{
    const struct engine_stage *s = &r->g->stage[x->stage];
    const struct program *p = r->training ? s->train : s->eval;
    const struct cut *c = r->training ? &s->cut : &s->cut_eval;
    struct program_args here = *a;
    if (first == 0) {
        trace_program_begin(&r->traced, r->g->trace, p, (enum program_phase)phase);
        r->walk.n = 0;
    }
    trace_program_part(&r->traced, &here, x->a.kind == ACTION_RECOMPUTE);
    program_run_part(p, c->at[phase][first], c->at[phase][last + 1], &r->walk, &here);
    bool over = last == c->parts.n[phase] - 1;
    if (over) program_run_end(p, &r->walk, &here);
    trace_program_part_end(&r->traced);
    if (over) trace_program_end(&r->traced);
}

static void run_stage(struct running *r, const struct step *x)
{
    struct engine *g = r->g;
    const struct engine_stage *s = &g->stage[x->stage];
    const struct cut *c = r->training ? &s->cut : &s->cut_eval;
    bind_microbatch(g, x->a.microbatch);
    g->slot[SLOT_STAGE_IN] = crossing(g, x->in);
    g->slot[SLOT_STAGE_DIN] = crossing(g, x->din);
    g->slot[SLOT_STAGE_OUT] = crossing(g, x->out);
    g->slot[SLOT_STAGE_DOUT] = crossing(g, x->dout);
    struct step_info here = *r->info;
    here.first_token += (uint64_t)x->a.microbatch * (uint64_t)(g->cfg.micro * g->cfg.seq);
    here.blank = feed_blank(g, x->a.microbatch);
    if (r->training && g->cfg.model.by_token) here.loss_scale = (float)g->scale.now;
    if (r->training && g->factor) here.loss_scale = (float)(g->factor[x->a.microbatch] * g->scale.now);
    struct program_args args = args_of(r, x, &here);
    if (x->begins) trace_slabs(g, s, x, true);
    for (int second = 0; second < 2; second++) {
        int phase, first, last;
        if (parts_range(&c->parts, x->a, second, &phase, &first, &last)) run_parts(r, x, phase, first, last, &args);
    }
    if (x->ends) trace_slabs(g, s, x, false);
}

static void run_message(struct engine *g, const struct step *x, const char *what)
{
    struct comm *c = g->cfg.axis[AXIS_PP];
    int64_t n = engine_crossing(g);
    void *p = crossing(g, x->buffer);
    g->ticket[x->buffer] = x->kind == STEP_POST ? comm_recv(c, p, n, g->cfg.dtype, x->a.peer, what)
                                                : comm_send(c, p, n, g->cfg.dtype, x->a.peer, what);
}

/* An action from its first part to its last; what it is made of lies inside. */
static void trace_step(struct running *r, const struct step *x, const char *text, double from)
{
    static const enum trace_kind kind[ACTION_N] = {[ACTION_F] = TRACE_F,
                                                   [ACTION_B] = TRACE_B,
                                                   [ACTION_BW] = TRACE_B,
                                                   [ACTION_W] = TRACE_W,
                                                   [ACTION_GATHER] = TRACE_GATHER,
                                                   [ACTION_RELEASE] = TRACE_RELEASE,
                                                   [ACTION_REDUCE] = TRACE_REDUCE,
                                                   [ACTION_UPDATE] = TRACE_OPTIMIZER,
                                                   [ACTION_PUBLISH] = TRACE_PUBLISH};
    struct trace *t = r->g->trace;
    int64_t step = (int64_t)r->info->step;
    char whole[32];
    struct action a = x->a;
    if (!t) return;
    if (x->kind == STEP_GATHER || x->kind == STEP_RELEASE || x->kind >= STEP_REDUCE)
        trace_add(t, kind[a.kind], text, step, from, clock_now_s());
    if (x->kind != STEP_RUN) return;
    if (x->begins) r->began_s = from;
    if (a.kind == ACTION_RECOMPUTE) trace_add(t, TRACE_RECOMPUTE, text, step, from, clock_now_s());
    a.part = ACTION_WHOLE;
    if (x->ends) trace_add(t, kind[a.kind], action_print(whole, a), step, r->began_s, clock_now_s());
}

static void update_unit(struct running *r, const struct step *x)
{
    struct engine *g = r->g;
    const struct unit *u = &g->store.units.unit[x->unit];
    if (!g->update) {
        optim_step_some(&g->store, g->stream, &g->cfg.optim, &g->tools, g->words.p, u->first, u->n);
        return;
    }
    optim_step_tools(&g->store, g->stream, &g->cfg.optim, &g->tools, g->words.p, u->first, u->n);
    program_run(g->update[x->unit], PHASE_F,
                &(struct program_args){.stream = g->stream,
                                       .step = r->info,
                                       .slot = g->update_slot,
                                       .place = &g->place.program});
}

static void run_step(struct running *r, const struct step *x, const char *text)
{
    switch (x->kind) {
    case STEP_RUN: run_stage(r, x); return;
    case STEP_POST:
    case STEP_SEND: run_message(r->g, x, text); return;
    case STEP_ARRIVE:
    case STEP_CLEAR: comm_wait(r->g->cfg.axis[AXIS_PP], r->g->ticket[x->buffer]); return;
    case STEP_UPDATE: update_unit(r, x); return;
    default: run_unit(r->g, x);
    }
}

/* Backward has its weight gradients, and what it computes again. */
static void count_spent(struct running *r, const struct step *x, double begun_s, double waited_s)
{
    struct engine *g = r->g;
    bool forward = x->a.kind == ACTION_F;
    if (!r->training || (x->kind != STEP_RUN && x->kind != STEP_UPDATE)) return;
    enum engine_spent on = x->kind == STEP_UPDATE ? ENGINE_UPDATE : forward ? ENGINE_FORWARD : ENGINE_BACKWARD;
    double waited = g->cfg.world ? comm_waited_s(g->cfg.world) - waited_s : 0;
    g->spent_s[on] += clock_now_s() - begun_s - waited;
}

static void run_steps(struct running *r, const struct itinerary *t, int64_t from, int64_t to)
{
    struct engine *g = r->g;
    atomic_store_explicit(&g->place.step, (int64_t)r->info->step, memory_order_relaxed);
    atomic_store_explicit(&g->place.list, t, memory_order_relaxed);
    for (int64_t i = from; i < to; i++) {
        const struct step *x = &t->step[i];
        atomic_store_explicit(&g->place.program.program, NULL, memory_order_relaxed);
        atomic_store_explicit(&g->place.row, i + 1, memory_order_relaxed);
        char text[32];
        action_print(text, x->a);
        thread_name_set("r%d s%lld %s", g->cfg.rank, (long long)r->info->step, text);
        double begun = clock_now_s(), waited = g->cfg.world ? comm_waited_s(g->cfg.world) : 0;
        run_step(r, x, text);
        count_spent(r, x, begun, waited);
        trace_step(r, x, text, begun);
    }
    atomic_store_explicit(&g->place.row, 0, memory_order_relaxed);
    thread_name_set("r%d s%lld", g->cfg.rank, (long long)r->info->step);
}

void engine_doing(const struct engine *g, struct str *out)
{
    const struct itinerary *t = atomic_load_explicit(&g->place.list, memory_order_relaxed);
    const struct program *p = atomic_load_explicit(&g->place.program.program, memory_order_relaxed);
    int64_t row = atomic_load_explicit(&g->place.row, memory_order_relaxed);
    int instr = atomic_load_explicit(&g->place.program.instr, memory_order_relaxed);
    static const char *const phase[KERNEL_N_PHASES] = {"forward", "backward of inputs", "backward of weights"};
    char text[32];
    if (!t) {
        str_puts(out, "before its first step");
        return;
    }
    str_printf(out, "step %lld", (long long)atomic_load_explicit(&g->place.step, memory_order_relaxed));
    if (row <= 0 || row > t->n) {
        str_puts(out, ", between its actions");
        return;
    }
    str_printf(out, ", row %lld of %lld (%s)", (long long)row, (long long)t->n, action_print(text, t->step[row - 1].a));
    if (!p || instr < 0 || instr >= p->begin[PHASE_N]) return;
    const struct instr *i = &p->code[instr];
    str_printf(out, ", instruction %d (%s, %s, '%s')", instr, op_row(i->op)->name, phase[i->kphase], i->what);
}

void executor_run(struct engine *g, bool training, const struct step_info *info, executor_look_fn *look, void *ctx)
{
    const struct itinerary *t = training ? &g->go : &g->go_eval;
    struct running r = {.g = g, .training = training, .info = info, .look = look, .look_ctx = ctx};
    memset(g->written, 0, (size_t)g->n_slots);
    memset(g->ticket, 0, (size_t)g->n_crossing * sizeof *g->ticket);
    run_steps(&r, t, 0, t->update);
    for (int b = 0; b < g->n_crossing; b++)
        if (g->ticket[b]) comm_wait(g->cfg.axis[AXIS_PP], g->ticket[b]);
    event_record(g->used, g->stream);
}

void executor_update(struct engine *g, int64_t step, int64_t made, double lr)
{
    struct step_info info = {.step = (uint64_t)step};
    struct running r = {.g = g, .training = true, .info = &info};
    tally_update_words(g, lr, made);
    run_steps(&r, &g->go, g->go.update, g->go.n);
}
