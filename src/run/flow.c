/* SPDX-License-Identifier: Apache-2.0 */
/* First and last use of each unit per phase, from the slots that instructions name; slots by colouring intervals: units in
 * order of their beginning take the lowest slot that is free, which is optimal for intervals. */
#include "run/flow.h"

#include <stdlib.h>
#include <string.h>

#include "nn/model.h"

struct span {
    int unit, first, last, from; /* from: where the slot is taken */
    int until;                   /* the last instruction at which nobody else may take it */
    int slot;
};

static void push(struct flow *f, int instr, enum flow_kind kind, int unit, int slot)
{
    if (f->n == f->room) {
        f->room = f->room ? 2 * f->room : 64;
        f->event = xrealloc(f->event, sizeof *f->event * (size_t)f->room);
    }
    f->event[f->n++] = (struct flow_event){instr, kind, unit, slot, -1};
}

/* The parameter behind a slot: values are even, gradients odd; -1 for other slots. */
static int param_of_slot(int slot, int n_params, bool grad)
{
    int i = slot - SLOT_PARAM;
    return i >= 0 && i < 2 * n_params && (i % 2 == 1) == grad ? i / 2 : -1;
}

static void touch(struct span *s, const struct operand *o, const struct units *u, bool grad, int at)
{
    if (o->place != OPERAND_SLOT) return;
    int p = param_of_slot(o->slot, u->table->n, grad);
    if (p < 0) return;
    struct span *x = &s[u->of_param[p]];
    if (x->first < 0) x->first = at;
    x->last = at;
}

static void uses(const struct program *p, const struct units *u, bool grad, int begin, int end, struct span *s)
{
    for (int v = 0; v < u->n; v++) s[v] = (struct span){.unit = v, .first = -1, .last = -1};
    for (int i = begin; i < end; i++)
        for (int k = 0; k < p->code[i].n_in; k++) touch(s, grad ? &p->code[i].din[k] : &p->code[i].in[k], u, grad, i);
}

static int by_from(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : x->first != y->first ? (x->first < y->first ? -1 : 1) : 0;
}

static int by_first(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Gives slots to spans in order of `from`; returns how many are needed. Cost: O(spans x slots), and slots are few. */
static int colour(struct span *s, int n)
{
    int used = 0, *until = xcalloc((size_t)n + 1, sizeof *until); /* by slot: of the last span that has it */
    for (int i = 0; i < n; i++) {
        int slot = 0;
        while (slot < used && until[slot] >= s[i].from) slot++;
        if (slot == used) until[used++] = s[i].until;
        if (until[slot] < s[i].until) until[slot] = s[i].until;
        s[i].slot = slot;
    }
    xfree(until);
    return used;
}

static int used_spans(struct span *s, int n)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (s[i].first >= 0) s[k++] = s[i];
    qsort(s, (size_t)k, sizeof *s, by_first);
    return k;
}

static void gather_events(struct flow *f, const struct program *p, const struct units *u, enum tape_phase ph)
{
    struct span *s = xcalloc((size_t)u->n + 1, sizeof *s);
    uses(p, u, false, p->begin[ph], p->begin[ph + 1], s);
    int n = used_spans(s, u->n);
    for (int i = 0; i < n; i++) {
        s[i].from = i ? s[i - 1].first : s[i].first; /* one unit ahead */
        s[i].until = s[i].last;
    }
    qsort(s, (size_t)n, sizeof *s, by_from);
    int slots = colour(s, n);
    if (slots > f->n_param_slots) f->n_param_slots = slots;
    for (int i = 0; i < n; i++) {
        push(f, s[i].from, FLOW_GATHER, s[i].unit, s[i].slot);
        push(f, s[i].first, FLOW_NEED, s[i].unit, s[i].slot);
        push(f, s[i].last, FLOW_RELEASE, s[i].unit, s[i].slot);
    }
    xfree(s);
}

/* Parameters whose gradient the instructions write; several that form one matrix are written together. */
static void written(const struct program *p, const struct param_table *t, int begin, int end, bool *out)
{
    for (int i = begin; i < end; i++)
        for (int k = 0; k < p->code[i].n_in; k++) {
            const struct operand *o = &p->code[i].din[k];
            int param = o->place == OPERAND_SLOT ? param_of_slot(o->slot, t->n, true) : -1;
            int64_t left = param < 0 ? 0 : view_rows(&o->view) * view_cols(&o->view);
            for (; left > 0 && param < t->n; left -= t->p[param++].held) out[param] = true;
        }
}

