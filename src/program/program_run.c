/* SPDX-License-Identifier: Apache-2.0 */
/* Running: resolve the operands of each instruction and enqueue it. It decides nothing. */
#include "program/program_run.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

static void *resolve(const struct program *p, const struct operand *o, const struct program_args *a)
{
    char *base = NULL;
    if (o->place == OPERAND_SLOT) {
        base = a->slot[o->slot];
    } else if (o->place >= 0) {
        const struct place *x = &p->places[o->place];
        if (x->slot >= 0) return a->slot[x->slot] ? (char *)a->slot[x->slot] + o->offset : NULL;
        void *const homes[HOME_N] = {a->act, a->wgrad, a->scratch, a->away};
        char *home = homes[x->home];
        base = home ? home + x->offset : NULL;
    }
    return base ? base + o->offset : NULL;
}

static const struct carrier *carrier_of(const struct program_args *a, enum op op)
{
    return op_row(op)->by == BY_RANKS ? &a->ranks : &a->copies;
}

static void end(const struct program_args *a, const struct kernel_call *c, int64_t ticket)
{
    const struct carrier *by = carrier_of(a, c->op);
    by->end(by->ctx, a->stream, c, ticket);
}

static void poll(const struct program_args *a, const struct kernel_call *c, int64_t ticket)
{
    const struct carrier *by = carrier_of(a, c->op);
    if (by->poll) by->poll(by->ctx, c, ticket);
}

/* Those that must be done before instruction k, in the order in which they began. */
static void finish(struct program_walk *w, const struct program_args *a, int k)
{
    int kept = 0;
    for (int i = 0; i < w->n; i++) {
        if (w->list[i].until <= k) end(a, &w->list[i].call, w->list[i].ticket);
        else if (kept++ != i) w->list[kept - 1] = w->list[i];
    }
    w->n = kept;
    if (kept) poll(a, &w->list[0].call, w->list[0].ticket);
}

static void call(struct program_walk *w, const struct program_args *a, const struct instr *i, struct kernel_call *c)
{
    if (op_row(c->op)->by == BY_KERNEL) {
        kernel_enqueue(a->stream, c);
        return;
    }
    const struct carrier *by = carrier_of(a, c->op);
    CHECK(w->n < PROGRAM_UNDER_WAY, "%d rows under way", w->n);
    int64_t ticket = by->begin(by->ctx, a->stream, c);
    if (!ticket) return;
    CHECK(op_row(c->op)->travels, "%s is under way, and its row does not travel", op_row(c->op)->name);
    w->list[w->n].call = *c;
    w->list[w->n].ticket = ticket;
    w->list[w->n++].until = i->until;
}

/* The call with its addresses. */
static void make_call(const struct program *p, const struct instr *i, int64_t round, const struct program_args *a,
                      struct kernel_call *c)
{
    instr_call(i, c);
    c->step = a->step;
    c->what = i->what;
    c->kernel = i->kernel;
    c->round = to_int(round);
    c->refill = i->refill;
    for (int k = 0; k < i->n_in; k++) {
        c->in[k].p = resolve(p, &i->in[k], a);
        c->din[k].p = resolve(p, &i->din[k], a);
        c->acc[k].p = resolve(p, &i->acc[k], a);
    }
    for (int k = 0; k < i->n_out; k++) {
        c->out[k].p = resolve(p, &i->out[k], a);
        c->dout[k].p = resolve(p, &i->dout[k], a);
    }
    c->n_in = instr_inputs(i);
    if (i->scratch >= 0) {
        c->scratch_bytes = p->places[i->scratch].bytes;
        c->scratch = a->scratch ? (char *)a->scratch + p->places[i->scratch].offset : NULL;
    }
}

/* Rows of sequences that do not exist are zeros to whoever looks for the largest number, or rounds blocks of rows: then
 * no scale follows from them. Nobody else reads what they were, and gradients there are zeros. */
static void blank_rows(const struct instr *i, const struct kernel_call *c, const struct program_args *a)
{
    const struct view *v = &c->in[0];
    int64_t n = v->n[0];
    if (!i->rows.each || !a->step->blank || !v->p) return;
    for (int64_t r = token_rows_there(i->rows, n, a->batch, a->step->blank); r < n; r++)
        stream_zero(a->stream, (char *)v->p + to_size(r * v->stride) * dtype_bytes(v->dtype),
                    to_size(view_cols(v)) * dtype_bytes(v->dtype));
}

