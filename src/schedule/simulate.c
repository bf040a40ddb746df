/* SPDX-License-Identifier: Apache-2.0 */
/* When each action runs, if F, B, W and messages take what they are said to take.
 *
 * Each rank goes through its list in order; an action starts when the rank is free and what it needs has ended, plus
 * the time of a message where that ended on another rank. Sends, receives and parameter traffic take no time of the
 * rank: they run beside it. Updates begin when all ranks have computed all, because the norm of the gradients of all
 * lies between; a PUBLISH leaves at the end of its UPDATE. With fixed lists the start times are a longest path, found
 * by letting ranks advance as far as they can, over and over. Cost: O(actions + sweeps x ranks).
 */
#include <string.h>

#include "base/mem.h"
#include "schedule/schedule.h"

struct simulation {
    const struct schedule *s;
    const struct schedule_cost *cost;
    bool has_comm, has_again;
    double *end; /* [ACTION_N][stages][microbatches]; -1: has not run */
};

static double *end_of(struct simulation *sim, struct action a)
{
    return &sim->end[((int64_t)a.kind * sim->s->n_stages + a.stage) * sim->s->n_microbatches + a.microbatch];
}

static double of_stage(const struct simulation *sim, struct action a)
{
    const struct schedule_stage_cost *c = &sim->cost->each[a.stage];
    double again = sim->has_again ? 0 : c->again;
    switch (a.kind) {
    case ACTION_F: return c->f;
    case ACTION_B: return c->b + again;
    case ACTION_W: return c->w;
    case ACTION_BW: return (c->bw > 0 ? c->bw : c->b + c->w) + again;
    case ACTION_RECOMPUTE: return c->again;
    case ACTION_UPDATE: return c->update;
    default: return 0;
    }
}

static double duration(const struct simulation *sim, struct action a)
{
    const struct schedule_cost *c = sim->cost;
    if (c->each) return of_stage(sim, a);
    double whole = a.kind == ACTION_F || a.kind == ACTION_RECOMPUTE ? c->f
                   : a.kind == ACTION_B                             ? c->b
                   : a.kind == ACTION_W                             ? c->w
                   : a.kind == ACTION_BW                            ? c->b + c->w
                   : a.kind == ACTION_UPDATE                        ? c->update
                                                                    : 0;
    return whole / sim->s->n_chunks * (c->stage ? c->stage[a.stage] : 1);
}

/* The earliest start by what a needs; -1: something has not run yet. */
static double needed_until(struct simulation *sim, struct action a)
{
    struct action needed[2];
    bool crosses[2];
    double t = 0;
    int n = schedule_needs(sim->s, a, sim->has_comm, needed, crosses);
    for (int i = 0; i < n; i++) {
        double end = *end_of(sim, needed[i]);
        if (end < 0) return -1;
        if (crosses[i]) end += sim->cost->comm;
        if (end > t) t = end;
    }
    return t;
}

static void note_end(struct simulation *sim, struct action a, double end)
{
    *end_of(sim, a) = end;
    if (a.kind != ACTION_BW) return;
    a.kind = ACTION_B;
    *end_of(sim, a) = end;
    a.kind = ACTION_W;
    *end_of(sim, a) = end;
}

static bool holds_rank(struct action a)
{
    return action_is_compute((enum action_kind)a.kind) || a.kind == ACTION_UPDATE;
}

static bool after_norm(struct action a) { return a.kind == ACTION_UPDATE || a.kind == ACTION_PUBLISH; }

/* All that computes has run: nobody goes on before the last rank is there. */
static void meet(double *free_at, int n)
{
    double latest = 0;
    for (int r = 0; r < n; r++) latest = free_at[r] > latest ? free_at[r] : latest;
    for (int r = 0; r < n; r++) free_at[r] = latest;
}

