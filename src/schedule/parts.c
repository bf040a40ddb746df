/* SPDX-License-Identifier: Apache-2.0 */
/* The pass that makes a rank's whole list: five walks, each from left to right.
 *
 *   cut      whole phases become parts, whole stages' GATHER, RELEASE, REDUCE, UPDATE and PUBLISH become units
 *   gather   GATHER one unit (or rule.ahead) ahead of the first part that reads it in a phase, RELEASE after the last
 *   reduce   REDUCE after the last part of a window, or of the step, that adds to a unit's gradient
 *   update   UPDATE of every unit at the end, and PUBLISH behind it: it travels while the next one is stepped
 *   join     parts between which nothing came are told as the whole again
 *
 * Cost: O(parts and what they use), where the schedule names no REDUCE of whole stages. */
#include "schedule/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "schedule/part_uses.h"

static void push(struct action_list *l, struct action a)
{
    GROW(l->a, l->n, l->room, 1);
    l->a[l->n++] = a;
}

static struct action with_part(struct action a, enum action_kind kind, int part)
{
    a.kind = (uint8_t)kind;
    a.part = (uint16_t)part;
    return a;
}

static bool is_move(struct action a) { return action_has_unit((enum action_kind)a.kind); }
static bool is_gather(struct action a) { return a.kind == ACTION_GATHER || a.kind == ACTION_RELEASE; }
static bool is_update(struct action a) { return a.kind == ACTION_UPDATE || a.kind == ACTION_PUBLISH; }

const struct stage_parts *parts_stage(const struct rank_parts *p, int stage)
{
    for (int i = 0; i < p->n_stages; i++)
        if (p->stage[i].stage == stage) return &p->stage[i];
    return NULL;
}

int parts_of(const struct stage_parts *p, enum action_kind kind)
{
    if (kind == ACTION_F || kind == ACTION_W) return p->n[kind];
    if (kind == ACTION_B || kind == ACTION_RECOMPUTE) return p->n[ACTION_B];
    return kind == ACTION_BW ? p->n[ACTION_B] + p->n[ACTION_W] : 1;
}

bool parts_range(const struct stage_parts *p, struct action a, bool second, int *phase, int *first, int *last)
{
    if (!action_is_compute((enum action_kind)a.kind)) return false;
    int b = p->n[ACTION_B], from = 0, to = parts_of(p, (enum action_kind)a.kind) - 1;
    if (a.part != ACTION_WHOLE) from = to = a.part;
    *phase = a.kind == ACTION_BW || a.kind == ACTION_RECOMPUTE ? ACTION_B : a.kind;
    if (a.kind == ACTION_BW && second) {
        *phase = ACTION_W;
        *first = from < b ? 0 : from - b;
        *last = to - b;
        return to >= b;
    }
    *first = from;
    *last = a.kind == ACTION_BW && to >= b ? b - 1 : to;
    return *first <= *last && !second;
}

/* ---- cut ---- */
static void cut_phase(struct action_list *l, const struct stage_parts *p, struct action a)
{
    int n = parts_of(p, (enum action_kind)a.kind);
    for (int k = 0; k < n; k++) {
        bool again = (a.kind == ACTION_B || a.kind == ACTION_BW) && k < p->n[ACTION_B] && p->again[k];
        push(l, with_part(a, again ? ACTION_RECOMPUTE : (enum action_kind)a.kind, k));
    }
    CHECK(n > 0, "stage %d has no parts of %s", a.stage, action_name((enum action_kind)a.kind));
}

static bool touches(const struct stage_parts *p, int unit, bool writes)
{
    for (int i = 0; i < p->n_use; i++)
        if (p->use[i].unit == unit && p->use[i].writes == writes) return true;
    return false;
}

/* Whether an action of that stage may name the unit. */
static bool concerns(const struct rank_parts *p, const struct stage_parts *g, struct action a, int unit)
{
    if (is_update(a)) return p->unit_stage && p->unit_stage[unit] == g->stage;
    return touches(g, unit, a.kind == ACTION_REDUCE);
}

static bool adds_to(const struct stage_parts *g, struct action a, int unit)
{
    for (int second = 0; second < 2; second++) {
        int phase, first, last;
        if (a.stage != g->stage || !parts_range(g, a, second, &phase, &first, &last)) continue;
        for (int k = 0; k < g->n_use; k++) {
            const struct part_use *x = &g->use[k];
            bool meets = x->phase == phase && x->first <= last && x->last >= first;
            if (x->unit == unit && x->writes && meets) return true;
        }
    }
    return false;
}

