/* SPDX-License-Identifier: Apache-2.0 */
/* Passes: what generators leave out, put in by rule. Each rewrites every rank's list once, from left to right.
 *
 * Communication goes where the data appears and where it is needed. Posting receives early and letting sends fly is
 * the executor's business: it may post any RECV whose turn is near, because messages are matched by key.
 */
#include <string.h>

#include "base/mem.h"
#include "schedule/schedule.h"

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

/* The stage whose parameters the next computing action at or after i uses; -1: none. */
static int next_stage(const struct action_list *l, int64_t i)
{
    for (; i < l->n; i++)
        if (action_is_compute((enum action_kind)l->a[i].kind)) return l->a[i].stage;
    return -1;
}

void schedule_add_gather(struct schedule *s, bool keep)
{
    uint8_t *whole = xmalloc(to_size(s->n_stages));
    int64_t *last = xmalloc(to_size(s->n_stages) * sizeof *last);
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list old = take_list(s, r);
        memset(whole, 0, to_size(s->n_stages));
        for (int64_t i = 0; i < old.n; i++)
            if (action_is_compute((enum action_kind)old.a[i].kind)) last[old.a[i].stage] = i;
        for (int64_t i = 0; i < old.n; i++) {
            struct action a = old.a[i];
            bool compute = action_is_compute((enum action_kind)a.kind);
            if (compute && !whole[a.stage]) {
                schedule_push(s, r, action_of(ACTION_GATHER, a.stage, 0));
                whole[a.stage] = 1;
            }
            schedule_push(s, r, a);
            if (compute && (keep ? last[a.stage] == i : next_stage(&old, i + 1) != a.stage)) {
                schedule_push(s, r, action_of(ACTION_RELEASE, a.stage, 0));
                whole[a.stage] = 0;
            }
        }
        xfree(old.a);
    }
    xfree(last);
    xfree(whole);
}

/* A GATHER cannot pass its own stage's RELEASE. Gathers of two stages keep their order. */
void schedule_prefetch(struct schedule *s, int ahead)
{
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list *l = &s->rank[r];
        for (int64_t i = 0; i < l->n; i++) {
            struct action gather = l->a[i];
            if (gather.kind != ACTION_GATHER) continue;
            int64_t to = i;
            for (int64_t j = i - 1, passed = 0; j >= 0 && passed < ahead; j--) {
                struct action above = l->a[j];
                if (above.kind == ACTION_GATHER || (above.kind == ACTION_RELEASE && above.stage == gather.stage))
                    break;
                if (!action_is_compute((enum action_kind)above.kind)) continue;
                to = j;
                passed++;
            }
            memmove(&l->a[to + 1], &l->a[to], to_size(i - to) * sizeof *l->a);
            l->a[to] = gather;
        }
    }
}

void schedule_add_reduce(struct schedule *s)
{
    int64_t *last = xmalloc(to_size(s->n_stages) * sizeof *last);
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list old = take_list(s, r);
        for (int i = 0; i < s->n_stages; i++) last[i] = -1;
        for (int64_t i = 0; i < old.n; i++)
            if (old.a[i].kind == ACTION_W || old.a[i].kind == ACTION_BW) last[old.a[i].stage] = i;
        for (int64_t i = 0; i < old.n; i++) {
            schedule_push(s, r, old.a[i]);
            if (last[old.a[i].stage] == i) schedule_push(s, r, action_of(ACTION_REDUCE, old.a[i].stage, 0));
        }
        xfree(old.a);
    }
    xfree(last);
}

void schedule_add_recompute(struct schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        struct action_list old = take_list(s, r);
        for (int64_t i = 0; i < old.n; i++) {
            struct action a = old.a[i];
            if (a.kind == ACTION_B || a.kind == ACTION_BW)
                schedule_push(s, r, action_of(ACTION_RECOMPUTE, a.stage, a.microbatch));
            schedule_push(s, r, a);
        }
        xfree(old.a);
    }
}
