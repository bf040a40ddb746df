/* SPDX-License-Identifier: Apache-2.0 */
/* One step after another. What arrives and leaves goes by ticket: the rank waits where the itinerary says ARRIVE or
 * CLEAR, and once at the end for messages that nobody had taken yet. The thread's name carries step and action: a CHECK
 * that fires, gdb and top all show it. */
#include "run/executor.h"

#include "run/tally.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* A microbatch is a view of the batch: no copy. */
static void bind_microbatch(struct engine *g, int microbatch)
{
    size_t at = 0;
    g->slot[SLOT_STAT] = tally_at(g, microbatch);
    static const int slots[] = {SLOT_TOKENS, SLOT_TARGETS, SLOT_POSITIONS, SLOT_DOCS};
    for (int f = 0; f < 4; f++) {
        bool docs = slots[f] == SLOT_DOCS; /* of whole sequences */
        size_t one = to_size(g->cfg.micro * (docs ? g->cfg.seq : engine_seq_here(g))) * sizeof(int32_t);
        bool there = g->data.p && g->data.bytes > at;
        g->slot[slots[f]] = there ? (char *)g->data.p + at + (size_t)microbatch * one : NULL;
        at += one * to_size(g->cfg.n_microbatches);
    }
}

/* ---- flow: units come before their instructions and leave after them ---- */
struct stream_of_units {
    struct engine *g;
    const struct flow *f;
    int next;        /* event */
    bool last;       /* this phase of this stage runs for the last time in the step */
    int microbatch;
};

static void bind_unit(struct engine *g, int unit, int slot, bool grad)
{
    const struct unit *u = &g->store.units.unit[unit];
    for (int i = u->first; i < u->first + u->n; i++)
        if (grad) g->slot[slot_grad(i)] = exchange_grad_ptr(&g->exchange, i, slot);
        else g->slot[slot_param(i)] = exchange_param_ptr(&g->exchange, i, slot);
}

static void open_unit(struct engine *g, int unit, int slot)
{
    const struct unit *u = &g->store.units.unit[unit];
    exchange_slot_free(&g->exchange, slot);
    bind_unit(g, unit, slot, true);
    for (int i = u->first; i < u->first + u->n; i++) g->written[slot_grad(i)] = 0;
}

static void trace_unit(struct engine *g, int unit, int sign)
{
    if (g->trace) trace_count(g->trace, COUNTER_GATHERED, sign * g->store.units.unit[unit].numel * (int64_t)dtype_bytes(g->store.dtype));
}

static void before_instr(void *ctx, int instr)
{
    struct stream_of_units *x = ctx;
    for (; x->next < x->f->n; x->next++) {
        const struct flow_event *v = &x->f->event[x->next];
        if (v->instr != instr || v->kind >= FLOW_RELEASE) return;
        switch (v->kind) {
        case FLOW_GATHER:
            trace_unit(x->g, v->unit, 1);
            exchange_gather(&x->g->exchange, v->unit, v->slot);
            break;
        case FLOW_NEED:
            exchange_gather_wait(&x->g->exchange, v->unit);
            if (v->slot >= 0) bind_unit(x->g, v->unit, v->slot, false);
            break;
        default:
            open_unit(x->g, v->unit, v->slot);
        }
    }
}

static void zero_gradient(struct engine *g, int param, int slot)
{
    void *p = exchange_grad_ptr(&g->exchange, param, slot);
    if (p) stream_zero(g->stream, p, to_size(g->params.p[param].held) * 4);
}

/* exact_order: a run of microbatches is in the gradient buffer, the next one starts anew. */
static void run_end(const struct stream_of_units *x, int unit)
{
    struct exchange *e = &x->g->exchange;
    if (!e->exact || (x->microbatch + 1) % e->tree.run) return;
    int64_t run = x->microbatch / e->tree.run;
    const struct unit *u = &x->g->store.units.unit[unit];
    exact_run_end(&e->tree, unit, run);
    for (int i = u->first; run + 1 < e->tree.n_runs && i < u->first + u->n; i++) x->g->written[slot_grad(i)] = 0;
}