/* The stage has added to the unit, and no REDUCE of it followed. */
static bool is_owed(const struct action_list *l, const struct stage_parts *g, int unit)
{
    for (int64_t i = l->n - 1; i >= 0; i--) {
        if (l->a[i].kind == ACTION_REDUCE && l->a[i].part == unit) return false;
        if (adds_to(g, l->a[i], unit)) return true;
    }
    return false;
}

/* Units of a whole stage. A unit of two stages here is gathered once, and released with the first one that is. Where
 * units leave by phase, a REDUCE is of those that the stage added to since their last one; of all, if there are none:
 * that is refused. */
static void cut_move(struct action_list *l, const struct rank_parts *p, const struct stage_parts *g, struct action a,
                     bool *whole)
{
    bool owed = false, some = a.kind == ACTION_REDUCE && p->rule.temporary && p->rule.by_phase;
    for (int u = 0; u < p->n_units && some && !owed; u++) owed = concerns(p, g, a, u) && is_owed(l, g, u);
    for (int u = 0; u < p->n_units; u++) {
        if (!concerns(p, g, a, u) || (owed && !is_owed(l, g, u))) continue;
        if (is_gather(a) && whole[u] == (a.kind == ACTION_GATHER)) continue;
        if (is_gather(a)) whole[u] = a.kind == ACTION_GATHER;
        push(l, with_part(a, (enum action_kind)a.kind, u));
    }
}

/* Some other stage adds to the unit later than position i: REDUCE belongs there. */
static bool comes_later(const struct action_list *l, int64_t i, const struct rank_parts *p, int unit)
{
    for (i++; i < l->n; i++)
        if (action_is_compute((enum action_kind)l->a[i].kind) && touches(parts_stage(p, l->a[i].stage), unit, true))
            return true;
    return false;
}

static int cut_recompute(const struct action_list *l, int64_t i, const struct stage_parts *p, int rank, struct err *e)
{
    struct action a = l->a[i];
    char name[32];
    bool any = false;
    for (int k = 0; k < p->n[ACTION_B]; k++) any |= p->again[k];
    if (!any)
        return err_set(e, ERR_REQUEST,
                       "rank %d, action %lld (%s): stage %d keeps what backward needs: nothing is computed again; "
                       "leave it out, or choose memory.recompute: full",
                       rank, (long long)i, action_print(name, a), a.stage);
    for (i++; i < l->n && !action_is_compute((enum action_kind)l->a[i].kind);) i++;
    bool serves = i < l->n && l->a[i].stage == a.stage && l->a[i].microbatch == a.microbatch &&
                  l->a[i].part == ACTION_WHOLE && (l->a[i].kind == ACTION_B || l->a[i].kind == ACTION_BW);
    if (serves) return OK;
    return err_set(e, ERR_REQUEST,
                   "rank %d: %s is not followed by the whole backward of stage %d, microbatch %d, which it serves "
                   "layer by layer; move it there, or leave it out",
                   rank, action_print(name, a), a.stage, a.microbatch);
}

/* What a file may name and the model does not have. */
static int refuse(const struct action_list *l, int64_t i, const struct rank_parts *p, int rank, struct err *e)
{
    static const char *const verb[ACTION_N] = {[ACTION_GATHER] = "gather",
                                               [ACTION_RELEASE] = "release",
                                               [ACTION_REDUCE] = "reduce",
                                               [ACTION_UPDATE] = "update",
                                               [ACTION_PUBLISH] = "publish"};
    struct action a = l->a[i];
    const struct stage_parts *g = parts_stage(p, a.stage);
    char name[32];
    action_print(name, a);
    if (!g)
        return err_set(e, ERR_REQUEST, "rank %d, action %lld (%s): stage %d is placed on another rank", rank,
                       (long long)i, name, a.stage);
    if (action_has_peer((enum action_kind)a.kind) || a.part == ACTION_WHOLE) return OK;
    if (is_move(a) && (a.part >= p->n_units || !concerns(p, g, a, a.part)))
        return err_set(e, ERR_REQUEST,
                       "rank %d, action %lld (%s): stage %d has no unit %d to %s; tutti explain CONFIG schedule lists "
                       "them",
                       rank, (long long)i, name, a.stage, a.part, verb[a.kind]);
    int n = parts_of(g, (enum action_kind)a.kind);
    if (!is_move(a) && a.part >= n)
        return err_set(e, ERR_REQUEST, "rank %d, action %lld (%s): there are parts 0 to %d", rank, (long long)i, name,
                       n - 1);
    return OK;
}

