/* late.c: who is everybody waiting for? Asked now and then by ranks that wait in vain.
 *
 * An operation that has waited longer than the timeout names the ranks that are missing: those that have not come to
 * its meeting, or the peers of messages that did not arrive; what each was last doing is on the board. A missing rank
 * that has left the world for good, or whose process is gone, is reported at once. The first report becomes the job's cause.
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

static void describe(struct comm *c, int rank, bool answered, struct str *s)
{
    char text[BOARD_TEXT];
    int row = world_row(c->w, c->world_rank[rank]);
    str_printf(s, "; rank %d ", c->world_rank[rank]);
    if (row >= 0) str_puts(s, board_doing(c->w->board, row, text));
    else if (!answered) str_puts(s, "is on another host and does not answer");
    else if (c->heard[rank].seq) str_printf(s, "is in %s", desc_print(text, &c->heard[rank]));
    else str_puts(s, "is in no operation");
}

enum fate { LATE, LEFT, DIED };

static void report(struct comm *c, const struct op *o, const bool *late, enum fate fate, double waited_s)
{
    static const char *const one[] = {"is late", "left before the others were done", "is gone: its process ended"},
                      *const many[] = {"are late", "left before the others were done", "are gone: their processes ended"};
    struct str names = {0}, there = {0}, doing = {0};
    char text[DESC_TEXT];
    int n = 0;
    for (int r = 0; r < c->size; r++) {
        struct str *s = late[r] ? &names : &there;
        str_printf(s, "%s%d", s->n ? ", " : "", c->world_rank[r]);
        if (late[r] && n++ < 2) describe(c, r, c->fate[r], &doing);
    }
    struct err e;
    err_set(&e, fate == LEFT ? ERR_STOPPED : ERR_IO, "rank%s %s %s: %s has waited %.2f s for %s (here: %s)%s",
            n > 1 ? "s" : "", str_text(&names), (n > 1 ? many : one)[fate],
            desc_print(text, &o->desc), waited_s, n > 1 ? "them" : "it", str_text(&there), str_text(&doing));
    str_free(&names);
    str_free(&there);
    str_free(&doing);
    world_fail(c->w, &e);
}

/* Keeps in `late` the ranks of this fate. */
static bool any(struct comm *c, bool *late, enum fate fate)
{
    bool found = false;
    for (int r = 0; r < c->size; r++) {
        int row = world_row(c->w, c->world_rank[r]);
        int64_t pid;
        bool is = late[r] && row >= 0 && (fate == LEFT ? board_left(c->w->board, row)
                                                       : board_died(c->w->board, row, &pid));
        c->fate[r] = is;
        found |= is;
    }
    if (found) memcpy(late, c->fate, (size_t)c->size * sizeof *late);
    return found;
}

/* Who holds up a group that shares no memory? Peers that have sent nothing may themselves be waiting, so ask everybody.
 * True: two ranks are in different operations, which is reported. Else late becomes the ranks that do not answer, or that are
 * elsewhere (an exchange knows its peers); fate: those that answered. */
static bool roll(struct comm *c, const struct op *o, bool *late)
{
    bool any_late = false;
    c->w->ops->roll(c, c->heard, c->fate);
    if (o->coll.op == COMM_EXCHANGE) return false;
    c->heard[c->rank] = o->desc;
    for (int r = 0; r < c->size; r++) {
        const struct desc *d = &c->heard[r];
        bool same_place = c->fate[r] && d->seq == o->desc.seq && !strcmp(d->group, o->desc.group);
        struct err e;
        if (same_place && desc_compare(&o->desc, c->w->rank, d, c->world_rank[r], &e)) {
            world_fail(c->w, &e);
            return true;
        }
        any_late |= !same_place;
    }
    for (int r = 0; any_late && r < c->size; r++) {
        const struct desc *d = &c->heard[r];
        late[r] = !c->fate[r] || d->seq != o->desc.seq || strcmp(d->group, o->desc.group) != 0;
    }
    return false;
}

static bool comm_check(struct comm *c, double now)
{
    int64_t last = atomic_load_explicit(&c->submitted, memory_order_acquire);
    bool *late = c->late, unseen = false;
    for (int r = 0; r < c->size; r++) unseen |= world_row(c->w, c->world_rank[r]) < 0;
    for (int64_t t = c->open; t <= last; t++) {
        struct op *o = &c->ring[t % COMM_RING];
        if (atomic_load_explicit(&o->done, memory_order_relaxed) >= t || o->stage == OP_QUEUED) continue;
        double waited_s = now - o->begun_s;
        bool over = waited_s > c->w->cfg.timeout_s;
        if (!missing(c, o, late) && !(over && unseen)) continue;
        enum fate fate = any(c, late, LEFT) ? LEFT : any(c, late, DIED) ? DIED : LATE;
        if (fate == LATE && !over) continue;
        if (fate == LATE && unseen && roll(c, o, late)) return true;
        report(c, o, late, fate, waited_s);
        return true;
    }
    return false;
}

void late_check(struct world *w)
{
    double now = clock_now_s();
    bool stop = board_failed(w->board);
    pthread_mutex_lock(&w->comms_lock);
    if (w->ops->answer) w->ops->answer(w);
    for (int i = 0; !stop && i < w->n_comms; i++) stop = comm_check(w->comms[i], now);
    pthread_mutex_unlock(&w->comms_lock);
}
