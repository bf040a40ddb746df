/* SPDX-License-Identifier: Apache-2.0 */
/* Running: resolve the operands of each instruction and enqueue it. It decides nothing. */
#include "tape/program.h"

#include <string.h>

#include "base/clock.h"
#include "tape/lower.h"

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

const char *instr_what(const struct program *p, const struct instr *i)
{
    bool copy = op_row(i->op)->by == BY_COPIES;
    return tape_tensor(p->tape, copy ? p->places[i->out[0].place].of : p->tape->nodes[i->node].out[0])->name;
}

static void run_one(const struct program *p, const struct instr *i, struct program_walk *w,
                    const struct program_args *a)
{
    struct kernel_call c;
    instr_call(i, &c);
    c.step = a->step;
    c.what = instr_what(p, i);
    c.kernel = i->kernel;
    for (int k = 0; k < i->n_in; k++) {
        c.in[k].p = resolve(p, &i->in[k], a);
        c.din[k].p = resolve(p, &i->din[k], a);
        c.acc[k].p = resolve(p, &i->acc[k], a);
        if (i->kphase == KERNEL_BWD_W && i->din[k].place == OPERAND_SLOT) {
            c.acc[k] = c.din[k];
            if (!a->written[i->din[k].slot]) c.acc[k].p = NULL;
            a->written[i->din[k].slot] = 1;
        }
    }
    for (int k = 0; k < i->n_out; k++) {
        c.out[k].p = resolve(p, &i->out[k], a);
        c.dout[k].p = resolve(p, &i->dout[k], a);
    }
    c.n_in = instr_inputs(i);
    if (i->scratch >= 0) {
        c.scratch_bytes = p->places[i->scratch].bytes;
        c.scratch = a->scratch ? (char *)a->scratch + p->places[i->scratch].offset : NULL;
    }
    if (a->profile) {
        double from = clock_now_s();
        call(w, a, i, &c);
        a->profile->s[i->op][i->kphase] += clock_now_s() - from;
        a->profile->flops[i->op][i->kphase] += i->flops;
        a->profile->calls[i->op][i->kphase]++;
    } else {
        call(w, a, i, &c);
    }
    if (a->look && op_row(i->op)->by != BY_COPIES) a->look(a->look_ctx, p, &c, i);
}

void program_run_part(const struct program *p, int begin, int end, struct program_walk *w, const struct program_args *a)
{
    for (int k = begin; k < end; k++) {
        if (w->n) finish(w, a, k);
        if (a->before) a->before(a->around_ctx, k);
        run_one(p, &p->code[k], w, a);
        if (a->after) a->after(a->around_ctx, k);
    }
}

void program_run_end(const struct program *p, struct program_walk *w, const struct program_args *a)
{
    if (w->n) finish(w, a, p->begin[PHASE_N]);
}

void program_run(const struct program *p, enum tape_phase phase, const struct program_args *a)
{
    struct program_walk w;
    w.n = 0;
    program_run_part(p, p->begin[phase], p->begin[phase + 1], &w, a);
    program_run_end(p, &w, a);
}
