/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c: carries one operation through its stages.
 *
 *     QUEUED -> ENTER -> FULL -> SHARED          meets, then runs in shared memory
 *                             -> RUN             meets, then runs its program over messages
 *     QUEUED -> RUN                              no common memory, or an exchange (nobody meets)
 *                                    ... -> LINK its bytes are through, but not yet through a pretended link
 *
 * op_advance never waits: it goes as far as others allow and is called again. A program is run step by step; sends and
 * receives start at once, and a fence holds until all of them are complete.
 */
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "comm/impl.h"

static char *place(struct comm *c, const struct op *o, enum side p, int64_t at)
{
    char *base = p == SIDE_IN ? (char *)(uintptr_t)o->in : p == SIDE_OUT ? (char *)o->out : c->tmp;
    return base + (size_t)at * dtype_bytes(o->coll.dtype);
}

/* ---- checksums: a message of eight bytes behind each message to another host ---- */

static int sums_of(const struct comm *c, int peer, int64_t n, enum dtype t)
{
    if (n <= 0 || !comm_checks(c, peer)) return 0;
    size_t most = c->w->ops->max_message, bytes = (size_t)n * dtype_bytes(t);
    return (int)((bytes - 1) / most) + 1;
}

/* Room for all of an operation, made before the first is on its way: they stay where they are. */
static void sums_make(const struct comm *c, struct op *o)
{
    int need = 0;
    o->n_sums = 0;
    if (!c->w->cfg.checksum) return;
    if (o->coll.op == COMM_EXCHANGE)
        for (int i = 0; i < o->n_list; i++) need += sums_of(c, o->list[i].peer, o->list[i].n, o->list[i].dtype);
    else
        for (int i = 0; i < o->moves.n; i++) {
            const struct move *s = &o->moves.move[i];
            bool message = s->kind == MOVE_SEND || s->kind == MOVE_RECV;
            if (message) need += sums_of(c, s->peer, s->n, o->coll.dtype);
        }
    GROW(o->sums, 0, o->sums_room, need);
}

static void post_sum(struct comm *c, struct op *o, bool send, int peer, const void *p, size_t bytes)
{
    CHECK(o->n_sums < o->sums_room, "%d checksums of an operation, room for %d", o->n_sums + 1, o->sums_room);
    uint64_t *sum = &o->sums[o->n_sums++];
    *sum = send ? hash64(p, bytes) : 0;
    GROW(o->req, o->n_req, o->req_room, 1);
    struct request *r = &o->req[o->n_req++];
    *r = (struct request){.send = send,
                          .sum = true,
                          .peer = peer,
                          .p = sum,
                          .bytes = sizeof *sum,
                          .dtype = DT_U8,
                          .desc = &o->desc};
    c->w->ops->start(c, r);
}

/* What arrived is what was sent, or both ends and the operation are named. */
static bool arrived_whole(struct comm *c, const struct request *r, uint64_t sent)
{
    struct world *w = c->w;
    int from = c->world_rank[r->peer];
    if (w->cfg.tamper) w->cfg.tamper(w->cfg.tamper_ctx, w->rank, from, r->desc->what, r->p, r->bytes);
    uint64_t here = hash64(r->p, r->bytes);
    if (here == sent) return true;
    struct err e;
    char text[DESC_TEXT], a[17], b[17];
    err_set(&e, ERR_CORRUPT,
            "rank %d did not get what rank %d sent: %zu bytes of %s left with checksum %s and arrived with %s. A link, "
            "an adapter or memory between the two changed them: look at both machines and at what joins them before "
            "you start again",
            w->rank, from, r->bytes, desc_print(text, r->desc), hash64_print(a, sent), hash64_print(b, here));
    world_fail(w, &e);
    return false;
}

static void post(struct comm *c, struct op *o, bool send, int peer, void *p, int64_t n, enum dtype t)
{
    size_t most = c->w->ops->max_message, bytes = (size_t)n * dtype_bytes(t);
    do {
        size_t now = bytes < most ? bytes : most;
        GROW(o->req, o->n_req, o->req_room, 1);
        struct request *r = &o->req[o->n_req++];
        *r = (struct request){.send = send, .peer = peer, .p = p, .bytes = now, .dtype = t, .desc = &o->desc};
        c->w->ops->start(c, r);
        if (now && comm_checks(c, peer)) post_sum(c, o, send, peer, p, now);
        p = (char *)p + now;
        bytes -= now;
    } while (bytes);
}