static void after_instr(void *ctx, int instr)
{
    struct stream_of_units *x = ctx;
    struct engine *g = x->g;
    for (; x->next < x->f->n && x->f->event[x->next].instr == instr; x->next++) {
        const struct flow_event *v = &x->f->event[x->next];
        if (v->kind == FLOW_RELEASE && v->slot >= 0) trace_unit(g, v->unit, -1);
        if (v->kind == FLOW_ZERO) zero_gradient(g, v->param, v->slot);
        if (v->kind != FLOW_REDUCE) continue;
        bool last = x->last && --g->unit_left[v->unit] == 0;
        if (v->slot < 0) run_end(x, v->unit);
        if (last || v->slot >= 0) exchange_reduce(&g->exchange, v->unit, v->slot, last);
    }
}

/* How often each unit is completed for the last time: by every stage here, in every phase that ends one. */
static void count_units(struct engine *g)
{
    for (int u = 0; u < g->store.units.n; u++) g->unit_left[u] = 0;
    for (int i = 0; i < g->n_stages; i++)
        for (int k = 0; k < g->stage[i].flow.n; k++) {
            const struct flow_event *v = &g->stage[i].flow.event[k];
            if (v->kind == FLOW_REDUCE) g->unit_left[v->unit]++;
        }
}

static void run_phase(struct stream_of_units *x, const struct program *p, enum tape_phase phase, const struct step *s,
                      struct program_args *a)
{
    x->next = 0; /* phases may come in any order of microbatches: find this one's first event */
    x->last = s->last[phase];
    while (x->next < x->f->n && x->f->event[x->next].instr < p->begin[phase]) x->next++;
    struct trace_program traced;
    struct program_args here = *a;
    trace_program_begin(&traced, x->g->trace, p, phase, &here);
    program_run(p, phase, &here);
    trace_program_end(&traced);
}

/* ---- steps ---- */
static void *crossing(const struct engine *g, int buffer)
{
    return buffer >= 0 ? g->crossing[buffer].p : NULL;
}

static void *slab(const struct buffer *pool, const int *at, int class, int i)
{
    return i >= 0 ? pool[at[class] + i].p : NULL;
}

struct running { /* what stays the same over a step */
    struct engine *g;
    bool training, flows;
    const struct step_info *info;
    executor_look_fn *look;
    void *look_ctx;
};

/* F takes a slab of activations; B gives it back, or W where one slab is for both (itinerary.h). */
static void trace_slabs(struct engine *g, const struct engine_stage *s, const struct step *x, bool takes)
{
    if (!g->trace || !s->train) return;
    bool b = x->a.kind == ACTION_B || x->a.kind == ACTION_BW, w = x->a.kind == ACTION_W || x->a.kind == ACTION_BW;
    int64_t act = x->act >= 0 ? (int64_t)s->train->bytes[HOME_ACT] : 0, wgrad = x->wgrad >= 0 ? (int64_t)s->train->bytes[HOME_WGRAD] : 0;
    if (takes) trace_count(g->trace, COUNTER_SLABS, (x->a.kind == ACTION_F ? act : 0) + (b ? wgrad : 0));
    else trace_count(g->trace, COUNTER_SLABS, -((s->train->joint ? w : b) ? act : 0) - (w ? wgrad : 0));
}

