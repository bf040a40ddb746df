/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of one rank's whole list: one walk that keeps, per unit, whether it is gathered and what is owed of its
 * gradient, and per phase how many parts were computed. What ranks owe each other (messages, order between stages) is
 * schedule_check's. Cost: O(parts and what they use). */
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "schedule/part_uses.h"

struct unit_state {
    int64_t gathered, released; /* index of the action that did it; -1: none, or undone */
    bool read;                  /* since it was gathered */
    int64_t owed;               /* window of contributions that were not reduced yet; -1: none */
    int64_t last;               /* the action that contributed last */
    int64_t reduced, window;    /* index of the last REDUCE, and of which window; -1: none */
    int64_t updated, published; /* index of its UPDATE, of its PUBLISH; -1: none */
};
struct check {
    const struct action_list *l;
    const struct schedule *s;
    const struct rank_parts *p;
    int rank;
    int64_t i; /* the action at hand */
    struct part_uses uses;
    struct unit_state *unit;
    int *done;      /* [stages here][microbatches][phases] parts computed */
    int64_t open;   /* index into done of a phase that was begun and is not over; -1: none */
    int64_t update; /* index of the first UPDATE; -1: none */
    struct err *e;
};

__attribute__((format(printf, 2, 3))) static int fail(const struct check *c, const char *fmt, ...)
{
    char name[32], why[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (c->i >= c->l->n) return err_set(c->e, ERR_REQUEST, "rank %d, at the end: %s", c->rank, why);
    return err_set(c->e, ERR_REQUEST, "rank %d, action %lld (%s): %s", c->rank, (long long)c->i,
                   action_print(name, c->l->a[c->i]), why);
}

/* "action 7 (0REDUCE.3)" */
struct said {
    char text[64];
};
static struct said action_said(const struct check *c, int64_t i)
{
    struct said s;
    char name[32];
    snprintf(s.text, sizeof s.text, "action %lld (%s)", (long long)i, action_print(name, c->l->a[i]));
    return s;
}

struct named {
    char text[96];
};
static struct named unit_said(const struct check *c, int unit)
{
    struct named n;
    parts_print_unit(c->p, unit, n.text);
    return n;
}

static int64_t key(const struct check *c, const struct stage_parts *g, int microbatch, int phase)
{
    return ((g - c->p->stage) * c->s->n_microbatches + microbatch) * PART_PHASES + phase;
}

/* ---- what computes ---- */
static int check_read(struct check *c, const struct part_use *x)
{
    struct unit_state *u = &c->unit[x->unit];
    u->read = true;
    if (!c->p->rule.gather || x->stays || u->gathered >= 0) return OK;
    if (u->released >= 0)
        return fail(c, "it reads %s, which %s gave back: RELEASE comes too early", unit_said(c, x->unit).text,
                    action_said(c, u->released).text);
    return fail(c, "it reads %s, which is not whole here: GATHER comes first", unit_said(c, x->unit).text);
}

static int check_write(struct check *c, const struct part_use *x, struct action a)
{
    struct unit_state *u = &c->unit[x->unit];
    int64_t window = parts_window(c->p, a, x->phase);
    if (!c->p->rule.reduce) return OK;
    if (u->reduced >= 0 && u->window == window)
        return fail(c, "it adds to the gradient of %s, which %s reduced: REDUCE comes too early, this would be lost",
                    unit_said(c, x->unit).text, action_said(c, u->reduced).text);
    if (u->owed >= 0 && u->owed != window)
        return fail(c, "the gradient of %s that %s completed is still there: REDUCE comes first",
                    unit_said(c, x->unit).text, action_said(c, u->last).text);
    u->owed = window;
    u->last = c->i;
    return OK;
}

static int check_part(struct check *c, const struct stage_parts *g, struct action a, int phase, int part)
{
    int64_t k = key(c, g, a.microbatch, phase);
    char first[32];
    struct action before = a;
    if (c->open >= 0 && c->open != k)
        return fail(c, "another phase is not over: its parts share scratch memory and stay together");
    if (part < c->done[k]) return fail(c, "comes again, or after what it serves: parts come in order, each once");
    if (part > c->done[k]) {
        before.part = (uint16_t)(a.kind == ACTION_BW && phase == ACTION_W ? c->done[k] + g->n[ACTION_B] : c->done[k]);
        if (phase == ACTION_B && g->again[c->done[k]]) before.kind = ACTION_RECOMPUTE;
        else if (a.kind == ACTION_RECOMPUTE) before.kind = g->n[ACTION_W] ? ACTION_B : ACTION_BW;
        return fail(c, "comes before %s", action_print(first, before));
    }
    if (phase == ACTION_B && g->again[part] != (a.kind == ACTION_RECOMPUTE))
        return fail(c, "%s",
                    g->again[part]
                        ? "this part computes forward once more: it is a RECOMPUTE, which comes before its backward"
                        : "this part is backward itself, not a RECOMPUTE");
    c->done[k]++;
    c->open = c->done[k] < g->n[phase] ? k : -1;
    int rc = OK, n;
    const int *use = part_uses_of(&c->uses, g, phase, part, &n);
    for (int i = 0; i < n && !rc; i++) {
        const struct part_use *x = &g->use[use[i]];
        rc = x->writes ? check_write(c, x, a) : check_read(c, x);
    }
    return rc;
}

/* A B half-way through has no W yet: order between phases of one key. */
static int check_compute(struct check *c, const struct stage_parts *g, struct action a)
{
    int rc = OK;
    for (int second = 0; second < 2 && !rc; second++) {
        int phase, first, last;
        if (!parts_range(g, a, second, &phase, &first, &last)) continue;
        if (phase != ACTION_F && c->done[key(c, g, a.microbatch, phase - 1)] < g->n[phase - 1])
            rc = fail(c, "comes before the %s it follows is over",
                      phase == ACTION_B ? "forward" : "backward for inputs");
        for (int part = first; part <= last && !rc; part++) rc = check_part(c, g, a, phase, part);
    }
    return rc;
}

/* ---- what moves ---- */
static int check_gather(struct check *c, struct action a)
{
    struct unit_state *u = &c->unit[a.part];
    struct named name = unit_said(c, a.part);
    if (!c->p->rule.gather)
        return fail(c, "parameters are whole here: there is nothing to gather or to release; leave it out, or choose "
                       "parallel.zero=3 or memory.offload=[params]");
    if (a.kind == ACTION_GATHER) {
        if (u->gathered >= 0)
            return fail(c, "%s was gathered by %s: RELEASE comes first", name.text, action_said(c, u->gathered).text);
        u->gathered = c->i;
        u->read = false;
        return OK;
    }
    if (u->gathered < 0) return fail(c, "%s is not gathered: there is nothing to release", name.text);
    if (!u->read)
        return fail(c, "nothing has read %s since %s: RELEASE comes too early", name.text,
                    action_said(c, u->gathered).text);
    u->gathered = -1;
    u->released = c->i;
    return OK;
}

static int check_reduce(struct check *c, struct action a)
{
    struct unit_state *u = &c->unit[a.part];
    struct named name = unit_said(c, a.part);
    if (!c->p->rule.reduce) return fail(c, "gradients are not reduced here (no other rank adds to them): leave it out");
    if (u->owed < 0 && u->reduced >= 0)
        return fail(c, "the gradient of %s was reduced by %s: once is all", name.text, action_said(c, u->reduced).text);
    if (u->owed < 0) return fail(c, "no gradient of %s was made before", name.text);
    u->reduced = c->i;
    u->window = u->owed;
    u->owed = -1;
    return OK;
}

/* The step of an optimizer is scaled by the norm of all gradients: when it begins, all of them are there. */
static int check_update(struct check *c, struct action a)
{
    struct unit_state *u = &c->unit[a.part];
    struct named name = unit_said(c, a.part);
    bool publishes = a.kind == ACTION_PUBLISH;
    if (!c->p->rule.update) return fail(c, "parameters are stepped by their servers: leave it out");
    if (publishes && !c->p->rule.publish)
        return fail(c, "nothing is published here: no rank steps a piece for others that keep the whole (zero 1 and 2 "
                       "do); leave it out");
    if (c->p->unit_stage[a.part] < 0) return fail(c, "this rank holds nothing of %s", name.text);
    if (u->owed >= 0)
        return fail(c, "the gradient of %s, to which %s added, is not reduced yet: REDUCE comes first", name.text,
                    action_said(c, u->last).text);
    if (!publishes && u->updated >= 0)
        return fail(c, "%s was updated by %s: once is all", name.text, action_said(c, u->updated).text);
    if (publishes && u->updated < 0) return fail(c, "%s is not updated yet: UPDATE comes first", name.text);
    if (publishes && u->published >= 0)
        return fail(c, "%s was published by %s: once is all", name.text, action_said(c, u->published).text);
    if (!publishes && c->update < 0) c->update = c->i;
    *(publishes ? &u->published : &u->updated) = c->i;
    return OK;
}

static int check_message(struct check *c, const struct stage_parts *g, struct action a)
{
    bool f = a.kind == ACTION_RECV_F || a.kind == ACTION_SEND_F,
         sends = a.kind == ACTION_SEND_F || a.kind == ACTION_SEND_B;
    int phase = f ? ACTION_F : ACTION_B, done = c->done[key(c, g, a.microbatch, phase)], again = 0;
    while (!f && again < g->n[phase] && g->again[again]) again++;
    if (sends && done < g->n[phase]) return fail(c, "comes before the last part of what it sends");
    if (!sends && done > again) return fail(c, "comes after a part that reads what it brings");
    return OK;
}

/* ---- all of it ---- */
static int check_end(struct check *c)
{
    int rc = OK;
    c->i = c->l->n;
    for (int u = 0; u < c->p->n_units && !rc; u++) {
        if (c->unit[u].gathered >= 0)
            rc = fail(c, "%s, gathered by %s, is never released", unit_said(c, u).text,
                      action_said(c, c->unit[u].gathered).text);
        else if (c->unit[u].owed >= 0)
            rc = fail(c, "the gradient of %s, to which %s added, is never reduced", unit_said(c, u).text,
                      action_said(c, c->unit[u].last).text);
        else if (c->p->rule.update && c->p->unit_stage[u] >= 0 && c->unit[u].updated < 0)
            rc = fail(c, "%s is never updated", unit_said(c, u).text);
        else if (c->p->rule.publish && c->unit[u].updated >= 0 && c->unit[u].published < 0)
            rc = fail(c, "%s, updated by %s, is never published", unit_said(c, u).text,
                      action_said(c, c->unit[u].updated).text);
    }
    for (int i = 0; i < c->p->n_stages && !rc; i++)
        for (int m = 0; m < c->s->n_microbatches && !rc; m++)
            for (int ph = 0; ph < (c->s->forward_only ? 1 : PART_PHASES) && !rc; ph++) {
                const struct stage_parts *g = &c->p->stage[i];
                int done = c->done[key(c, g, m, ph)];
                if (schedule_rank_of(c->s, g->stage, m) != c->rank || done == g->n[ph]) continue;
                rc = fail(c, "%d of %d parts of %d%s%d were computed", done, g->n[ph], g->stage,
                          action_name((enum action_kind)ph), m);
            }
    return rc;
}

static int check_one(struct check *c, struct action a)
{
    const struct stage_parts *g = parts_stage(c->p, a.stage);
    bool updates = a.kind == ACTION_UPDATE || a.kind == ACTION_PUBLISH;
    if (!g) return fail(c, "this stage is placed on another rank");
    if (c->update >= 0 && !updates)
        return fail(c, "comes after %s: the norm of all gradients lies between what makes them and the first update",
                    action_said(c, c->update).text);
    if (action_is_compute((enum action_kind)a.kind)) {
        int n = parts_of(g, (enum action_kind)a.kind);
        return a.part != ACTION_WHOLE && a.part >= n ? fail(c, "there are parts 0 to %d", n - 1)
                                                     : check_compute(c, g, a);
    }
    if (action_has_peer((enum action_kind)a.kind)) return check_message(c, g, a);
    if (a.part >= c->p->n_units) return fail(c, "there are units 0 to %d", c->p->n_units - 1);
    if (updates) return check_update(c, a);
    return a.kind == ACTION_REDUCE ? check_reduce(c, a) : check_gather(c, a);
}

int schedule_check_list(const struct action_list *l, const struct schedule *s, int rank, const struct rank_parts *p,
                        struct err *e)
{
    struct check c = {.l = l, .s = s, .p = p, .rank = rank, .open = -1, .update = -1, .e = e};
    part_uses_init(&c.uses, p);
    c.unit = xcalloc(to_size(p->n_units) + 1, sizeof *c.unit);
    c.done = xcalloc(to_size(p->n_stages) * to_size(s->n_microbatches) * PART_PHASES + 1, sizeof *c.done);
    for (int u = 0; u < p->n_units; u++)
        c.unit[u] = (struct unit_state){.gathered = -1,
                                        .released = -1,
                                        .owed = -1,
                                        .last = -1,
                                        .reduced = -1,
                                        .window = -1,
                                        .updated = -1,
                                        .published = -1};
    int rc = OK;
    for (; c.i < l->n && !rc; c.i++) rc = check_one(&c, l->a[c.i]);
    if (!rc) rc = check_end(&c);
    part_uses_fini(&c.uses);
    xfree(c.unit);
    xfree(c.done);
    return rc;
}
