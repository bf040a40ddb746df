/* SPDX-License-Identifier: Apache-2.0 */
/* A small search: at every moment, the cheapest step that brings one axis to its final letter and that the splitting
 * order allows. Cheapest means the order of enum lower_kind: cut locally, reduce into pieces, exchange pieces, reduce
 * whole, and only then gather.
 *
 * An S may be taken away only where it is the last cut of its dim, and added only where the cuts of that dim already
 * are the ones that precede it in the target. With at most eight axes greedy search is exact enough: where it gets
 * stuck (the same axes in another order, say) the step is point-to-point and the route says the rest.
 *
 * Axes that one side keeps whole and the other factors (KV heads) are factored on both sides first, where that does
 * not move a piece.
 */
#include "layout/recognise.h"

#include <string.h>

static const char *const kind_names[LOWER_N] = {"slice",      "reduce-scatter", "all-to-all", "all-reduce",
                                                "all-gather", "broadcast",      "forget",     "point-to-point"};

const char *lower_kind_name(enum lower_kind k) { return kind_names[k]; }

/* ---- making the two sides name the same axes -------------------------------------------------------------- */

static int find_place(const struct layout *l, struct mesh_axis a)
{
    for (int i = 0; i < l->n_places; i++)
        if (l->place[i].on.axis == a.axis && l->place[i].on.size == a.size && l->place[i].on.stride == a.stride)
            return i;
    return -1;
}

/* Whether cutting by k outer and then by the rest gives the same pieces as cutting by `size` at once: always for
 * letters other than S; for S where every piece being cut divides. */
static bool may_factor(const struct layout *l, int i)
{
    if (!spmd_is_shard(l->place[i].type)) return true;
    int d = (int)l->place[i].type - SPMD_S0;
    int64_t cuts = 1;
    for (int j = 0; j <= i; j++)
        if (l->place[j].type == l->place[i].type) cuts *= l->place[j].on.size;
    return l->shape.n[d] % cuts == 0;
}

static bool factor_place(struct layout *l, int i, int n_outer)
{
    if (l->n_places == LAYOUT_MAX_PLACES || !may_factor(l, i) || (l->place[i].on.axis == AXIS_PP && l->n_only))
        return false;
    struct layout_place p = l->place[i];
    memmove(&l->place[i + 2], &l->place[i + 1], (size_t)(l->n_places - i - 1) * sizeof l->place[0]);
    l->n_places++;
    l->place[i + 1] = l->place[i] = p;
    mesh_axis_factor(p.on, n_outer, &l->place[i].on, &l->place[i + 1].on);
    return true;
}

/* Factors places of l at the borders where m's places on the same axis end. */
static void refine(struct layout *l, const struct layout *m)
{
    for (int i = 0; i < l->n_places; i++)
        for (int j = 0; j < m->n_places; j++) {
            struct mesh_axis a = l->place[i].on, b = m->place[j].on;
            int end = b.stride * b.size;
            if (a.axis != b.axis || end <= a.stride || end >= a.stride * a.size || end % a.stride) continue;
            int n_inner = end / a.stride;
            if (a.size % n_inner == 0 && factor_place(l, i, a.size / n_inner)) {
                i = -1; /* places moved: look again from the start */
                break;
            }
        }
}

/* ---- the search -------------------------------------------------------------------------------------------- */

static bool is_copy(enum spmd t) { return t == SPMD_R || t == SPMD_I; }

static bool last_cut(const struct layout *l, int i)
{
    for (int j = i + 1; j < l->n_places; j++)
        if (l->place[j].type == l->place[i].type) return false;
    return true;
}

/* Whether the cuts of dim S(t) in l are exactly those that precede place j of `to`. */
static bool cuts_match(const struct layout *l, const struct layout *to, int j)
{
    enum spmd t = to->place[j].type;
    int i = 0;
    for (int k = 0; k < j; k++) {
        if (to->place[k].type != t) continue;
        while (i < l->n_places && l->place[i].type != t) i++;
        if (i == l->n_places || find_place(to, l->place[i].on) != k) return false;
        i++;
    }
    for (; i < l->n_places; i++)
        if (l->place[i].type == t) return false;
    return true;
}

/* Place i of l at type t; a new S goes to the end of the splitting order. */
static struct layout change(struct layout l, int i, enum spmd t)
{
    struct mesh_axis on = l.place[i].on;
    if (!spmd_is_shard(t)) {
        l.place[i].type = t;
        return l;
    }
    memmove(&l.place[i], &l.place[i + 1], (size_t)(l.n_places - i - 1) * sizeof l.place[0]);
    l.place[l.n_places - 1] = (struct layout_place){.on = on, .type = t};
    return l;
}

