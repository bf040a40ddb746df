/* late.c: who is everybody waiting for? Asked now and then by ranks that wait in vain.
 *
 * An operation that has waited longer than the timeout names the ranks that are missing: those that have not come to
 * its meeting, or the peers of messages that did not arrive; what each was last doing is on the board. A missing rank
 * that has left the world for good is reported at once. The first report becomes the job's cause.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/impl.h"

/* Marks the ranks of c that hold up o; returns how many. */
static int missing(struct comm *c, const struct op *o, bool *out)
{
    int n = 0;
    for (int r = 0; r < c->size; r++) out[r] = false;
    if (o->stage == OP_ENTER || o->stage == OP_FULL)
        for (int r = 0; r < c->size; r++) out[r] = r != c->rank && !meet_arrived(c->meet, o->meet, r);
    for (int r = 0; o->stage == OP_SHARED && c->w->ops->behind && r < c->size; r++)
        out[r] = r != c->rank && c->w->ops->behind(c, r);
    for (int i = 0; i < o->n_req; i++)
        if (!o->req[i].done) out[o->req[i].peer] = true;
    for (int r = 0; r < c->size; r++) n += out[r];
    return n;
}

static void describe(struct world *w, int rank, struct str *s)
{
    char text[BOARD_TEXT];
    int row = world_row(w, rank);
    if (row < 0) str_printf(s, "; rank %d is on another host", rank);
    else str_printf(s, "; rank %d %s", rank, board_doing(w->board, row, text));
}

static void report(struct comm *c, const struct op *o, const bool *late, bool left, double waited_s)
{
    struct str names = {0}, there = {0}, doing = {0};
    char text[DESC_TEXT];
    int n = 0;
    for (int r = 0; r < c->size; r++) {
        struct str *s = late[r] ? &names : &there;
        str_printf(s, "%s%d", s->n ? ", " : "", c->world_rank[r]);
        if (late[r] && n++ < 2) describe(c->w, c->world_rank[r], &doing);
    }
    struct err e;
    err_set(&e, left ? ERR_STOPPED : ERR_IO, "rank%s %s %s: %s has waited %.2f s for %s (here: %s)%s",
            n > 1 ? "s" : "", str_text(&names), left ? "left before the others were done" : n > 1 ? "are late" : "is late",
            desc_print(text, &o->desc), waited_s, n > 1 ? "them" : "it", str_text(&there), str_text(&doing));
    str_free(&names);
    str_free(&there);
    str_free(&doing);
    world_fail(c->w, &e);
}

static bool any_left(struct comm *c, bool *late)
{
    bool any = false;
    for (int r = 0; r < c->size; r++) {
        int row = world_row(c->w, c->world_rank[r]);
        if (late[r]) late[r] = row >= 0 && board_left(c->w->board, row);
        any |= late[r];
    }
    return any;
}

static bool comm_check(struct comm *c, double now)
{
    int64_t last = atomic_load_explicit(&c->submitted, memory_order_acquire);
    bool *late = c->late;
    for (int64_t t = c->open; t <= last; t++) {
        struct op *o = &c->ring[t % COMM_RING];
        if (atomic_load_explicit(&o->done, memory_order_relaxed) >= t || o->stage == OP_QUEUED) continue;
        double waited_s = now - o->begun_s;
        if (!missing(c, o, late)) continue;
        if (waited_s > c->w->cfg.timeout_s) {
            report(c, o, late, false, waited_s);
            return true;
        }
        if (any_left(c, late)) {
            report(c, o, late, true, waited_s);
            return true;
        }
    }
    return false;
}

void late_check(struct world *w)
{
    double now = clock_now_s();
    bool stop = board_failed(w->board);
    pthread_mutex_lock(&w->comms_lock);
    for (int i = 0; !stop && i < w->n_comms; i++) stop = comm_check(w->comms[i], now);
    pthread_mutex_unlock(&w->comms_lock);
}
