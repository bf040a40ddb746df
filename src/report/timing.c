/* SPDX-License-Identifier: Apache-2.0 */
/* Every moment of a step belongs to the innermost box around it. A wait is cut in two where the last rank began the
 * operation that it waits for: before that somebody was late, after it bytes travelled. Cost: sorting the boxes. */
#include "report/timing.h"

#include <stdlib.h>
#include <string.h>

#include "report/timing_impl.h"

const char *time_kind_name(enum time_kind k)
{
    static const char *const name[TIME_N] = {"compute", "exposed", "bubble", "late", "other"};
    return name[k];
}

static int by_time(const void *a, const void *b)
{
    const struct timing_span *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to > y->to ? -1 : 1;
    return (int)x->kind - (int)y->kind; /* as they lie in one another */
}

static int by_id(const void *a, const void *b)
{
    const struct timing_part *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->rank - y->rank;
}

/* The last rank to begin an operation, by where it is waited for. */
struct arrival {
    uint64_t of;
    int rank, last;
    int64_t at;
};

static int by_wait(const void *a, const void *b)
{
    const struct arrival *x = a, *y = b;
    if (x->rank != y->rank) return x->rank - y->rank;
    if (x->of != y->of) return x->of < y->of ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static struct arrival *arrivals(struct timing_lines *x)
{
    struct arrival *a = xcalloc(to_size(x->n_parts) + 1, sizeof *a);
    if (x->n_parts) qsort(x->part, to_size(x->n_parts), sizeof *x->part, by_id);
    for (int64_t i = 0, n; i < x->n_parts; i += n) {
        const struct timing_part *last = &x->part[i];
        for (n = 1; i + n < x->n_parts && x->part[i + n].id == x->part[i].id; n++)
            if (x->part[i + n].from > last->from) last = &x->part[i + n];
        for (int64_t k = i; k < i + n; k++)
            a[k] = (struct arrival){.of = x->part[k].of, .rank = x->part[k].rank, .last = last->rank, .at = last->from};
    }
    if (x->n_parts) qsort(a, to_size(x->n_parts), sizeof *a, by_wait);
    return a;
}

/* Of all messages that were waited for together, the one that came last; NULL: the file does not have them. */
static const struct arrival *arrival_of(const struct arrival *a, int64_t n, int rank, uint64_t of)
{
    int64_t lo = 0, hi = n;
    struct arrival key = {.of = of, .rank = rank, .at = INT64_MAX};
    while (lo < hi) { /* the first one behind the key */
        int64_t mid = lo + (hi - lo) / 2;
        if (by_wait(&a[mid], &key) <= 0) lo = mid + 1;
        else hi = mid;
    }
    return lo > 0 && a[lo - 1].rank == rank && a[lo - 1].of == of ? &a[lo - 1] : NULL;
}

/* What has been added up for one rank. */
struct account {
    struct timing *t;
    struct timing_rank *r;
    const struct arrival *arrival;
    int64_t n_arrivals;
    int rank;
    double *action_s; /* [stages][TIME_ACTIONS] */
    int64_t *actions;
};

/* The row of a stage and action. */
static int64_t cell(const struct timing_span *action) { return (int64_t)action->stage * TIME_ACTIONS + action->what; }

/* ns of a box that no inner one covers, ending at `to`. */
static void charge(struct account *a, const struct timing_span *s, int64_t from, int64_t to,
                   const struct timing_span *action)
{
    double all = 1e-9 * (double)(to - from), late = 0;
    enum time_kind kind = s->kind == SPAN_KERNEL ? TIME_COMPUTE : s->kind == SPAN_CALL ? TIME_EXPOSED : TIME_OTHER;
    const struct arrival *v = s->waits ? arrival_of(a->arrival, a->n_arrivals, a->rank, s->of) : NULL;
    if (v && v->at > from) late = v->at < to ? 1e-9 * (double)(v->at - from) : all;
    a->r->s[kind] += all - late;
    if (late > 0) a->r->s[a->t->rank[v->last].pp != a->r->pp ? TIME_BUBBLE : TIME_LATE] += late;
    if (s->kind == SPAN_KERNEL && s->what >= 0) a->t->operation[s->what].s += all;
    if (action && s->kind != SPAN_CALL) {
        a->r->busy_s += all;
        a->action_s[cell(action)] += all;
    }
}

/* The innermost action that is open; NULL: none. */
static const struct timing_span *action_in(const struct timing_span *const *stack, int depth)
{
    while (depth && stack[depth - 1]->kind != SPAN_ACTION) depth--;
    return depth ? stack[depth - 1] : NULL;
}

enum { DEPTH = 64 };
/* One step and the spans in it, in order of time. */
static bool count_step(struct account *a, const struct timing_span *s, int64_t n)
{
    const struct timing_span *stack[DEPTH];
    int depth = 0;
    int64_t at = s[0].from;
    for (int64_t i = 0; i <= n; i++) {
        int64_t now = i < n ? s[i].from : s[0].to;
        while (depth && stack[depth - 1]->to <= now) { /* those that end before */
            if (stack[depth - 1]->to > at)
                charge(a, stack[depth - 1], at, stack[depth - 1]->to, action_in(stack, depth));
            if (stack[depth - 1]->to > at) at = stack[depth - 1]->to;
            depth--;
        }
        if (i == n) break;
        if (depth == DEPTH || (depth && s[i].to > stack[depth - 1]->to)) return false; /* boxes that cross: not ours */
        if (depth && now > at) charge(a, stack[depth - 1], at, now, action_in(stack, depth));
        if (now > at) at = now;
        if (s[i].kind == SPAN_ACTION) a->actions[cell(&s[i])]++;
        stack[depth++] = &s[i];
    }
    return true;
}

/* First and last moment of actions, by step: window[step - first]. */
struct window {
    int64_t from, to;
    bool any;
};

static void note_actions(struct window *w, const struct timing_span *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (s[i].kind != SPAN_ACTION) continue;
        if (!w->any || s[i].from < w->from) w->from = s[i].from;
        if (!w->any || s[i].to > w->to) w->to = s[i].to;
        w->any = true;
    }
}