/* The step that takes place i of l to its letter in `to`; false: not now, or nothing to do. */
static bool step_for(const struct layout *l, int i, const struct layout *to, struct lower_step *s)
{
    int j = find_place(to, l->place[i].on);
    enum spmd a = l->place[i].type, b = to->place[j].type;
    if (a == b || (is_copy(a) && is_copy(b))) return false;
    if (spmd_is_shard(a) && !last_cut(l, i)) return false;
    if (spmd_is_shard(b) && !cuts_match(l, to, j)) return false;
    *s = (struct lower_step){.n_axes = 1, .axis = {l->place[i].on}, .before = *l, .after = change(*l, i, b)};
    s->dim = spmd_is_shard(b) ? (int)b - SPMD_S0 : (int)a - SPMD_S0;
    if (a == SPMD_P) s->kind = spmd_is_shard(b) ? LOWER_REDUCE_SCATTER : LOWER_ALL_REDUCE;
    else if (is_copy(a)) s->kind = LOWER_SLICE;
    else if (is_copy(b)) s->kind = LOWER_ALL_GATHER;
    else {
        s->kind = LOWER_ALL_TO_ALL;
        s->dim = (int)a - SPMD_S0;
        s->dim_cut = (int)b - SPMD_S0;
    }
    if (s->kind == LOWER_ALL_REDUCE) s->dim = 0;
    return true;
}

/* All axes have their letters, but a cut may stand on the wrong side of another. */
static bool cuts_equal(const struct layout *l, const struct layout *to)
{
    for (int t = SPMD_S0; t <= SPMD_S3; t++)
        for (int i = 0, j = 0;;) {
            while (i < l->n_places && (int)l->place[i].type != t) i++;
            while (j < to->n_places && (int)to->place[j].type != t) j++;
            if (i == l->n_places || j == to->n_places) {
                if (i != l->n_places || j != to->n_places) return false;
                break;
            }
            if (find_place(to, l->place[i].on) != j) return false;
            i++, j++;
        }
    return true;
}

static bool search(struct lowering *w, struct layout *now, const struct layout *to)
{
    for (;;) {
        struct lower_step best = {.kind = LOWER_N}, s;
        for (int i = 0; i < now->n_places; i++)
            if (step_for(now, i, to, &s) && s.kind < best.kind) best = s;
        if (best.kind == LOWER_N) break;
        CHECK(w->n < LOWER_MAX_STEPS, "a lowering of more than %d steps", LOWER_MAX_STEPS);
        w->step[w->n++] = best;
        *now = best.after;
    }
    for (int i = 0; i < now->n_places; i++) {
        enum spmd a = now->place[i].type, b = to->place[find_place(to, now->place[i].on)].type;
        if (a != b && !(is_copy(a) && is_copy(b))) return false;
    }
    return cuts_equal(now, to);
}

/* Explicit holders on pp: growing from one is a broadcast, shrinking is free. */
static bool change_holders(struct lowering *w, struct layout *now, const struct layout *to)
{
    int n_all = 0, n_common = 0, n_now, n_to, pp = -1;
    for (int i = 0; i < now->n_places; i++)
        if (now->place[i].on.axis == AXIS_PP) pp = i;
    if (now->n_only == to->n_only && !memcmp(now->only, to->only, (size_t)to->n_only * sizeof to->only[0])) return true;
    if (pp < 0 || !is_copy(now->place[pp].type)) return false;
    n_all = now->place[pp].on.size;
    n_now = now->n_only ? now->n_only : n_all;
    n_to = to->n_only ? to->n_only : n_all;
    for (int i = 0; i < n_now; i++)
        for (int j = 0; j < n_to; j++) n_common += (now->n_only ? now->only[i] : i) == (to->n_only ? to->only[j] : j);
    struct lower_step s = {.n_axes = 1, .axis = {now->place[pp].on}, .before = *now, .after = *now};
    s.after.n_only = to->n_only;
    memcpy(s.after.only, to->only, sizeof to->only);
    if (n_common == n_to) s.kind = LOWER_FORGET;
    else if (n_now == 1 && n_common == 1) s.kind = LOWER_BROADCAST;
    else return false;
    w->step[w->n++] = s;
    *now = s.after;
    return true;
}

/* ---- tidying ----------------------------------------------------------------------------------------------- */

static void merge_neighbours(struct lowering *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++) {
        struct lower_step *last = n ? &w->step[n - 1] : NULL, *s = &w->step[i];
        bool same = last && last->kind == s->kind && last->dim == s->dim && s->axis[0].size > 1;
        if (same && (s->kind == LOWER_ALL_REDUCE || s->kind == LOWER_REDUCE_SCATTER || s->kind == LOWER_SLICE)) {
            last->axis[last->n_axes++] = s->axis[0];
            last->after = s->after;
        } else if (same && s->kind == LOWER_ALL_GATHER) { /* the last cut is joined first: it is the innermost */
            memmove(&last->axis[1], &last->axis[0], (size_t)last->n_axes * sizeof last->axis[0]);
            last->axis[0] = s->axis[0];
            last->n_axes++;
            last->after = s->after;
        } else {
            w->step[n++] = *s;
        }
    }
    w->n = n;
}

static int only_pp(const struct lower_step *s)
{
    return s->n_axes == 1 && s->axis[0].axis == AXIS_PP && s->before.n_only;
}

