/* SPDX-License-Identifier: Apache-2.0 */
/* First and last use of each unit per phase, from the slots that instructions name; cuts are marked per instruction and
 * then counted through. Cost: O(instructions + units x phases). */
#include "engine/cut.h"

#include <string.h>

#include "base/mem.h"
#include "nn/model.h"

struct span {
    int first, last; /* instructions; -1: none */
};

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

static struct span *spans(const struct program *p, const struct units *u, bool grad, enum program_phase ph)
{
    struct span *s = xmalloc(sizeof *s * ((size_t)u->n + 1));
    for (int v = 0; v < u->n; v++) s[v] = (struct span){-1, -1};
    for (int i = p->begin[ph], begin, end; i < p->begin[ph + 1]; i++) {
        program_loop(p, i, &begin, &end); /* what a round uses is used from the first to the last */
        for (int k = 0; k < p->code[i].n_in; k++) {
            touch(s, grad ? &p->code[i].din[k] : &p->code[i].in[k], u, grad, begin);
            touch(s, grad ? &p->code[i].din[k] : &p->code[i].in[k], u, grad, end - 1);
        }
    }
    return s;
}

/* ---- where ---- */
static void mark(bool *begins, const struct span *s, int n, bool first, bool last)
{
    for (int v = 0; v < n; v++) {
        if (s[v].first < 0) continue;
        if (first) begins[s[v].first] = true;
        if (last) begins[s[v].last + 1] = true;
    }
}

/* at[ph] from the instructions at which a part begins. A phase that computes nothing is one part, but for a W that is
 * inside B. */
static void number(struct cut *c, const struct program *p, enum program_phase ph, bool split_w, const bool *begins)
{
    int n = 0, lo = p->begin[ph], hi = p->begin[ph + 1];
    int *at = xmalloc(sizeof *at * ((size_t)(hi - lo) + 2));
    for (int i = lo; i < hi; i++)
        if (i == lo || begins[i]) at[n++] = i;
    if (!n && (ph != PHASE_W || split_w)) at[n++] = lo;
    at[n] = hi;
    c->at[ph] = at;
    c->parts.n[ph] = n;
}

static int part_at(const struct cut *c, enum program_phase ph, int instr)
{
    int lo = 0, hi = c->parts.n[ph] - 1;
    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;
        if (c->at[ph][mid] <= instr) lo = mid;
        else hi = mid - 1;
    }
    return lo;
}

/* ---- what ---- */
static void push_uses(struct cut *c, enum program_phase ph, const struct span *s, int n, bool writes)
{
    struct stage_parts *g = &c->parts;
    GROW(g->use, g->n_use, g->room_use, n);
    for (int v = 0; v < n; v++)
        if (s[v].first >= 0)
            g->use[g->n_use++] = (struct part_use){.phase = (int)ph,
                                                   .unit = v,
                                                   .writes = writes,
                                                   .first = part_at(c, ph, s[v].first),
                                                   .last = part_at(c, ph, s[v].last)};
}

/* A unit that is whole where others are gathered. */
static bool stays(const struct units *u, const struct part_rule *r, int unit)
{
    return r->some && !u->unit[unit].packed;
}

static void cut_phase(struct cut *c, const struct program *p, bool split_w, const struct units *u,
                      const struct part_rule *r, enum program_phase ph)
{
    bool *begins = xcalloc((size_t)p->begin[PHASE_N] + 2, sizeof *begins);
    struct span *reads = spans(p, u, false, ph), *writes = spans(p, u, true, ph);
    for (int v = 0; v < u->n; v++) {
        bool gathers = r->gather && !stays(u, r, v);
        if (gathers || (r->arrive && ph == PHASE_F)) mark(begins, &reads[v], 1, true, gathers);
    }
    if (r->reduce) mark(begins, writes, u->n, r->temporary, true);
    for (int i = p->begin[ph] + 1; i < p->begin[ph + 1]; i++) {
        bool inside = p->code[i].loop && p->code[i].loop == p->code[i - 1].loop;
        begins[i] |= !inside && p->code[i].again != p->code[i - 1].again;
    }
    number(c, p, ph, split_w, begins);
    push_uses(c, ph, reads, u->n, false);
    for (int k = 0; k < c->parts.n_use; k++) c->parts.use[k].stays = stays(u, r, c->parts.use[k].unit);
    push_uses(c, ph, writes, u->n, true);
    xfree(begins);
    xfree(reads);
    xfree(writes);
}