static void advance_all(struct simulation *sim, struct schedule_timeline *t)
{
    const struct schedule *s = sim->s;
    int64_t *pc = xcalloc(to_size(s->n_ranks), sizeof *pc), left = 0;
    double *free_at = xcalloc(to_size(s->n_ranks), sizeof *free_at);
    bool met = false;
    for (int r = 0; r < s->n_ranks; r++) left += s->rank[r].n;
    for (bool moved = true; moved && left;) {
        moved = false;
        for (int r = 0; r < s->n_ranks; r++)
            for (; pc[r] < s->rank[r].n; pc[r]++, left--, moved = true) {
                struct action a = s->rank[r].a[pc[r]];
                if (after_norm(a) && !met) break;
                double start = needed_until(sim, a);
                if (start < 0) break;
                /* A receive is posted early and a send flies alone: neither holds the rank up. */
                if ((holds_rank(a) || after_norm(a)) && start < free_at[r]) start = free_at[r];
                double end = start + duration(sim, a);
                t->at[r][pc[r]] = (struct schedule_time){start, end};
                note_end(sim, a, end);
                if (holds_rank(a)) free_at[r] = end;
            }
        if (!moved && !met) {
            meet(free_at, s->n_ranks);
            met = moved = true;
        }
    }
    CHECK(left == 0, "%lld actions never start: the schedule was not checked", (long long)left);
    xfree(pc);
    xfree(free_at);
}

static void summarise(const struct simulation *sim, struct schedule_timeline *t)
{
    const struct schedule *s = sim->s;
    double first = 0, last = 0;
    bool any = false;
    for (int r = 0; r < s->n_ranks; r++) {
        double work = 0, begin = 0, end = 0;
        bool here = false;
        for (int64_t i = 0; i < s->rank[r].n; i++) {
            struct action a = s->rank[r].a[i];
            if (!holds_rank(a) || (a.kind == ACTION_UPDATE && duration(sim, a) <= 0)) continue;
            work += duration(sim, a);
            if (!here) begin = t->at[r][i].start_s;
            end = t->at[r][i].end_s;
            here = true;
        }
        t->idle[r] = -work; /* the makespan is not known yet */
        if (!here) continue;
        if (work > t->ideal) t->ideal = work;
        if (end - begin > t->period) t->period = end - begin;
        if (!any || begin < first) first = begin;
        if (end > last) last = end;
        any = true;
    }
    t->makespan = last - first;
    for (int r = 0; r < s->n_ranks; r++) {
        t->idle[r] += t->makespan;
        t->idle_share += t->makespan > 0 ? t->idle[r] / t->makespan / s->n_ranks : 0;
    }
    t->bubble_ratio = t->ideal > 0 ? (t->makespan - t->ideal) / t->ideal : 0;
    t->period_bubble_ratio = t->ideal > 0 ? (t->period - t->ideal) / t->ideal : 0;
}

/* What a rank's stages take together, the mean over ranks: for those who print what was simulated. */
static void mean_cost(struct schedule_timeline *t, const struct schedule *s)
{
    const struct schedule_stage_cost *x = t->cost.each;
    t->cost.f = t->cost.b = t->cost.w = t->cost.update = 0;
    for (int i = 0; i < s->n_stages; i++) {
        t->cost.f += x[i].f / s->n_ranks;
        t->cost.b += (x[i].b + x[i].again) / s->n_ranks;
        t->cost.w += x[i].w / s->n_ranks;
        t->cost.update += x[i].update / s->n_ranks;
    }
    t->cost.each = NULL;
}

void schedule_simulate(const struct schedule *s, const struct schedule_cost *c, struct schedule_timeline *t)
{
    size_t keys = (size_t)ACTION_N * to_size(s->n_stages) * to_size(s->n_microbatches);
    struct simulation sim = {.s = s, .cost = c, .end = xmalloc(keys * sizeof(double))};
    for (size_t i = 0; i < keys; i++) sim.end[i] = -1;
    sim.has_again = schedule_has(s, ACTION_RECOMPUTE);
    sim.has_comm = schedule_has(s, ACTION_RECV_F) || schedule_has(s, ACTION_RECV_B);
    *t = (struct schedule_timeline){.n_ranks = s->n_ranks,
                                    .cost = *c,
                                    .at = xcalloc(to_size(s->n_ranks), sizeof *t->at)};
    t->idle = xcalloc(to_size(s->n_ranks), sizeof *t->idle);
    for (int r = 0; r < s->n_ranks; r++) t->at[r] = xcalloc(to_size(s->rank[r].n) + 1, sizeof **t->at);
    advance_all(&sim, t);
    summarise(&sim, t);
    if (t->cost.each) mean_cost(t, s);
    t->cost.stage = NULL;
    xfree(sim.end);
}

void schedule_timeline_fini(struct schedule_timeline *t)
{
    for (int r = 0; r < t->n_ranks; r++) xfree(t->at[r]);
    xfree(t->at);
    xfree(t->idle);
    *t = (struct schedule_timeline){0};
}
