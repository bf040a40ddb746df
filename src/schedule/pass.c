/* SPDX-License-Identifier: Apache-2.0 */
/* Passes: what generators leave out, put in by rule. Each rewrites every rank's list once, from left to right.
 *
 * Communication goes where the data appears and where it is needed. Posting receives early and letting sends fly is
 * the executor's business: it may post any RECV whose turn is near, because messages are matched by key.
 */
#include <string.h>

#include "base/mem.h"
#include "schedule/parts.h"

/* A rank's list under rewriting: the old one is read, the new one grows in the schedule. */
static struct action_list take_list(struct schedule *s, int rank)
{
    struct action_list old = s->rank[rank];
    s->rank[rank] = (struct action_list){0};
    return old;
}

void schedule_split_backward(struct schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list old = take_list(s, r);
        for (int64_t i = 0; i < old.n; i++) {
            struct action a = old.a[i];
            if (a.kind == ACTION_BW) {
                a.kind = ACTION_B;
                schedule_push(s, r, a);
                a.kind = ACTION_W;
            }
            schedule_push(s, r, a);
        }
        xfree(old.a);
    }
}

void schedule_fuse_backward(struct schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list old = take_list(s, r);
        for (int64_t i = 0; i < old.n; i++) {
            struct action a = old.a[i], w = a;
            w.kind = ACTION_W;
            if (a.kind == ACTION_B && i + 1 < old.n && action_equal(old.a[i + 1], w)) {
                a.kind = ACTION_BW;
                i++;
            }
            schedule_push(s, r, a);
        }
        xfree(old.a);
    }
}

/* Pushes the message `kind` of a's piece when the neighbour `step` stages on lives on another rank. */
static void push_message(struct schedule *s, int rank, struct action a, enum action_kind kind, int step)
{
    int stage = a.stage + step;
    if (stage < 0 || stage >= s->n_stages) return;
    int other = schedule_rank_of(s, stage, a.microbatch);
    if (other == rank) return;
    struct action msg = action_of(kind, a.stage, a.microbatch);
    msg.peer = (uint16_t)other;
    schedule_push(s, rank, msg);
}

void schedule_add_comm(struct schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list old = take_list(s, r);
        for (int64_t i = 0; i < old.n; i++) {
            struct action a = old.a[i];
            bool f = a.kind == ACTION_F, b = a.kind == ACTION_B || a.kind == ACTION_BW;
            if (f) push_message(s, r, a, ACTION_RECV_F, -1);
            if (b) push_message(s, r, a, ACTION_RECV_B, +1);
            schedule_push(s, r, a);
            if (f) push_message(s, r, a, ACTION_SEND_F, +1);
            if (b) push_message(s, r, a, ACTION_SEND_B, -1);
        }
        xfree(old.a);
    }
}

/* ---- what else a rank does ---- */
static bool has_weights(const struct schedule *s, int rank, int stage)
{
    for (int64_t i = 0; i < s->rank[rank].n; i++)
        if (s->rank[rank].a[i].kind == ACTION_W && s->rank[rank].a[i].stage == stage) return true;
    return false;
}

/* A stage as one unit: read by F and B, its gradient made by the last phase. */
enum { USES = 3 };
struct plain {
    bool again[2];
    struct part_use use[USES];
};

static void plain_stage(struct stage_parts *g, struct plain *x, int unit, int stage, bool split, bool recompute)
{
    int n_b = recompute ? 2 : 1;
    *x = (struct plain){.again = {recompute, false},
                        .use = {{.phase = ACTION_F, .unit = unit},
                                {.phase = ACTION_B, .unit = unit, .last = n_b - 1},
                                {.phase = split ? ACTION_W : ACTION_B,
                                 .unit = unit,
                                 .writes = true,
                                 .first = split ? 0 : n_b - 1,
                                 .last = split ? 0 : n_b - 1}}};
    *g = (struct stage_parts){.stage = stage, .n = {1, n_b, split}, .again = x->again, .use = x->use, .n_use = USES};
}

/* The list with parts and units, told by whole stages again. */
static void put_whole(struct schedule *s, int rank, const struct action_list *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        struct action a = l->a[i], before = i ? l->a[i - 1] : a;
        bool message = action_has_peer((enum action_kind)a.kind);
        if (!message) a.part = ACTION_WHOLE;
        for (int64_t k = i - 1; k >= 0 && !action_is_compute((enum action_kind)before.kind); k--) before = l->a[k];
        if (!message) before.part = ACTION_WHOLE;
        bool more = i && a.kind == ACTION_BW && action_equal(before, a); /* its second part */
        if (!more) schedule_push(s, rank, a);
    }
}

void schedule_add_moves(struct schedule *s, struct schedule_moves m)
{
    struct stage_parts *g = xcalloc(to_size(s->n_stages), sizeof *g);
    struct plain *x = xcalloc(to_size(s->n_stages), sizeof *x);
    int *stage = xcalloc(to_size(s->n_stages), sizeof *stage);
    struct schedule_peak *peak = xcalloc(to_size(s->n_ranks), sizeof *peak);
    struct action_list *all = xcalloc(to_size(s->n_ranks), sizeof *all);
    CHECK(!schedule_check(s, peak, NULL), "moves for a schedule that was not checked");
    for (int r = 0; r < s->n_ranks; r++) {
        struct rank_parts p = {.stage = g,
                               .rule = {.gather = m.gather,
                                        .reduce = m.reduce && !s->forward_only,
                                        .temporary = m.each,
                                        .by_phase = peak[r].both > 1,
                                        .update = m.update && !s->forward_only,
                                        .publish = m.publish && !s->forward_only},
                               .unit_stage = stage};
        for (int i = 0; i < s->n_stages; i++)
            if (schedule_has_stage(s, r, i)) {
                stage[p.n_stages] = i;
                plain_stage(&g[p.n_stages], &x[p.n_stages], p.n_stages, i, has_weights(s, r, i), m.recompute);
                p.n_stages++;
            }
        p.n_units = p.n_stages;
        struct err e = {0};
        CHECK(!schedule_list(&all[r], s, r, &p, &e) && !schedule_check_list(&all[r], s, r, &p, &e), "%s", e.text);
    }
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list old = take_list(s, r);
        put_whole(s, r, &all[r]);
        xfree(old.a);
        xfree(all[r].a);
    }
    xfree(all);
    xfree(peak);
    xfree(stage);
    xfree(g);
    xfree(x);
}
