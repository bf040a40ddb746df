/* SPDX-License-Identifier: Apache-2.0 */
/* stalls.c: who is everybody waiting for? Asked now and then by ranks that wait in vain.
 *
 * An operation that has waited longer than the timeout names the ranks that are missing: those that have not come to
 * its meeting, or the peers of messages that did not arrive; what each was last doing is on the board. A missing rank
 * that has left the world for good, or whose process is gone, is reported at once. The first report becomes the job's
 * cause.
 *
 * A missing rank that waits for somebody else is not to blame: a worker hangs, a server waits for its gradient, the
 * other workers wait for the server. Ranks that wait look around and leave a beat on the board; ranks that hang,
 * compute or are stopped do not. So the blame goes to missing ranks without a beat, or, where all of those beat, to
 * whoever does not. Rejected: following who waits for whom, which needs every operation's missing ranks on the board,
 * and stops at a rank that was stopped while it waited.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/impl.h"

#define LEFT_MOMENT_S 1.0
#define BEAT_WITHIN_S 1.0 /* ranks that wait look every 20 ms; a busy machine may keep them from it */

/* Marks the ranks of c that hold up o; returns how many. Here and below `late` is by world rank. */
static int missing(struct comm *c, const struct op *o, bool *late)
{
    int n = 0;
    for (int r = 0; r < c->w->size; r++) late[r] = false;
    for (int r = 0; r < c->size; r++) {
        bool *is = &late[c->world_rank[r]];
        if (o->stage == OP_ENTER || o->stage == OP_FULL) *is = r != c->rank && !meet_arrived(c->meet, o->meet, r);
        if (o->stage == OP_SHARED && c->w->ops->behind) *is = r != c->rank && c->w->ops->behind(c, r);
    }
    for (int i = 0; i < o->n_req; i++)
        if (!o->req[i].done) late[c->world_rank[o->req[i].peer]] = true;
    for (int r = 0; r < c->w->size; r++) n += late[r];
    return n;
}

/* The rank of c that is this world rank, or -1. */
static int rank_in(const struct comm *c, int world_rank)
{
    for (int r = 0; r < c->size; r++)
        if (c->world_rank[r] == world_rank) return r;
    return -1;
}

/* asked: c->fate and c->heard are the answers of a roll call. */
static bool answered(const struct comm *c, int rank, bool asked)
{
    int r = rank_in(c, rank);
    return asked && r >= 0 && c->fate[r];
}

static void describe(struct comm *c, int rank, bool asked, struct str *s)
{
    char text[BOARD_TEXT];
    int row = world_row(c->w, rank);
    str_printf(s, "; rank %d ", rank);
    if (row >= 0) {
        str_puts(s, board_doing(c->w->board, row, text));
    } else if (!answered(c, rank, asked)) {
        str_puts(s, "is on another host and does not answer");
    } else {
        const struct desc *d = &c->heard[rank_in(c, rank)];
        if (d->seq) str_printf(s, "is in %s", desc_print(text, d));
        else str_puts(s, "is in no operation");
    }
}

enum fate { LATE, LEFT, DIED };

struct finding {
    const struct op *o;
    enum fate fate;
    double waited_s;
    bool asked;  /* a roll call was made */
    bool passed; /* those that o waits for wait themselves: the blame is somebody else's */
};

static void report(struct comm *c, const struct finding *f)
{
    static const char *const one[] = {"is late", "left before the others were done", "is gone: its process ended"},
                             *const many[] = {"are late", "left before the others were done",
                                              "are gone: their processes ended"};
    struct str names = {0}, there = {0}, doing = {0};
    char text[DESC_TEXT];
    int n = 0;
    for (int r = 0; r < c->w->size; r++) {
        struct str *s = c->late[r] ? &names : &there;
        if (c->late[r] || rank_in(c, r) >= 0) str_printf(s, "%s%d", s->n ? ", " : "", r);
        if (c->late[r] && n++ < 2) describe(c, r, f->asked, &doing);
    }
    struct err e;
    err_set(&e,
            f->fate == LEFT   ? ERR_STOPPED
            : f->fate == DIED ? ERR_LOST
                              : ERR_IO,
            "rank%s %s %s: %s has waited %.2f s for %s%s (here: %s)%s", n > 1 ? "s" : "", str_text(&names),
            (n > 1 ? many : one)[f->fate], desc_print(text, &f->o->desc), f->waited_s, n > 1 ? "them" : "it",
            f->passed ? ", through ranks that wait as well" : "", str_text(&there), str_text(&doing));
    str_free(&names);
    str_free(&there);
    str_free(&doing);
    world_fail(c->w, &e);
}

static bool has(struct comm *c, int rank, enum fate fate)
{
    int row = world_row(c->w, rank);
    int64_t pid;
    return row >= 0 && (fate == LEFT ? board_left(c->w->board, row) : board_died(c->w->board, row, &pid));
}

/* Keeps in c->late the ranks of this fate, if there are any. */
static bool any(struct comm *c, enum fate fate)
{
    bool found = false;
    for (int r = 0; r < c->w->size; r++) found |= c->late[r] && has(c, r, fate);
    for (int r = 0; found && r < c->w->size; r++) c->late[r] = c->late[r] && has(c, r, fate);
    return found;
}

/* The rank waits for others and looks around, so somebody else is to blame. When this rank itself is just back from
 * where nobody ran, the beats are older by as much. */
static bool waits(struct comm *c, int rank, bool asked)
{
    double within_s = c->w->cfg.timeout_s / 2 < BEAT_WITHIN_S ? c->w->cfg.timeout_s / 2 : BEAT_WITHIN_S;
    if (clock_now_s() - c->w->back_s < within_s) within_s += c->w->gone_s;
    int row = world_row(c->w, rank);
    if (rank == c->w->rank) return true;
    return row >= 0 ? board_waits(c->w->board, row, within_s) : answered(c, rank, asked);
}