static int cut(struct action_list *out, const struct action_list *l, const struct rank_parts *p, int rank,
               struct err *e)
{
    bool *whole = xcalloc(to_size(p->n_units) + 1, sizeof *whole);
    int rc = OK;
    for (int64_t i = 0; i < l->n && !rc; i++) {
        struct action a = l->a[i];
        rc = refuse(l, i, p, rank, e);
        if (rc) break;
        bool named = action_has_peer((enum action_kind)a.kind) || a.part != ACTION_WHOLE;
        if (named && is_gather(a)) whole[a.part] = a.kind == ACTION_GATHER;
        if (named) {
            push(out, a);
        } else if (a.kind == ACTION_RECOMPUTE) {
            rc = cut_recompute(l, i, parts_stage(p, a.stage), rank, e);
        } else if (is_move(a)) {
            int64_t from = out->n, to = from;
            cut_move(out, p, parts_stage(p, a.stage), a, whole);
            for (int64_t k = from; k < out->n; k++)
                if (a.kind != ACTION_REDUCE || p->rule.temporary || !comes_later(l, i, p, out->a[k].part))
                    out->a[to++] = out->a[k];
            out->n = to;
        } else {
            cut_phase(out, parts_stage(p, a.stage), a);
        }
    }
    xfree(whole);
    return rc;
}

/* ---- gather ---- */
static int by_first(const void *a, const void *b)
{
    const struct part_use *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->unit < y->unit ? -1 : x->unit > y->unit;
}

/* A unit that is gathered before a part, or released after one. */
struct mark {
    int part, unit;
};

static int by_part(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    return x->part != y->part ? (x->part < y->part ? -1 : 1) : (x->unit > y->unit) - (x->unit < y->unit);
}

/* What each stage reads in a phase: its gathers and its releases, each in the order of parts, then of units. */
struct reading {
    struct mark *gather, *release;
    int n;
};

/* One unit ahead: the first two before the first part, each later one when the one before it begins to be read. */
static void reading_init(struct reading *x, const struct stage_parts *g, int phase, int ahead)
{
    struct part_use *use = xcalloc(to_size(g->n_use) + 1, sizeof *use);
    for (int k = 0; k < g->n_use; k++)
        if (!g->use[k].writes && !g->use[k].stays && g->use[k].phase == phase) use[x->n++] = g->use[k];
    qsort(use, to_size(x->n), sizeof *use, by_first);
    x->gather = xcalloc(to_size(x->n) + 1, sizeof *x->gather);
    x->release = xcalloc(to_size(x->n) + 1, sizeof *x->release);
    for (int i = 0; i < x->n; i++) {
        x->gather[i] = (struct mark){use[i < ahead ? 0 : i - ahead].first, use[i].unit};
        x->release[i] = (struct mark){use[i].last, use[i].unit};
    }
    qsort(x->gather, to_size(x->n), sizeof *x->gather, by_part);
    qsort(x->release, to_size(x->n), sizeof *x->release, by_part);
    xfree(use);
}

static struct reading *readings(const struct rank_parts *p)
{
    struct reading *r = xcalloc(to_size(p->n_stages) * PART_PHASES + 1, sizeof *r);
    for (int i = 0; i < p->n_stages; i++)
        for (int ph = 0; ph < PART_PHASES; ph++)
            reading_init(&r[i * PART_PHASES + ph], &p->stage[i], ph,
                         p->rule.ahead < 0 ? 0
                         : p->rule.ahead   ? p->rule.ahead
                                           : 1);
    return r;
}

static void readings_free(struct reading *r, const struct rank_parts *p)
{
    for (int i = 0; i < p->n_stages * PART_PHASES; i++) {
        xfree(r[i].gather);
        xfree(r[i].release);
    }
    xfree(r);
}

/* The marks of a part, found in the logarithm of their number: a model has many parts, and each has few. */
static void marks_at(struct action_list *out, const struct mark *m, int n, enum action_kind kind, int stage, int part)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (m[mid].part < part) lo = mid + 1;
        else hi = mid;
    }
    for (; lo < n && m[lo].part == part; lo++) push(out, with_part(action_of(kind, stage, 0), kind, m[lo].unit));
}

/* The phase of one part (not of a whole BW, which has two), and which part of it. */
static int phase_of(const struct stage_parts *g, struct action a, int *part)
{
    int phase = -1, last;
    if (!parts_range(g, a, false, &phase, part, &last)) parts_range(g, a, true, &phase, part, &last);
    return phase;
}

