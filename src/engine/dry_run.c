/* SPDX-License-Identifier: Apache-2.0 */
/* How many buffers for sending a rank needs. A send is the one step of an itinerary whose end depends on somebody
 * else's speed, so their number is fixed before anything runs: a dry run of all ranks' itineraries, in which a send
 * ends when its receiver posts, proves that nobody waits in a circle; as in schedule_check one dry run decides for all
 * speeds. The fewest buffers with which all come to their end are taken. Cost: O(actions of all ranks) per number
 * tried. */
#include "base/mem.h"
#include "engine/itinerary.h"

enum { RING = 60 }; /* operations under way that are allowed: below COMM_RING of comm/impl.h, with room to spare */

struct message { /* the number-th from one rank to another */
    int from, to, number;
};
struct runner {
    int64_t pc, n_ops;
    struct message ring[RING];
    struct message *of; /* by buffer: the last message through it */
};
struct dry {
    int n;
    struct itinerary *t; /* [n] */
    struct runner *r;    /* [n] */
    int *sent, *posted;  /* [from][to] */
};

static bool is_through(const struct dry *d, const struct message *m)
{
    int at = m->from * d->n + m->to;
    return d->sent[at] > m->number && d->posted[at] > m->number;
}

static bool step_may(const struct dry *d, int rank)
{
    const struct runner *r = &d->r[rank];
    const struct step *x = &d->t[rank].step[r->pc];
    if (x->kind == STEP_ARRIVE || x->kind == STEP_CLEAR) return is_through(d, &r->of[x->buffer]);
    if (x->kind != STEP_POST && x->kind != STEP_SEND) return true;
    return r->n_ops < RING || is_through(d, &r->ring[r->n_ops % RING]);
}

static void step_do(struct dry *d, int rank)
{
    struct runner *r = &d->r[rank];
    const struct step *x = &d->t[rank].step[r->pc++];
    if (x->kind != STEP_POST && x->kind != STEP_SEND) return;
    bool sends = x->kind == STEP_SEND;
    struct message m = {sends ? rank : x->a.peer, sends ? x->a.peer : rank, 0};
    m.number = (sends ? d->sent : d->posted)[m.from * d->n + m.to]++;
    r->of[x->buffer] = r->ring[r->n_ops++ % RING] = m;
}

static bool comes_to_its_end(const struct schedule *s, int n_send)
{
    size_t n = to_size(s->n_ranks);
    struct dry d = {.n = s->n_ranks,
                    .t = xcalloc(n, sizeof *d.t),
                    .r = xcalloc(n, sizeof *d.r),
                    .sent = xcalloc(n * n, sizeof *d.sent),
                    .posted = xcalloc(n * n, sizeof *d.posted)};
    struct stage_use *use = xmalloc(to_size(s->n_stages) * sizeof *use);
    for (int r = 0; r < s->n_ranks; r++) {
        int n_use = 0;
        for (int i = 0; i < s->n_stages; i++)
            if (schedule_has_stage(s, r, i))
                use[n_use++] = (struct stage_use){.stage = i, .in_until = PHASE_W, .dout_until = PHASE_W};
        itinerary_init(&d.t[r], s, r, NULL, NULL, use, n_use, n_send);
        d.r[r].of = xcalloc((size_t)(d.t[r].n_keep + d.t[r].n_send) + 1, sizeof *d.r[r].of);
    }
    bool end = false;
    for (bool moved = true; moved && !end;) {
        moved = false;
        end = true;
        for (int r = 0; r < s->n_ranks; r++) {
            for (; d.r[r].pc < d.t[r].n && step_may(&d, r); moved = true) step_do(&d, r);
            end &= d.r[r].pc == d.t[r].n;
        }
    }
    for (int r = 0; r < s->n_ranks; r++) {
        itinerary_fini(&d.t[r]);
        xfree(d.r[r].of);
    }
    xfree(use);
    xfree(d.t);
    xfree(d.r);
    xfree(d.sent);
    xfree(d.posted);
    return end;
}

int itinerary_choose_sends(const struct schedule *s, int wanted)
{
    int most = RING;
    for (int n = wanted; n <= most; n = n < 8 ? n + 1 : 2 * n)
        if (comes_to_its_end(s, n)) return n;
    return 0;
}