static int bad_file(const char *what, int rank, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: boxes of rank %d cross each other: the file is damaged, or not one of tutti's",
                   what, rank);
}

enum { STEPS_MOST = 1 << 22 };
static void find_steps(const struct timing_lines *x, struct timing *t)
{
    t->first_step = INT64_MAX;
    t->last_step = 0;
    for (int r = 0; r < t->n_ranks; r++)
        for (int64_t i = 0; i < x->rank[r].n; i++) {
            const struct timing_span *s = &x->rank[r].span[i];
            if (s->kind != SPAN_STEP) continue;
            if (s->step < t->first_step) t->first_step = s->step;
            if (s->step > t->last_step) t->last_step = s->step;
        }
    if (t->first_step > t->last_step) t->first_step = t->last_step = 0;
}

static int count_rank(struct account *a, struct rank_lines *l, struct window *window, const char *what, struct err *e)
{
    for (int64_t i = 0, n; i < l->n; i += n) {
        n = 1;
        if (l->span[i].kind != SPAN_STEP) continue;
        while (i + n < l->n && l->span[i + n].from < l->span[i].to && l->span[i + n].kind != SPAN_STEP) n++;
        if (l->span[i].from < l->whole_from) { /* some of it is missing */
            a->t->left_out++;
            continue;
        }
        if (!count_step(a, &l->span[i], n)) return bad_file(what, a->rank, e);
        a->r->steps++;
        a->r->step_s += 1e-9 * (double)(l->span[i].to - l->span[i].from);
        note_actions(&window[l->span[i].step - a->t->first_step], &l->span[i], n);
    }
    return OK;
}

static int by_seconds(const void *a, const void *b)
{
    const struct timing_operation *x = a, *y = b;
    return (x->s < y->s) - (x->s > y->s);
}