/* A rank that this one can see, and that does not wait for others. */
static bool stuck(struct comm *c, int rank, bool asked)
{
    bool seen = world_row(c->w, rank) >= 0 || (asked && rank_in(c, rank) >= 0);
    return seen && !waits(c, rank, asked);
}

/* From the ranks that hold up an operation to those that hold up everybody; in a circle nobody is to blame more than
 * others. */
static void blame(struct comm *c, struct finding *f)
{
    int n = c->w->size;
    bool *is = xcalloc((size_t)n, sizeof *is), some = false, some_missing = false;
    for (int r = 0; r < n; r++) {
        is[r] = stuck(c, r, f->asked);
        some |= is[r];
        some_missing |= is[r] && c->late[r];
    }
    f->passed = some && !some_missing;
    for (int r = 0; some && r < n; r++) c->late[r] = is[r] && (c->late[r] || f->passed);
    xfree(is);
}

/* Who holds up a group that shares no memory? Peers that have sent nothing may themselves be waiting, so ask everybody.
 * True: two ranks are in different operations, which is reported. Else c->late becomes the ranks that do not answer, or
 * that are elsewhere (an exchange knows its peers). */
static bool roll(struct comm *c, const struct op *o)
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
        c->late[c->world_rank[r]] = !c->fate[r] || d->seq != o->desc.seq || strcmp(d->group, o->desc.group) != 0;
    }
    return false;
}

/* What a rank sent before it left is the transport's to bring, and may need a moment. */
static bool under_way(const struct comm *c, struct op *o, double now)
{
    double most_s = c->w->cfg.timeout_s / 4;
    if (o->stage != OP_RUN) return false;
    if (o->left_s <= 0) o->left_s = now;
    return now - o->left_s < (most_s < LEFT_MOMENT_S ? most_s : LEFT_MOMENT_S);
}

enum { LATE_UNASKED, LATE_ASKED, LATE_TOLD };
#define LATE_MOST_S 5.0  /* for config.late to be done */
#define LATE_AGAIN_S 3.0 /* without being asked: what was late has come, and the next hang is another one */

bool late_may(struct world *w, const char *what)
{
    struct board *b = w->board;
    double now = clock_now_s();
    int none = LATE_UNASKED;
    if (!w->cfg.late) return true;
    if (now - w->late_seen_s > LATE_AGAIN_S) { /* a hang that this rank has not asked about */
        w->late_s = now;
        if (w->asks_late) atomic_store(&b->late, LATE_UNASKED);
        w->asks_late = false;
    }
    w->late_seen_s = now;
    if (atomic_compare_exchange_strong(&b->late, &none, LATE_ASKED)) w->asks_late = true;
    if (w->asks_late && w->cfg.late(w->cfg.late_ctx, what)) atomic_store(&b->late, LATE_TOLD);
    return atomic_load(&b->late) == LATE_TOLD || now - w->late_s > LATE_MOST_S;
}

static bool late_may_tell(struct comm *c, const struct finding *f)
{
    char text[DESC_TEXT], what[DESC_TEXT + 80];
    snprintf(what, sizeof what, "rank %d has waited %.2f s for %s", c->w->rank, f->waited_s,
             desc_print(text, &f->o->desc));
    return late_may(c->w, what);
}

static bool comm_check(struct comm *c, double now)
{
    int64_t last = atomic_load_explicit(&c->submitted, memory_order_acquire);
    bool unseen = false;
    for (int r = 0; r < c->size; r++) unseen |= world_row(c->w, c->world_rank[r]) < 0;
    for (int64_t t = c->open; t <= last; t++) {
        struct op *o = &c->ring[t % COMM_RING];
        if (atomic_load_explicit(&o->done, memory_order_relaxed) >= t || o->stage == OP_QUEUED) continue;
        struct finding f = {.o = o, .waited_s = now - o->begun_s - (c->w->away_s - o->begun_away_s)};
        bool over = f.waited_s > o->timeout_s;
        if (!missing(c, o, c->late) && !(over && unseen)) continue;
        f.fate = any(c, LEFT) ? LEFT : any(c, DIED) ? DIED : LATE;
        /* It may have come, seen it through and left between the two looks: what it did before it went shows now. */
        if (f.fate != LATE && (!missing(c, o, c->late) || !any(c, f.fate))) continue;
        if (f.fate == LATE && !over) continue;
        if (f.fate == LEFT && under_way(c, o, now)) continue;
        if (f.fate == LATE && o->found_s <= 0) o->found_s = f.waited_s;
        if (f.fate == LATE && !late_may_tell(c, &f)) return true;
        if (f.fate == LATE) f.waited_s = o->found_s;
        f.asked = f.fate == LATE && unseen;
        if (f.asked && roll(c, o)) return true;
        if (f.fate == LATE) blame(c, &f);
        report(c, &f);
        return true;
    }
    return false;
}

void late_look(struct world *w, struct away *away)
{
    double now = clock_now_s();
    if (away->lost_s > 0) {
        w->away_s += away->lost_s;
        w->back_s = now;
        w->gone_s = away->lost_s;
        away->lost_s = 0;
    }
    bool stop = board_failed(w->board);
    pthread_mutex_lock(&w->comms_lock);
    if (w->ops->answer) w->ops->answer(w);
    for (int i = 0; !stop && i < w->n_comms; i++) stop = comm_check(w->comms[i], now);
    pthread_mutex_unlock(&w->comms_lock);
}
