/* SPDX-License-Identifier: Apache-2.0 */
/* The container of a schedule, and the one place that knows what an action needs first.
 *
 * Dependencies are a function of the key (kind, stage, microbatch) and of the placement. The checker and the
 * simulator both ask schedule_needs, so they cannot disagree. Rejected: storing edges in actions, which doubles
 * their size and lets a hand-written schedule lie about what it needs.
 */
#include "schedule/schedule.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct schedule *schedule_new(const char *kind, int n_ranks, int n_stages, int n_microbatches)
{
    CHECK(schedule_limits(n_ranks, n_stages, n_microbatches, NULL) == OK,
          "a schedule of %d ranks, %d stages, %d microbatches", n_ranks, n_stages, n_microbatches);
    struct schedule *s = xcalloc(1, sizeof *s);
    snprintf(s->kind, sizeof s->kind, "%s", kind);
    s->n_ranks = n_ranks;
    s->n_stages = n_stages;
    s->n_microbatches = n_microbatches;
    s->n_chunks = n_stages / n_ranks;
    s->n_ways = 1;
    s->way_from = n_microbatches;
    s->place = xcalloc(to_size(n_stages), sizeof *s->place);
    for (int i = 0; i < n_stages; i++) s->place[i] = (uint16_t)(i % n_ranks);
    s->rank = xcalloc(to_size(n_ranks), sizeof *s->rank);
    return s;
}

int schedule_limits(int n_ranks, int n_stages, int n_microbatches, struct err *e)
{
    if (n_ranks < 1 || n_ranks > SCHEDULE_MAX_RANKS)
        return err_set(e, ERR_REQUEST, "%d pipeline ranks: choose 1 to %d", n_ranks, SCHEDULE_MAX_RANKS);
    if (n_microbatches < 1 || n_microbatches > SCHEDULE_MAX_MICROBATCHES)
        return err_set(e, ERR_REQUEST, "%d microbatches: choose 1 to %d", n_microbatches, SCHEDULE_MAX_MICROBATCHES);
    if (n_stages < 1 || n_stages > SCHEDULE_MAX_STAGES)
        return err_set(e, ERR_REQUEST, "%d stages: choose 1 to %d", n_stages, SCHEDULE_MAX_STAGES);
    if (n_stages % n_ranks)
        return err_set(e, ERR_REQUEST, "%d stages do not divide over %d ranks: choose %d or %d stages", n_stages,
                       n_ranks, n_stages < n_ranks ? n_ranks : n_stages - n_stages % n_ranks,
                       n_stages - n_stages % n_ranks + n_ranks);
    if ((int64_t)n_stages * n_microbatches > SCHEDULE_MAX_PIECES)
        return err_set(e, ERR_REQUEST, "%d stages x %d microbatches: choose at most %d together", n_stages,
                       n_microbatches, SCHEDULE_MAX_PIECES);
    return OK;
}

void schedule_free(struct schedule *s)
{
    if (!s) return;
    for (int r = 0; r < s->n_ranks; r++) xfree(s->rank[r].a);
    xfree(s->rank);
    xfree(s->place);
    xfree(s);
}

void schedule_place(struct schedule *s, int way, int stage, int rank)
{
    CHECK(way >= 0 && way < s->n_ways && stage >= 0 && stage < s->n_stages && rank >= 0 && rank < s->n_ranks,
          "placing stage %d of way %d on rank %d", stage, way, rank);
    s->place[way * s->n_stages + stage] = (uint16_t)rank;
}

void schedule_add_way(struct schedule *s, int way_from)
{
    CHECK(s->n_ways == 1 && way_from > 0 && way_from < s->n_microbatches, "way 1 from microbatch %d of %d", way_from,
          s->n_microbatches);
    s->n_ways = 2;
    s->way_from = way_from;
    s->place = xrealloc(s->place, 2 * to_size(s->n_stages) * sizeof *s->place);
    memcpy(s->place + s->n_stages, s->place, to_size(s->n_stages) * sizeof *s->place);
}

void schedule_push(struct schedule *s, int rank, struct action a)
{
    CHECK(rank >= 0 && rank < s->n_ranks && a.kind < ACTION_N && a.stage < s->n_stages &&
              a.microbatch < s->n_microbatches,
          "%s stage %d microbatch %d on rank %d is outside the schedule", action_name((enum action_kind)a.kind),
          a.stage, a.microbatch, rank);
    struct action_list *l = &s->rank[rank];
    GROW(l->a, l->n, l->room, 1);
    l->a[l->n++] = a;
}