static void run_one(const struct program *p, const struct instr *i, int64_t round, struct program_walk *w,
                    const struct program_args *a)
{
    struct kernel_call c;
    if (a->place) {
        atomic_store_explicit(&a->place->program, p, memory_order_relaxed);
        atomic_store_explicit(&a->place->instr, (int)(i - p->code), memory_order_relaxed);
    }
    make_call(p, i, round, a, &c);
    blank_rows(i, &c, a);
    for (int k = 0; k < i->n_in; k++)
        if (instr_sums_weight(i, k)) {
            c.acc[k] = c.din[k];
            if (!a->written[i->din[k].slot]) c.acc[k].p = NULL;
            a->written[i->din[k].slot] = 1;
        }
    if (a->profile) {
        double from = clock_now_s();
        call(w, a, i, &c);
        a->profile->s[i->op][i->kphase] += clock_now_s() - from;
        if (round == 0) a->profile->flops[i->op][i->kphase] += instr_flops(i, a); /* of all rounds */
        a->profile->calls[i->op][i->kphase]++;
    } else {
        call(w, a, i, &c);
    }
    if (a->look && op_row(i->op)->by != BY_COPIES) a->look(a->look_ctx, p, &c, i);
}

/* ---- rounds ---- */
struct rounds {
    int loop, first; /* where it begins */
    int64_t at, n;   /* which; how many there are, as far as is known */
};

static bool tells_rounds(const struct instr *i)
{
    return i->loop && i->op == OP_DISPATCH && i->kphase == KERNEL_FWD && at_dispatch(&i->at)->waves;
}

static int64_t ask(const struct program *p, const struct instr *i, const struct program_args *a)
{
    struct kernel_call c;
    make_call(p, i, 0, a, &c);
    return a->ranks.rounds(a->ranks.ctx, a->stream, &c);
}

/* The instruction to go on with after k: the next one, or the loop's first. */
static int next(const struct program *p, int k, int end, struct rounds *r, struct program_walk *w,
                const struct program_args *a)
{
    if (!r->loop || (k + 1 < p->begin[PHASE_N] && p->code[k + 1].loop == r->loop)) {
        CHECK(!r->loop || k + 1 < end, "instruction %d is in the middle of a round, and the part ends", k);
        return k + 1;
    }
    if (w->n) finish(w, a, k + 1);
    return ++r->at < r->n ? r->first : k + 1;
}

static bool is_left_out(const struct instr *i, const struct program_args *a)
{
    if (i->kept && a->kept && a->kept[i->kept - 1]) return true;
    if (i->when == ALWAYS) return false;
    bool fallen = a->fallen && i->layer >= 0 && a->fallen[i->layer];
    return fallen != (i->when == WHEN_FALLEN);
}

void program_run_part(const struct program *p, int begin, int end, struct program_walk *w, const struct program_args *a)
{
    struct rounds r = {0};
    for (int k = begin; k < end;) {
        const struct instr *i = &p->code[k];
        if (i->loop != r.loop) r = (struct rounds){.loop = i->loop, .first = k, .n = 1};
        bool tells = r.at == 0 && tells_rounds(i);
        if (tells && i->refill && w->n) finish(w, a, k); /* its numbers may be under way */
        if (tells && i->refill) r.n = ask(p, i, a);
        if (!(i->once && r.at > 0) && !(i->refill && r.n == 1) && !is_left_out(i, a)) {
            if (w->n) finish(w, a, k);
            if (a->before) a->before(a->around_ctx, k);
            run_one(p, i, r.at, w, a);
            if (i->kept && i->op != OP_AMAX && i->op != OP_AMAX_PARTS && i->op != OP_AGREE && a->kept)
                a->kept[i->kept - 1] = 1;
            if (a->after) a->after(a->around_ctx, k);
        }
        if (tells && !i->refill) r.n = ask(p, i, a);
        k = next(p, k, end, &r, w, a);
    }
}

void program_run_end(const struct program *p, struct program_walk *w, const struct program_args *a)
{
    if (w->n) finish(w, a, p->begin[PHASE_N]);
}

void program_run(const struct program *p, enum program_phase phase, const struct program_args *a)
{
    struct program_walk w;
    w.n = 0;
    program_run_part(p, p->begin[phase], p->begin[phase + 1], &w, a);
    program_run_end(p, &w, a);
}