/* Forward meets every unit first. */
static void arrive_events(struct flow *f, const struct program *p, const struct units *u)
{
    struct span *s = xcalloc((size_t)u->n + 1, sizeof *s);
    uses(p, u, false, p->begin[PHASE_F], p->begin[PHASE_F + 1], s);
    int n = used_spans(s, u->n);
    for (int i = 0; i < n; i++) push(f, s[i].first, FLOW_NEED, s[i].unit, -1);
    xfree(s);
}

/* What is sent must be whole: the rest of the unit's temporary is zeros. */
static void zero_events(struct flow *f, const struct units *u, const struct span *s, const bool *seen)
{
    for (int i = u->unit[s->unit].first; i < u->unit[s->unit].first + u->unit[s->unit].n; i++) {
        if (seen[i]) continue;
        push(f, s->last, FLOW_ZERO, s->unit, s->slot);
        f->event[f->n - 1].param = i;
    }
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* A temporary is read by its reduction until the next unit is complete: the one after it works in another slot meanwhile. */
static void reduced_until(struct span *s, int n)
{
    int *end = xcalloc((size_t)n + 1, sizeof *end);
    for (int i = 0; i < n; i++) end[i] = s[i].last;
    qsort(end, (size_t)n, sizeof *end, by_number);
    for (int i = 0; i < n; i++) {
        int lo = 0, hi = n; /* the first end after this one's */
        while (lo < hi) {
            int mid = lo + (hi - lo) / 2;
            if (end[mid] > s[i].last) hi = mid;
            else lo = mid + 1;
        }
        s[i].until = lo < n ? end[lo] : s[i].last;
    }
    xfree(end);
}

/* Gradients are written from F (the loss segment) to W: one interval over all phases, or one in each. */
static void grad_events(struct flow *f, const struct program *p, const struct units *u, bool temporary, int begin, int end)
{
    struct span *s = xcalloc((size_t)u->n + 1, sizeof *s);
    bool *seen = xcalloc((size_t)u->table->n + 1, sizeof *seen);
    uses(p, u, true, begin, end, s);
    if (temporary) written(p, u->table, begin, end, seen);
    int n = used_spans(s, u->n);
    for (int i = 0; i < n; i++) s[i].from = s[i].first;
    reduced_until(s, n);
    int slots = colour(s, n);
    if (temporary && slots > f->n_grad_slots) f->n_grad_slots = slots;
    for (int i = 0; i < n; i++) {
        if (temporary) push(f, s[i].first, FLOW_OPEN, s[i].unit, s[i].slot);
        if (temporary) zero_events(f, u, &s[i], seen);
        push(f, s[i].last, FLOW_REDUCE, s[i].unit, temporary ? s[i].slot : -1);
    }
    xfree(s);
    xfree(seen);
}

static int by_place(const void *a, const void *b)
{
    const struct flow_event *x = a, *y = b;
    if (x->instr != y->instr) return x->instr < y->instr ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->unit != y->unit ? (x->unit < y->unit ? -1 : 1) : x->param < y->param ? -1 : x->param > y->param;
}

void flow_init(struct flow *f, const struct program *p, const struct units *u, struct flow_options o)
{
    *f = (struct flow){0};
    for (int ph = 0; o.gather && ph < PHASE_N; ph++) gather_events(f, p, u, (enum tape_phase)ph);
    if (o.arrive) arrive_events(f, p, u);
    if (!o.temporary || !o.by_phase) grad_events(f, p, u, o.temporary, 0, p->begin[PHASE_N]);
    for (int ph = 0; o.temporary && o.by_phase && ph < PHASE_N; ph++)
        grad_events(f, p, u, true, p->begin[ph], p->begin[ph + 1]);
    if (f->n) qsort(f->event, (size_t)f->n, sizeof *f->event, by_place);
}

void flow_fini(struct flow *f)
{
    xfree(f->event);
    *f = (struct flow){0};
}

const char *flow_kind_name(enum flow_kind k)
{
    static const char *const names[] = {"gather", "need", "open", "release", "zero", "reduce"};
    return names[k];
}

void flow_print(const struct flow *f, const struct units *u, struct str *out)
{
    for (int i = 0; i < f->n; i++) {
        const struct flow_event *v = &f->event[i];
        str_printf(out, "%5d %-8s unit %-3d (%s ...)", v->instr, flow_kind_name(v->kind), v->unit,
                   u->table->p[u->unit[v->unit].first].name);
        if (v->slot >= 0) str_printf(out, " slot %d", v->slot);
        str_putc(out, '\n');
    }
}