static void gather(struct action_list *out, const struct action_list *l, const struct rank_parts *p)
{
    struct reading *r = readings(p);
    for (int64_t i = 0; i < l->n; i++) {
        struct action a = l->a[i];
        if (!action_is_compute((enum action_kind)a.kind)) {
            push(out, a);
            continue;
        }
        const struct stage_parts *g = parts_stage(p, a.stage);
        int part, phase = phase_of(g, a, &part);
        const struct reading *x = &r[(g - p->stage) * PART_PHASES + phase];
        marks_at(out, x->gather, x->n, ACTION_GATHER, a.stage, part);
        push(out, a);
        marks_at(out, x->release, x->n, ACTION_RELEASE, a.stage, part);
    }
    readings_free(r, p);
}

/* ---- reduce ---- */
struct due { /* REDUCE of a unit after the action at a position */
    int64_t at;
    int unit, stage;
};
struct dues {
    struct due *p;
    int64_t n, room;
};

static void push_due(struct dues *d, struct due x)
{
    GROW(d->p, d->n, d->room, 1);
    d->p[d->n++] = x;
}

static int by_place(const void *a, const void *b)
{
    const struct due *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->unit < y->unit ? -1 : x->unit > y->unit;
}

int64_t parts_window(const struct rank_parts *p, struct action a, int phase)
{
    const struct part_rule *r = &p->rule;
    int64_t key = (int64_t)a.stage * SCHEDULE_MAX_MICROBATCHES + a.microbatch;
    if (r->temporary) return r->by_phase ? key * PART_PHASES + phase : key;
    return r->every ? a.microbatch / r->every : 0;
}

static void reduce(struct action_list *out, const struct action_list *l, const struct rank_parts *p)
{
    struct due *last = xcalloc(to_size(p->n_units) + 1, sizeof *last);
    int64_t *window = xmalloc((to_size(p->n_units) + 1) * sizeof *window);
    struct dues d = {0};
    struct part_uses uses;
    part_uses_init(&uses, p);
    for (int u = 0; u < p->n_units; u++) window[u] = -1;
    for (int64_t i = 0; i < l->n; i++) {
        struct action a = l->a[i];
        if (!action_is_compute((enum action_kind)a.kind)) continue;
        const struct stage_parts *g = parts_stage(p, a.stage);
        int part, n, phase = phase_of(g, a, &part);
        const int *use = part_uses_of(&uses, g, phase, part, &n);
        for (int k = 0; k < n; k++) {
            const struct part_use *x = &g->use[use[k]];
            if (!x->writes) continue;
            int64_t here = parts_window(p, a, phase);
            if (window[x->unit] >= 0 && window[x->unit] != here) push_due(&d, last[x->unit]);
            window[x->unit] = here;
            last[x->unit] = (struct due){i, x->unit, a.stage};
        }
    }
    for (int u = 0; u < p->n_units; u++)
        if (window[u] >= 0) push_due(&d, last[u]);
    if (d.n) qsort(d.p, to_size(d.n), sizeof *d.p, by_place);
    for (int64_t i = 0, k = 0; i < l->n; i++) {
        bool also = i + 1 < l->n && l->a[i + 1].kind == ACTION_RELEASE; /* what was read leaves first */
        push(out, l->a[i]);
        if (also && k < d.n && d.p[k].at <= i) continue;
        for (; k < d.n && d.p[k].at <= i; k++)
            push(out, with_part(action_of(ACTION_REDUCE, d.p[k].stage, 0), ACTION_REDUCE, d.p[k].unit));
    }
    part_uses_fini(&uses);
    xfree(d.p);
    xfree(last);
    xfree(window);
}

/* ---- update ---- */
static void update(struct action_list *out, const struct action_list *l, const struct rank_parts *p)
{
    for (int64_t i = 0; i < l->n; i++) push(out, l->a[i]);
    for (int u = 0; u < p->n_units; u++) {
        if (p->unit_stage[u] < 0) continue;
        struct action a = action_of(ACTION_UPDATE, p->unit_stage[u], 0);
        push(out, with_part(a, ACTION_UPDATE, u));
        if (p->rule.publish) push(out, with_part(a, ACTION_PUBLISH, u));
    }
}