static void summarise(struct timing *t, const struct window *window, int64_t n_windows, const struct account *sum)
{
    int64_t n = 0;
    double whole = 0, busy = 0, per_step = 0;
    for (int64_t i = 0; i < n_windows; i++) {
        if (!window[i].any) continue;
        t->window_s += 1e-9 * (double)(window[i].to - window[i].from);
        n++;
    }
    for (int r = 0; n && r < t->n_ranks; r++) {
        if (t->rank[r].busy_s <= 0) continue; /* a server runs no actions */
        per_step = t->rank[r].steps ? t->rank[r].busy_s / (double)t->rank[r].steps : 0;
        busy += per_step;
        whole += t->window_s / (double)n;
    }
    if (n) t->window_s /= (double)n;
    t->idle_share = whole > 0 ? 1 - busy / whole : 0;
    for (int k = 0; k < TIME_ACTIONS; k++) {
        double s = 0;
        int64_t actions = 0;
        for (int i = 0; i < t->n_stages; i++) {
            int64_t at = (int64_t)i * TIME_ACTIONS + k;
            s += sum->action_s[at];
            actions += sum->actions[at];
            t->stage[i].actions[k] = sum->actions[at];
            t->stage[i].mean_s[k] = sum->actions[at] ? sum->action_s[at] / (double)sum->actions[at] : 0;
        }
        t->mean_s[k] = actions ? s / (double)actions : 0;
    }
    qsort(t->operation, (size_t)t->n_operations, sizeof *t->operation, by_seconds);
}

static int count(struct timing_lines *x, const char *what, struct err *e)
{
    struct timing *t = x->t;
    find_steps(x, t);
    if (t->last_step - t->first_step >= STEPS_MOST)
        return err_set(e, ERR_CORRUPT, "%s: steps %lld to %lld: the file is damaged", what, (long long)t->first_step,
                       (long long)t->last_step);
    struct window *window = xcalloc(to_size(t->last_step - t->first_step) + 1, sizeof *window);
    struct arrival *arrival = arrivals(x);
    size_t cells = to_size(t->n_stages) * TIME_ACTIONS + 1;
    struct account sum = {.action_s = xcalloc(cells, sizeof *sum.action_s),
                          .actions = xcalloc(cells, sizeof *sum.actions)};
    t->stage = xcalloc(to_size(t->n_stages) + 1, sizeof *t->stage);
    int rc = OK;
    for (int r = 0; !rc && r < t->n_ranks; r++) {
        struct rank_lines *l = &x->rank[r];
        struct account a = {.t = t,
                            .r = &t->rank[r],
                            .arrival = arrival,
                            .n_arrivals = x->n_parts,
                            .rank = r,
                            .action_s = sum.action_s,
                            .actions = sum.actions};
        if (l->n) qsort(l->span, to_size(l->n), sizeof *l->span, by_time);
        rc = count_rank(&a, l, window, what, e);
    }
    if (!rc) summarise(t, window, t->last_step - t->first_step + 1, &sum);
    xfree(arrival);
    xfree(window);
    xfree(sum.action_s);
    xfree(sum.actions);
    return rc;
}

static int finish(struct timing *t, struct timing_lines *x, int rc, const char *what, struct err *e)
{
    if (!rc) rc = count(x, what, e);
    lines_free(x);
    if (rc) timing_free(t);
    return rc;
}

int timing_read(struct timing *t, const char *path, struct err *e)
{
    *t = (struct timing){.arena = arena_new(), .schedule = ""};
    struct timing_lines x = {.t = t};
    return finish(t, &x, lines_read_file(&x, path, e), path, e);
}

int timing_parse(struct timing *t, const char *text, size_t n, const char *what, struct err *e)
{
    *t = (struct timing){.arena = arena_new(), .schedule = ""};
    struct timing_lines x = {.t = t};
    return finish(t, &x, lines_read_text(&x, text, n, what, e), what, e);
}

void timing_free(struct timing *t)
{
    xfree(t->rank);
    xfree(t->stage);
    arena_free(t->arena);
    *t = (struct timing){0};
}