/* ---- what a window hands on ---- */

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

/* The last phase in which a unit's gradient is written; -1: none. */
static int last_phase(const struct cut *c, int unit)
{
    int last = -1;
    for (int k = 0; k < c->parts.n_use; k++) {
        const struct part_use *x = &c->parts.use[k];
        if (x->writes && x->unit == unit && x->phase > last) last = x->phase;
    }
    return last;
}

static void hand_on(struct cut *c, const struct program *p, const struct units *u, bool by_phase)
{
    bool *seen = xcalloc((size_t)u->table->n + 1, sizeof *seen);
    written(p, u->table, p->begin[0], p->begin[PHASE_N], seen);
    for (int ph = 0; ph < PHASE_N && by_phase; ph++) {
        c->leaves[ph] = xcalloc((size_t)u->table->n + 1, sizeof *c->leaves[ph]);
        written(p, u->table, p->begin[ph], p->begin[ph + 1], c->leaves[ph]);
    }
    for (int v = 0; v < u->n; v++) {
        int phase = last_phase(c, v);
        for (int i = u->unit[v].first; phase >= 0 && i < u->unit[v].first + u->unit[v].n; i++) {
            if (seen[i]) continue;
            GROW(c->unwritten, c->n_unwritten, c->room, 1);
            c->unwritten[c->n_unwritten++] = (struct unwritten){phase, v, i};
            if (by_phase) c->leaves[phase][i] = true;
        }
    }
    xfree(seen);
}

void cut_init(struct cut *c, int stage, const struct program *p, bool split_w, const struct units *u,
              const struct part_rule *r)
{
    *c = (struct cut){.parts = {.stage = stage}};
    for (int ph = 0; ph < PHASE_N; ph++) cut_phase(c, p, split_w, u, r, (enum program_phase)ph);
    int n = c->parts.n[PHASE_B];
    c->parts.again = xcalloc((size_t)n + 1, sizeof *c->parts.again);
    for (int k = 0; k < n; k++)
        c->parts.again[k] = c->at[PHASE_B][k] < p->begin[PHASE_B + 1] && p->code[c->at[PHASE_B][k]].again;
    if (r->temporary) hand_on(c, p, u, r->by_phase);
}

void cut_fini(struct cut *c)
{
    for (int ph = 0; ph < PHASE_N; ph++) {
        xfree(c->at[ph]);
        xfree(c->leaves[ph]);
    }
    xfree(c->parts.again);
    xfree(c->parts.use);
    xfree(c->unwritten);
    *c = (struct cut){0};
}

void cut_rank(struct rank_parts *out, const struct cut *const *cuts, int n, const struct units *u,
              const struct part_rule *r)
{
    const char **name = xcalloc((size_t)u->n + 1, sizeof *name);
    *out = (struct rank_parts){.n_stages = n, .n_units = u->n, .unit_name = name, .rule = *r};
    out->stage = xcalloc((size_t)n + 1, sizeof *out->stage);
    for (int i = 0; i < n; i++) out->stage[i] = cuts[i]->parts;
    for (int i = 0; i < u->n; i++) name[i] = u->table->p[u->unit[i].first].name;
    out->unit_stage = xmalloc(((size_t)u->n + 1) * sizeof *out->unit_stage);
    for (int i = 0; i < u->n; i++)
        out->unit_stage[i] = u->unit[i].numel && !u->unit[i].frozen && n ? cuts[0]->parts.stage : -1;
    for (int i = n - 1; i >= 0; i--)
        for (int k = 0; k < cuts[i]->parts.n_use; k++) {
            int unit = cuts[i]->parts.use[k].unit;
            if (u->unit[unit].numel && !u->unit[unit].frozen) out->unit_stage[unit] = cuts[i]->parts.stage;
        }
}