/* ---- join ---- */
static void join(struct action_list *out, const struct action_list *l, const struct rank_parts *p)
{
    for (int64_t i = 0; i < l->n;) {
        struct action a = l->a[i];
        int n = 1, k = 0;
        if (action_is_compute((enum action_kind)a.kind) && a.kind != ACTION_RECOMPUTE && a.part == 0)
            n = parts_of(parts_stage(p, a.stage), (enum action_kind)a.kind);
        else n = -1;
        while (k < n && i + k < l->n && action_equal(l->a[i + k], with_part(a, (enum action_kind)a.kind, k))) k++;
        bool all = n > 0 && k == n;
        push(out, all ? with_part(a, (enum action_kind)a.kind, ACTION_WHOLE) : a);
        i += all ? n : 1;
    }
}

static void next(struct action_list *l, struct action_list *made)
{
    xfree(l->a);
    *l = *made;
    *made = (struct action_list){0};
}

int schedule_list(struct action_list *out, const struct schedule *s, int rank, const struct rank_parts *p,
                  struct err *e)
{
    struct action_list made = {0};
    *out = (struct action_list){0};
    bool gathers = schedule_has(s, ACTION_GATHER) || schedule_has(s, ACTION_RELEASE),
         reduces = schedule_has(s, ACTION_REDUCE),
         updates = schedule_has(s, ACTION_UPDATE) || schedule_has(s, ACTION_PUBLISH);
    int rc = cut(out, &s->rank[rank], p, rank, e);
    if (rc) {
        xfree(out->a);
        *out = (struct action_list){0};
        return rc;
    }
    if (p->rule.gather && !gathers) {
        gather(&made, out, p);
        next(out, &made);
    }
    if (p->rule.reduce && !reduces) {
        reduce(&made, out, p);
        next(out, &made);
    }
    if (p->rule.update && !updates) {
        update(&made, out, p);
        next(out, &made);
    }
    join(&made, out, p);
    next(out, &made);
    return OK;
}

/* ---- text ---- */
void schedule_print_list(const struct action_list *l, struct str *out)
{
    char name[32];
    for (int64_t i = 0; i < l->n; i++) str_printf(out, "%s%s", i ? " " : "", action_print(name, l->a[i]));
}

void parts_print_unit(const struct rank_parts *p, int unit, char out[96])
{
    const char *name = p->unit_name && unit >= 0 && unit < p->n_units ? p->unit_name[unit] : NULL;
    if (name) snprintf(out, 96, "unit %d (%.60s ...)", unit, name);
    else snprintf(out, 96, "unit %d", unit);
}

/* ---- for all ranks ---- */
static bool names_part(struct action a) { return !action_has_peer((enum action_kind)a.kind) && a.part != ACTION_WHOLE; }

bool schedule_has_parts(const struct schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++)
        for (int64_t i = 0; i < s->rank[r].n; i++)
            if (names_part(s->rank[r].a[i])) return true;
    return false;
}

static bool moves_units(const struct schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++)
        for (int64_t i = 0; i < s->rank[r].n; i++)
            if (names_part(s->rank[r].a[i]) && is_move(s->rank[r].a[i])) return true;
    return false;
}

struct schedule *schedule_join(const struct schedule *s)
{
    struct schedule *j = schedule_new(s->kind, s->n_ranks, s->n_stages, s->n_microbatches);
    if (s->n_ways == 2) schedule_add_way(j, s->way_from);
    for (int w = 0; w < s->n_ways; w++)
        for (int i = 0; i < s->n_stages; i++) schedule_place(j, w, i, s->place[w * s->n_stages + i]);
    j->forward_only = s->forward_only;
    int64_t keys = (int64_t)ACTION_N * s->n_stages * s->n_microbatches;
    uint8_t *seen = xcalloc(to_size(keys), 1); /* from the end: a later part of the same phase was met */
    bool units = moves_units(s);
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list kept = {0};
        for (int64_t i = s->rank[r].n - 1; i >= 0; i--) {
            struct action a = s->rank[r].a[i];
            bool part = names_part(a);
            if ((units && is_move(a)) || (part && a.kind == ACTION_RECOMPUTE)) continue;
            uint8_t *met = &seen[((int64_t)a.kind * s->n_stages + a.stage) * s->n_microbatches + a.microbatch];
            if (part && *met) continue;
            if (part) *met = 1;
            push(&kept, part ? with_part(a, (enum action_kind)a.kind, ACTION_WHOLE) : a);
        }
        for (int64_t i = kept.n - 1; i >= 0; i--) schedule_push(j, r, kept.a[i]);
        xfree(kept.a);
    }
    xfree(seen);
    return j;
}