/* Steps over axes of one rank move nothing. */
static void drop_idle(struct lowering *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++) {
        struct lower_step *s = &w->step[i];
        int k = only_pp(s) && s->kind != LOWER_BROADCAST ? s->before.n_only : s->axis[0].size;
        if (k == 1 && s->kind != LOWER_POINT_TO_POINT) continue;
        w->step[n++] = *s;
    }
    w->n = n;
}

static bool is_even(const struct layout *l)
{
    int64_t cuts[SHAPE_MAX_DIMS] = {1, 1, 1, 1, 1};
    for (int i = 0; i < l->n_places; i++) {
        int size = l->place[i].on.axis == AXIS_PP && l->n_only ? l->n_only : l->place[i].on.size;
        if (spmd_is_shard(l->place[i].type)) cuts[l->place[i].type - SPMD_S0] *= size;
    }
    for (int d = 0; d < l->shape.nd; d++)
        if (l->shape.n[d] % cuts[d]) return false;
    return true;
}

/* Collectives move whole pieces of every rank of an axis, cut one index at a time. */
static bool is_plain(const struct layout *l)
{
    for (int i = 0; i < l->n_places; i++)
        if (l->place[i].owner || l->place[i].unit > 1 || l->place[i].on.size > l->place[i].on.of) return false;
    return true;
}

int lower_route(struct lowering *w, const struct layout *from, const struct layout *to, struct err *e)
{
    struct layout now = *from, goal = *to;
    w->n = 0;
    int rc = route_may(from, to, e);
    if (rc) return rc;
    refine(&now, &goal);
    refine(&goal, &now);
    bool same_axes = now.n_places == goal.n_places;
    for (int i = 0; same_axes && i < now.n_places; i++) same_axes = find_place(&goal, now.place[i].on) >= 0;
    /* A tensor that is cut or owed over restricted pp ranks cannot change them by a collective of its own. */
    bool found = same_axes && is_plain(from) && is_plain(to);
    if (found) {
        struct layout target = goal;
        target.n_only = now.n_only;
        memcpy(target.only, now.only, sizeof now.only);
        found = search(w, &now, &target) && change_holders(w, &now, &goal);
    }
    if (!found) {
        w->n = 1;
        w->step[0] = (struct lower_step){.kind = LOWER_POINT_TO_POINT, .before = *from, .after = *to};
        return OK;
    }
    drop_idle(w);
    merge_neighbours(w);
    for (int i = 0; i < w->n; i++) w->step[i].even = is_even(&w->step[i].before) && is_even(&w->step[i].after);
    return OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

int lower_group(const struct lower_step *s, int rank, int *out)
{
    if (s->kind == LOWER_POINT_TO_POINT) {
        for (int r = 0; out && r < s->before.n_ranks; r++) out[r] = r;
        return s->before.n_ranks;
    }
    bool takes_part = layout_holds(&s->before, rank) || layout_holds(&s->after, rank);
    if (!takes_part) return 0;
    int total = mesh_group(s->axis, s->n_axes, rank, NULL), n = 0;
    bool grows = s->kind == LOWER_BROADCAST;
    for (int pass = 0; pass < (grows ? 2 : 1); pass++)
        for (int i = 0; i < total; i++) {
            int r = mesh_group_at(s->axis, s->n_axes, rank, i);
            bool before = layout_holds(&s->before, r), after = layout_holds(&s->after, r);
            if (grows ? (pass == 0 ? before : after && !before) : before) {
                if (out) out[n] = r;
                n++;
            }
        }
    return n;
}

int64_t lower_traffic(const struct lower_step *s, int rank)
{
    int k = lower_group(s, rank, NULL);
    if (k < 2) return 0;
    int64_t before = layout_local_numel(&s->before, rank), after = layout_local_numel(&s->after, rank);
    switch (s->kind) {
    case LOWER_ALL_GATHER: /* in a ring every rank passes on all pieces but its successor's, here taken as its own */
        return after - before;
    case LOWER_REDUCE_SCATTER: return before - after;
    case LOWER_ALL_REDUCE: return 2 * (before - before / k);
    case LOWER_ALL_TO_ALL: return before - before / k;
    case LOWER_BROADCAST: return layout_holds(&s->before, rank) ? before : 0;
    default: return 0;
    }
}

void lower_print(const struct lowering *w, struct str *out)
{
    char axis[48];
    if (!w->n) str_puts(out, "nothing");
    for (int i = 0; i < w->n; i++) {
        const struct lower_step *s = &w->step[i];
        str_printf(out, "%s%s", i ? "; " : "", lower_kind_name(s->kind));
        if (s->kind == LOWER_ALL_TO_ALL) str_printf(out, " dim %d to %d", s->dim_cut, s->dim);
        else if (s->kind == LOWER_SLICE || s->kind == LOWER_ALL_GATHER || s->kind == LOWER_REDUCE_SCATTER)
            str_printf(out, " dim %d", s->dim);
        for (int k = 0; k < s->n_axes; k++)
            str_printf(out, "%s%s", k ? ", " : " over ", mesh_axis_print(axis, s->axis[k]));
    }
}