static void run_stage(const struct running *r, const struct step *x)
{
    struct engine *g = r->g;
    const struct engine_stage *s = &g->stage[x->stage];
    const struct program *p = r->training ? s->train : s->eval;
    struct stream_of_units units = {.g = g, .f = r->training ? &s->flow : &s->flow_eval, .microbatch = x->a.microbatch};
    bind_microbatch(g, x->a.microbatch);
    g->slot[SLOT_STAGE_IN] = crossing(g, x->in);
    g->slot[SLOT_STAGE_DIN] = crossing(g, x->din);
    g->slot[SLOT_STAGE_OUT] = crossing(g, x->out);
    g->slot[SLOT_STAGE_DOUT] = crossing(g, x->dout);
    struct step_info here = *r->info;
    here.first_token += (uint64_t)x->a.microbatch * (uint64_t)(g->cfg.micro * g->cfg.seq);
    struct program_args args = {
        .stream = g->stream,
        .step = &here,
        .slot = g->slot,
        .act = slab(g->act, g->act_at, s->act_class, x->act),
        .wgrad = slab(g->wgrad, g->wgrad_at, s->wgrad_class, x->wgrad),
        .scratch = g->scratch.p,
        .written = g->written,
        .collective = par_run_collective,
        .collective_end = par_run_end,
        .collective_poll = par_run_poll,
        .collective_ctx = &g->collectives,
        .profile = g->profile,
        .before = r->flows ? before_instr : NULL,
        .after = r->flows ? after_instr : NULL,
        .flow_ctx = &units,
        .look = r->look,
        .look_ctx = r->look_ctx,
    };
    trace_slabs(g, s, x, true);
    if (x->a.kind == ACTION_F) run_phase(&units, p, PHASE_F, x, &args);
    if (x->a.kind == ACTION_B || x->a.kind == ACTION_BW) run_phase(&units, p, PHASE_B, x, &args);
    if (x->a.kind == ACTION_W || x->a.kind == ACTION_BW) run_phase(&units, p, PHASE_W, x, &args);
    trace_slabs(g, s, x, false);
}

static void run_message(struct engine *g, const struct step *x, const char *what)
{
    struct comm *c = g->cfg.axis[AXIS_PP];
    int64_t n = engine_crossing(g);
    void *p = crossing(g, x->buffer);
    g->ticket[x->buffer] = x->kind == STEP_POST ? comm_recv(c, p, n, g->cfg.dtype, x->a.peer, what)
                                                : comm_send(c, p, n, g->cfg.dtype, x->a.peer, what);
}

static void trace_step(struct trace *t, const struct step *x, const char *text, const struct step_info *info, double from)
{
    static const enum trace_kind kind[ACTION_N] = {[ACTION_F] = TRACE_F, [ACTION_B] = TRACE_B, [ACTION_BW] = TRACE_B,
                                                   [ACTION_W] = TRACE_W};
    trace_add(t, kind[x->a.kind], text, (int64_t)info->step, from, clock_now_s());
}

void executor_run(struct engine *g, bool training, const struct step_info *info, executor_look_fn *look, void *ctx)
{
    const struct itinerary *t = training ? &g->go : &g->go_eval;
    struct running r = {g, training, exchange_is_active(&g->exchange), info, look, ctx};
    count_units(g);
    memset(g->written, 0, (size_t)g->n_slots);
    memset(g->ticket, 0, (size_t)g->n_crossing * sizeof *g->ticket);
    for (int64_t i = 0; i < t->n; i++) {
        const struct step *x = &t->step[i];
        char text[32];
        action_print(text, x->a);
        thread_name_set("r%d s%lld %s", g->cfg.rank, (long long)info->step, text);
        double from = g->trace ? clock_now_s() : 0;
        switch (x->kind) {
        case STEP_RUN:
            run_stage(&r, x);
            break;
        case STEP_POST:
        case STEP_SEND:
            run_message(g, x, text);
            break;
        default:
            comm_wait(g->cfg.axis[AXIS_PP], g->ticket[x->buffer]);
        }
        if (g->trace && x->kind == STEP_RUN) trace_step(g->trace, x, text, info, from);
    }
    for (int b = 0; b < g->n_crossing; b++)
        if (g->ticket[b]) comm_wait(g->cfg.axis[AXIS_PP], g->ticket[b]);
    thread_name_set("r%d s%lld", g->cfg.rank, (long long)info->step);
}