/* All posted messages are complete. */
static bool settled(struct comm *c, struct op *o)
{
    bool all = true;
    for (int i = 0; i < o->n_req; i++) {
        struct request *r = &o->req[i];
        if (!r->done) r->done = c->w->ops->test(c, r);
        all &= r->done;
    }
    for (int i = 0; all && i < o->n_req; i++) {
        const struct request *r = &o->req[i];
        uint64_t sent;
        if (!r->sum || r->send) continue;
        memcpy(&sent, r->p, sizeof sent);
        if (!arrived_whole(c, r - 1, sent)) return false;
    }
    if (all) o->n_req = 0;
    return all;
}

static void fold_move(struct comm *c, struct op *o, const struct move *s)
{
    const void **src = c->src;
    for (int p = 0; p < s->n_src; p++)
        src[p] = p == s->own ? place(c, o, SIDE_IN, s->own_at)
                             : place(c, o, s->from_side, s->from + (p + s->rotate) % s->n_src * s->stride);
    void *dst = place(c, o, s->to_side, s->to);
    int64_t divisor = s->final && o->coll.red == COMM_AVG ? o->coll.size : 1;
    fold_run(c->w->folds, o->coll.dtype, o->coll.red,
             &(struct fold){.dst = &dst, .n_dst = 1, .src = src, .n_src = s->n_src, .n = s->n, .divisor = divisor});
}

static void move_run(struct comm *c, struct op *o, const struct move *s)
{
    size_t bytes = (size_t)s->n * dtype_bytes(o->coll.dtype);
    char *from = place(c, o, s->from_side, s->from), *to = place(c, o, s->to_side, s->to);
    const void *pair[2] = {to, from};
    switch (s->kind) {
    case MOVE_SEND: post(c, o, true, s->peer, from, s->n, o->coll.dtype); break;
    case MOVE_RECV: post(c, o, false, s->peer, to, s->n, o->coll.dtype); break;
    case MOVE_COPY:
        if (from != to) memmove(to, from, bytes);
        break;
    case MOVE_ADD:
        fold_run(c->w->folds, o->coll.dtype, o->coll.red,
                 &(struct fold){.dst = (void *[]){to}, .n_dst = 1, .src = pair, .n_src = 2, .n = s->n, .divisor = 1});
        break;
    case MOVE_SCALE:
        fold_run(c->w->folds, o->coll.dtype, o->coll.red,
                 &(struct fold){.dst = (void *[]){to},
                                .n_dst = 1,
                                .src = pair,
                                .n_src = 1,
                                .n = s->n,
                                .divisor = o->coll.size});
        break;
    case MOVE_FOLD: fold_move(c, o, s); break;
    case MOVE_NATIVE: c->w->ops->native_start(c, o); break;
    case MOVE_FENCE: break;
    }
}

static bool comm_moves_run(struct comm *c, struct op *o)
{
    size_t need = (size_t)o->moves.tmp * dtype_bytes(o->coll.dtype);
    if (o->pc == 0 && need > c->tmp_bytes) {
        xfree(c->tmp);
        c->tmp = xmalloc(need);
        c->tmp_bytes = need;
    }
    for (; o->pc < o->moves.n; o->pc++) {
        const struct move *s = &o->moves.move[o->pc];
        if (s->kind == MOVE_FENCE && !settled(c, o)) return false;
        if (s->kind == MOVE_NATIVE && o->at_work) {
            if (!c->w->ops->native_test(c, o)) return false;
            continue;
        }
        move_run(c, o, s);
        if (s->kind == MOVE_NATIVE) {
            o->at_work = 1;
            if (!c->w->ops->native_test(c, o)) return false;
        }
        if (board_failed(c->w->board)) return false;
    }
    return settled(c, o);
}

