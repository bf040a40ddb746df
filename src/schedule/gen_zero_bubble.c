/* SPDX-License-Identifier: Apache-2.0 */
/* Zero-bubble schedules: the weight half of backward waits for nobody, so it goes where a rank would idle.
 *
 * zbh1   1f1b, in which rank r puts its weight halves off by r microbatches. The gradient travels up without waiting
 *        for them, and they fill the end: bubble (p-1)(F+B-W) with the memory of 1f1b (what a rank near the end saves
 *        in activations it spends on inputs of weight halves).
 * zbh2   more forwards first, so that no rank waits for its first gradient: no bubble within a rank's own span where
 *        F = B = W, with 2p-1 microbatches alive instead of p. Ranks start and end shifted against each other, so the
 *        next step must begin without a meeting of all. Made by list scheduling: B before F before W, under two caps.
 * zbv    two chunks per rank in a V. The rank that starts the pipeline also ends it, so warm-up and cool-down of one
 *        arm fill those of the other; memory is even over ranks and that of 1f1b.
 *
 * (Qi et al., "Zero bubble pipeline parallelism", 2023, table 2 and section 6; Qi et al., "Pipeline parallelism with
 * controllable memory", 2024.) Rejected: list scheduling for all three; it loses ticks of zbh1 and zbv at most sizes.
 */
#include <string.h>

#include "base/mem.h"
#include "schedule/generator.h"

static int min(int a, int b) { return a < b ? a : b; }

struct schedule *schedule_gen_zbh1(int n_ranks, int n_microbatches, int n_chunks)
{
    int p = n_ranks, m = n_microbatches;
    struct schedule *s = schedule_new("zbh1", p, p * n_chunks, m);
    for (int r = 0; r < p; r++) {
        int f = min(p - r, m);
        for (int i = 0; i < f; i++) schedule_push(s, r, action_of(ACTION_F, r, i));
        for (int b = 0; b < m + r; b++) { /* the last r rounds have only weight halves left */
            if (b < m) schedule_push(s, r, action_of(ACTION_B, r, b));
            if (b >= r) schedule_push(s, r, action_of(ACTION_W, r, b - r));
            if (f < m) schedule_push(s, r, action_of(ACTION_F, r, f++));
        }
    }
    return s;
}

/* ---- zbh2: list scheduling -------------------------------------------------------------------------------- */

/* Time runs in ticks of one action; stage r is rank r. */
struct greedy {
    struct schedule *s;
    int *next[3];    /* [ranks]: next microbatch of F, B, W */
    int *done_at[2]; /* [ranks][microbatches]: tick at which F, B was over; -1: not yet */
};

static bool over(const struct greedy *g, int kind, int rank, int m, int tick)
{
    int at = g->done_at[kind][(int64_t)rank * g->s->n_microbatches + m];
    return at >= 0 && at <= tick;
}

/* The most urgent action that the rank can start now and has memory for; -1: it idles. B and F are urgent because
 * another rank waits for them, B more so because it gives memory back. */
static int pick(const struct greedy *g, int r, int tick)
{
    int p = g->s->n_ranks, m = g->s->n_microbatches, f = g->next[ACTION_F][r], b = g->next[ACTION_B][r],
        w = g->next[ACTION_W][r];
    if (b < m && over(g, ACTION_F, r, b, tick) && (r == p - 1 || over(g, ACTION_B, r + 1, b, tick))) return ACTION_B;
    if (f < m && (r == 0 || over(g, ACTION_F, r - 1, f, tick)) && f - b < 2 * (p - r) - 1 && f - w < 2 * p - 1)
        return ACTION_F;
    return w < b ? ACTION_W : -1;
}

struct schedule *schedule_gen_zbh2(int n_ranks, int n_microbatches, int n_chunks)
{
    int p = n_ranks, m = n_microbatches;
    size_t pieces = to_size(p) * to_size(m);
    _Static_assert(ACTION_F == 0 && ACTION_B == 1 && ACTION_W == 2, "kinds index the tables");
    struct greedy g = {.s = schedule_new("zbh2", p, p * n_chunks, m)};
    int *next = xcalloc(3 * to_size(p), sizeof *next), *done_at = xmalloc(2 * pieces * sizeof *done_at);
    memset(done_at, 0xff, 2 * pieces * sizeof *done_at);
    for (int k = 0; k < 3; k++) g.next[k] = next + k * p;
    for (int k = 0; k < 2; k++) g.done_at[k] = done_at + (size_t)k * pieces;
    int64_t left = 3 * (int64_t)pieces;
    for (int tick = 0; left; tick++)
        for (int r = 0; r < p; r++) {
            int kind = pick(&g, r, tick);
            if (kind < 0) continue;
            int mb = g.next[kind][r]++;
            schedule_push(g.s, r, action_of((enum action_kind)kind, r, mb));
            if (kind != ACTION_W) g.done_at[kind][(int64_t)r * m + mb] = tick + 1;
            left--;
        }
    xfree(next);
    xfree(done_at);
    return g.s;
}

/* ---- zbv --------------------------------------------------------------------------------------------------- */

/* A rank's two arms: 0 on the way down, 1 on the way back up. */
struct arms {
    struct schedule *s;
    int rank, n;    /* n: microbatches the pattern is written for */
    int next[3][2]; /* of F, B, W on each arm */
};

/* The pattern is written for at least 2p-1 microbatches; those that do not exist are passed over. */
static void push_next(struct arms *v, enum action_kind kind, int arm)
{
    int m = v->next[kind][arm]++, stage = arm ? v->s->n_stages - 1 - v->rank : v->rank;
    if (m < v->s->n_microbatches) schedule_push(v->s, v->rank, action_of(kind, stage, m));
}

static void push_backward(struct arms *v, int arm)
{
    push_next(v, ACTION_B, arm);
    push_next(v, ACTION_W, arm);
}

static void fill_v(struct arms *v, int p, int r)
{
    for (int i = 0; i < 2 * (p - r) - 1; i++) push_next(v, ACTION_F, 0);
    for (int i = 0; i < r; i++) {
        push_next(v, ACTION_F, 1);
        push_next(v, ACTION_F, 0);
    }
    for (int i = 0; i < p - r; i++) {
        push_next(v, ACTION_F, 1);
        push_backward(v, 1);
    }
    while (v->next[ACTION_F][1] < v->next[ACTION_F][0] || v->next[ACTION_F][0] < v->n) {
        if (v->next[ACTION_F][0] < v->n) push_next(v, ACTION_F, 0);
        push_backward(v, 0);
        push_next(v, ACTION_F, 1);
        push_backward(v, 1);
    }
    for (int i = 0; i < r; i++) {
        push_next(v, ACTION_B, 0);
        push_next(v, ACTION_B, 1);
    }
    for (int i = 0; i < p - r; i++) push_backward(v, 0);
    for (int arm = 1; arm >= 0; arm--)
        while (v->next[ACTION_W][arm] < v->n) push_next(v, ACTION_W, arm);
}

struct schedule *schedule_gen_zbv(int n_ranks, int n_microbatches, int n_chunks)
{
    int p = n_ranks, least = 2 * p - 1;
    struct schedule *s = schedule_new("zbv", p, p * n_chunks, n_microbatches);
    schedule_place_v(s);
    for (int r = 0; r < p; r++) {
        struct arms v = {.s = s, .rank = r, .n = n_microbatches > least ? n_microbatches : least};
        fill_v(&v, p, r);
    }
    return s;
}