int schedule_rank_of(const struct schedule *s, int stage, int microbatch)
{
    return s->place[(microbatch >= s->way_from ? s->n_stages : 0) + stage];
}

bool schedule_has_stage(const struct schedule *s, int rank, int stage)
{
    for (int w = 0; w < s->n_ways; w++)
        if (s->place[w * s->n_stages + stage] == rank) return true;
    return false;
}

bool schedule_has(const struct schedule *s, enum action_kind kind)
{
    for (int r = 0; r < s->n_ranks; r++)
        for (int64_t i = 0; i < s->rank[r].n; i++)
            if (s->rank[r].a[i].kind == kind) return true;
    return false;
}

bool schedule_equal(const struct schedule *a, const struct schedule *b)
{
    if (strcmp(a->kind, b->kind) || a->n_ranks != b->n_ranks || a->n_stages != b->n_stages ||
        a->n_microbatches != b->n_microbatches || a->n_chunks != b->n_chunks || a->forward_only != b->forward_only ||
        a->n_ways != b->n_ways || a->way_from != b->way_from ||
        memcmp(a->place, b->place, to_size(a->n_ways * a->n_stages) * sizeof *a->place))
        return false;
    for (int r = 0; r < a->n_ranks; r++) {
        if (a->rank[r].n != b->rank[r].n) return false;
        for (int64_t i = 0; i < a->rank[r].n; i++)
            if (!action_equal(a->rank[r].a[i], b->rank[r].a[i])) return false;
    }
    return true;
}

/* One row of needs: kind k of a stage, or of its neighbour in the pipeline. */
struct need {
    int8_t kind;      /* enum action_kind; -1: none */
    int8_t neighbour; /* 0: the same stage; -1: before; +1: after */
    int8_t message;   /* the RECV on a's own rank that stands for it where it crosses ranks; -1: always direct */
};

static const struct need needs[ACTION_N][2] = {
    [ACTION_F] = {{ACTION_F, -1, ACTION_RECV_F}, {-1, 0, 0}},
    [ACTION_B] = {{ACTION_F, 0, -1}, {ACTION_B, +1, ACTION_RECV_B}},
    [ACTION_BW] = {{ACTION_F, 0, -1}, {ACTION_B, +1, ACTION_RECV_B}},
    [ACTION_W] = {{ACTION_B, 0, -1}, {-1, 0, 0}},
    [ACTION_RECV_F] = {{ACTION_SEND_F, -1, -1}, {-1, 0, 0}},
    [ACTION_SEND_F] = {{ACTION_F, 0, -1}, {-1, 0, 0}},
    [ACTION_RECV_B] = {{ACTION_SEND_B, +1, -1}, {-1, 0, 0}},
    [ACTION_SEND_B] = {{ACTION_B, 0, -1}, {-1, 0, 0}},
    [ACTION_GATHER] = {{-1, 0, 0}, {-1, 0, 0}},
    [ACTION_RELEASE] = {{-1, 0, 0}, {-1, 0, 0}},
    [ACTION_REDUCE] = {{-1, 0, 0}, {-1, 0, 0}},
    [ACTION_RECOMPUTE] = {{ACTION_F, 0, -1}, {-1, 0, 0}},
    [ACTION_UPDATE] = {{-1, 0, 0}, {-1, 0, 0}},
    [ACTION_PUBLISH] = {{-1, 0, 0}, {-1, 0, 0}},
};

int schedule_needs(const struct schedule *s, struct action a, bool has_comm, struct action out[2], bool crosses[2])
{
    int n = 0, here = schedule_rank_of(s, a.stage, a.microbatch);
    for (int i = 0; i < 2; i++) {
        struct need d = needs[a.kind][i];
        int stage = a.stage + d.neighbour;
        if (d.kind < 0 || stage < 0 || stage >= s->n_stages) continue;
        bool cross = schedule_rank_of(s, stage, a.microbatch) != here;
        if (cross && has_comm && d.message >= 0) {
            out[n] = action_of((enum action_kind)d.message, a.stage, a.microbatch);
            cross = false;
        } else {
            out[n] = action_of((enum action_kind)d.kind, stage, a.microbatch);
        }
        crosses[n++] = cross;
    }
    return n;
}