static bool exchange_run(struct comm *c, struct op *o)
{
    for (; o->pc < o->n_list; o->pc++) {
        const struct comm_p2p *m = &o->list[o->pc];
        post(c, o, m->send, m->peer, m->buf, m->n, m->dtype);
    }
    return settled(c, o);
}

/* The descriptors are all there: equal, or the end of the job. */
static bool agreed(struct comm *c, struct op *o)
{
    struct err e;
    if (meet_compare(c->meet, o->meet, c->world_rank, &e) == OK) return true;
    world_fail(c->w, &e);
    return false;
}

/* The operation runs in the group's common memory. */
static bool shared(const struct comm *c, const struct op *o)
{
    return o->coll.op != COMM_BARRIER && o->algorithm->shared && c->w->ops->shared && c->w->ops->shared_may(c);
}

/* A rank has at most one open operation that it brought alone. So where all ranks of an operation did, none of them
 * sits in another's blocking call, and all of them will come to this one's. */
static bool all_alone(struct comm *c, const struct op *o)
{
    for (int r = 0; r < c->size; r++)
        if (!meet_seat(c->meet, o->meet, r)->alone) return false;
    return true;
}

/* Elements of the largest piece that this rank sends. */
static int64_t widest(const struct coll *k)
{
    const int64_t *at = k->in_at ? k->in_at : k->out_at;
    int64_t most = 0;
    for (int p = 0; at && p < k->size; p++)
        if (at[p + 1] - at[p] > most) most = at[p + 1] - at[p];
    return most;
}

static bool op_work(struct comm *c, struct op *o)
{
    switch (o->stage) {
    case OP_QUEUED:
        o->begun_s = o->met_s = clock_now_s();
        o->begun_away_s = c->w->away_s;
        o->left_s = o->found_s = 0;
        board_mark(c->w->board, c->w->row, o->record, RECORD_RUNNING);
        sums_make(c, o);
        o->stage = o->coll.op == COMM_EXCHANGE ? OP_RUN : c->meet ? OP_ENTER : c->w->cfg.check ? OP_COMPARE : OP_RUN;
        return op_work(c, o);
    case OP_COMPARE:
        if (c->w->ops->compare && !c->w->ops->compare(c, o)) return false;
        o->stage = OP_RUN;
        return op_work(c, o);
    case OP_ENTER:
        if (shared(c, o) && c->w->ops->prepare && !c->w->ops->prepare(c, o)) return false;
        meet_enter(c->meet, o->meet, c->rank, &o->desc,
                   &(struct meet_seat){.in = o->seat_in,
                                       .out = o->seat_out,
                                       .most = widest(&o->coll),
                                       .alone = atomic_load(&c->w->pending) == 1});
        o->seen = o->tries = 0;
        o->stage = OP_FULL; /* fall through */
    case OP_FULL:
        if (!meet_full(c->meet, o->meet, &o->seen) || !agreed(c, o)) return false;
        if (o->coll.op == COMM_BARRIER) return true;
        if (o->link_s > 0) o->met_s = clock_now_s();
        if (!shared(c, o)) {
            o->may_block = all_alone(c, o);
            o->stage = OP_RUN;
            return comm_moves_run(c, o);
        }
        o->stage = OP_SHARED; /* fall through */
    case OP_SHARED: return c->w->ops->shared(c, o);
    case OP_RUN: return o->coll.op == COMM_EXCHANGE ? exchange_run(c, o) : comm_moves_run(c, o);
    case OP_LINK: return clock_now_s() >= o->ready_s;
    }
    return false;
}

/* The bytes are there; a link that is pretended takes them one operation after the other. */
static bool through_link(struct comm *c, struct op *o)
{
    if (o->stage == OP_LINK || o->link_s <= 0) return true;
    o->ready_s = (c->w->link_free_s > o->met_s ? c->w->link_free_s : o->met_s) + o->link_s;
    c->w->link_free_s = o->ready_s;
    o->stage = OP_LINK;
    o->through_s = clock_now_s();
    return o->through_s >= o->ready_s;
}

bool op_advance(struct comm *c, struct op *o)
{
    if (!op_work(c, o) || board_failed(c->w->board) || !through_link(c, o)) return false;
    board_mark(c->w->board, c->w->row, o->record, RECORD_DONE);
    return true;
}
