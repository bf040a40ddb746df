/* SPDX-License-Identifier: Apache-2.0 */
/* A leg is one box of one tensor between this rank and another, or itself. Both ends list the legs of a message in the
 * same order (tensors as given, boxes in the route's order), so a message carries no description of what is in it.
 * Boxes that come from this rank itself are unpacked straight from their source, in their turn, so that sums have one
 * order wherever terms come from.
 *
 * Rows of a box that are equally long and equally far apart go by one copy of rows: a part of a matrix's columns is one
 * call. Rejected: a message per box (a layer's experts would be thousands), and datatypes of the transport (MPI has
 * them, nobody else). */
#include "state/route_run.h"

#include <string.h>

#include "base/mem.h"

enum { ALIGN = 64 }; /* where a message begins in the buffer */

struct leg {
    int tensor, term, peer;
    struct region box;
    size_t at; /* of its bytes in the peer's message */
};

struct legs {
    struct leg *leg;
    int64_t n, room;
};

/* All that goes to a peer, or comes from it. */
struct message {
    bool there;
    size_t bytes;
    size_t at;                /* in the room's buffer; of no meaning where it is direct */
    const struct buffer *buf; /* direct: its bytes lie in one stretch of this buffer, */
    size_t from;              /* from here on */
    bool direct;
};

struct route_run {
    struct comm *c; /* NULL: one rank */
    struct stream *st;
    struct route_tensor *t;
    int n, me, size;
    struct legs out,
        in; /* out: what others get; in: all that arrives here, this rank's own boxes too, in order of arrival */
    struct message *send, *recv; /* [size] by peer */
    struct buffer wire;
    struct comm_p2p *list;
    int n_list;
    int64_t ticket; /* 0: nothing is under way with others */
    bool begun;
};

static struct leg *leg_add(struct legs *l)
{
    GROW(l->leg, l->n, l->room, 1);
    return &l->leg[l->n++];
}

static size_t width_of(const struct route_run *x, int tensor) { return dtype_bytes(x->t[tensor].dtype); }

static size_t bytes_of(const struct route_run *x, const struct leg *l)
{
    return to_size(region_volume(&l->box)) * width_of(x, l->tensor);
}

static void *address(const struct buffer *b, size_t at) { return b && b->p ? (char *)b->p + at : NULL; }

/* ---- on paper ---- */
/* The next of its messages with this peer. */
static void add_leg(struct route_run *x, struct legs *to, struct message *with, const struct route_msg *m, int tensor,
                    int peer)
{
    struct leg *l = leg_add(to);
    *l = (struct leg){.tensor = tensor, .term = m->term, .peer = peer, .box = m->box};
    if (peer == x->me) return;
    size_t width = width_of(x, l->tensor);
    l->at = (with[peer].bytes + width - 1) / width * width; /* kernels that add from there want it aligned */
    with[peer].there = true;
    with[peer].bytes = l->at + bytes_of(x, l);
}

static void check_end(const struct route_run *x, const struct route_end *end, const struct region *box, int tensor)
{
    char a[256], b[256];
    CHECK(end->buf && region_contains(&end->box, box), "tensor %d: the route wants %s of this rank's %s", tensor,
          region_print(a, box), end->buf ? region_print(b, &end->box) : "nothing");
    CHECK(end->at + to_size(region_volume(&end->box)) * width_of(x, tensor) <= end->buf->bytes,
          "tensor %d ends behind its buffer", tensor);
}

static void list_legs(struct route_run *x)
{
    int64_t first, n;
    for (int i = 0; i < x->n; i++) {
        const struct route_tensor *t = &x->t[i];
        const struct route *r = t->route;
        n = route_sends(r, x->me, &first);
        for (int64_t k = first; k < first + n; k++) {
            const struct route_msg *m = &r->msg[r->by_src[k]];
            check_end(x, &t->from, &m->box, i);
            CHECK(m->dst < x->size, "tensor %d goes to %d, one of %d ranks", i, m->dst, x->size);
            if (m->dst != x->me) add_leg(x, &x->out, x->send, m, i, m->dst);
        }
        n = route_receives(r, x->me, &first);
        for (int64_t k = first; k < first + n; k++) {
            check_end(x, &t->to, &r->msg[k].box, i);
            CHECK(r->msg[k].src < x->size, "tensor %d comes from %d, one of %d ranks", i, r->msg[k].src, x->size);
            add_leg(x, &x->in, x->recv, &r->msg[k], i, r->msg[k].src);
        }
    }
}

static bool adds(const struct route_run *x, const struct leg *l) { return l->term || x->t[l->tensor].route->adds; }

/* Whether a message's legs lie one behind the other in one buffer: the first sets where, each other must go on
 * there, without a gap: what lies in it is somebody else's. */
static void find_stretches(struct route_run *x, struct legs *legs, struct message *with, bool sends)
{
    size_t *end_at = xcalloc(to_size(x->size), sizeof *end_at);
    for (int p = 0; p < x->size; p++) with[p].direct = with[p].there;
    for (int64_t i = 0; i < legs->n; i++) {
        const struct leg *l = &legs->leg[i];
        struct message *m = &with[l->peer];
        const struct route_end *end = sends ? &x->t[l->tensor].from : &x->t[l->tensor].to;
        struct region_run run;
        size_t width = width_of(x, l->tensor), at = l->at;
        if (l->peer == x->me || !m->direct) continue;
        if (l->at != end_at[l->peer]) m->direct = false;
        end_at[l->peer] = l->at + bytes_of(x, l);
        bool summed = x->t[l->tensor].route->n_terms > 1 || x->t[l->tensor].route->adds;
        if (!sends && summed) m->direct = false;
        for (bool more = region_run_first(&run, &l->box, &end->box, &end->box); m->direct && more;
             more = region_run_next(&run)) {
            size_t lies = end->at + to_size(run.a) * width;
            if (at == 0) m->buf = end->buf, m->from = lies;
            if (m->buf != end->buf || lies != m->from + at) m->direct = false;
            at += to_size(run.n) * width;
        }
    }
    xfree(end_at);
}

static int new_wire(struct route_run *x, struct err *e)
{
    size_t bytes = 0;
    x->list = xcalloc(2 * to_size(x->size) + 1, sizeof *x->list);
    for (int s = 0; s < 2; s++)
        for (int p = 0; p < x->size; p++) {
            struct message *m = s ? &x->recv[p] : &x->send[p];
            if (!m->there || m->direct) continue;
            m->at = bytes;
            bytes += (m->bytes + ALIGN - 1) / ALIGN * ALIGN;
        }
    int rc = buffer_new(&x->wire, x->st->dev, MEM_COMM, bytes, e);
    for (int s = 0; s < 2 && !rc; s++)
        for (int p = 0; p < x->size; p++) {
            const struct message *m = s ? &x->recv[p] : &x->send[p];
            void *at = m->direct ? address(m->buf, m->from) : address(&x->wire, m->at);
            if (m->there)
                x->list[x->n_list++] =
                    (struct comm_p2p){.send = !s, .peer = p, .buf = at, .n = (int64_t)m->bytes, .dtype = DT_U8};
        }
    return rc;
}

/* Sums are fp32's, and somebody must be there to add. */
static int check_sums(const struct route_run *x, struct err *e)
{
    for (int i = 0; i < x->n; i++) {
        const struct route *r = x->t[i].route;
        if (r->n_terms == 1 && !r->adds) continue;
        if (x->t[i].dtype != DT_F32)
            return err_set(e, ERR_REQUEST,
                           "tensor %d: a route with %d terms of %s would round at every one of them; send f32, or "
                           "reduce it by a collective",
                           i, r->n_terms, dtype_name(x->t[i].dtype));
        CHECK(x->st->kernels || x->st->dev->counts_only, "tensor %d is a sum, and there is nothing to add with", i);
    }
    return OK;
}

int route_run_new(struct route_run **out, struct comm *c, struct stream *st, const struct route_tensor *t, int n,
                  struct err *e)
{
    struct route_run *x = xcalloc(1, sizeof *x);
    *x = (struct route_run){.c = c, .st = st, .n = n, .me = c ? comm_rank(c) : 0, .size = c ? comm_size(c) : 1};
    x->t = xcalloc(to_size(n) + 1, sizeof *x->t);
    x->send = xcalloc(to_size(x->size), sizeof *x->send);
    x->recv = xcalloc(to_size(x->size), sizeof *x->recv);
    if (n) memcpy(x->t, t, to_size(n) * sizeof *t);
    int rc = check_sums(x, e);
    if (!rc) {
        list_legs(x);
        find_stretches(x, &x->out, x->send, true);
        find_stretches(x, &x->in, x->recv, false);
        rc = new_wire(x, e);
    }
    *out = rc ? NULL : x;
    if (rc) route_run_free(x);
    return rc;
}

void route_run_free(struct route_run *x)
{
    if (!x) return;
    CHECK(!x->begun, "a route is freed while it is under way");
    if (x->wire.bytes) stream_sync(x->st); /* what was unpacked last may not be read yet */
    buffer_free(&x->wire);
    xfree(x->out.leg);
    xfree(x->in.leg);
    xfree(x->send);
    xfree(x->recv);
    xfree(x->list);
    xfree(x->t);
    xfree(x);
}

size_t route_run_bytes(const struct route_run *x) { return x->wire.bytes; }

int64_t route_run_sends(const struct route_run *x)
{
    int64_t n = 0;
    for (int p = 0; p < x->size; p++) n += (int64_t)x->send[p].bytes;
    return n;
}

/* ---- boxes ---- */
/* Runs of one length and one distance, not sent off yet. */
struct rows {
    int64_t a, b, n, count, step_a, step_b;
};

static void copy_rows(struct stream *st, const struct rows *w, const char *from, char *to, size_t width)
{
    size_t bytes = to_size(w->n) * width;
    to += to_size(w->b) * width;
    from += to_size(w->a) * width;
    if (w->count == 1) stream_copy(st, to, from, bytes);
    if (w->count > 1)
        stream_copy_rows(st, to, to_size(w->step_b) * width, from, to_size(w->step_a) * width, bytes, w->count);
}

/* Whether the run goes on with the rows; it does, then. */
static bool rows_take(struct rows *w, const struct region_run *run)
{
    int64_t da = run->a - w->a, db = run->b - w->b;
    if (!w->count || run->n != w->n) return false;
    if (w->count == 1) w->step_a = da, w->step_b = db;
    if (w->step_a <= 0 || w->step_b <= 0 || da != w->count * w->step_a || db != w->count * w->step_b) return false;
    w->count++;
    return true;
}

/* `box` from a holder of `has` to a holder of `gets`. */
static void copy_box(struct stream *st, const char *from, const struct region *has, char *to, const struct region *gets,
                     const struct region *box, size_t width)
{
    struct region_run run;
    struct rows w = {0};
    if (!from || !to) return; /* the null device */
    for (bool more = region_run_first(&run, box, has, gets); more; more = region_run_next(&run)) {
        if (rows_take(&w, &run)) continue;
        copy_rows(st, &w, from, to, width);
        w = (struct rows){.a = run.a, .b = run.b, .n = run.n, .count = 1};
    }
    copy_rows(st, &w, from, to, width);
}

static void add_box(const struct route_run *x, const char *from, const struct region *has, char *to,
                    const struct region *gets, const struct region *box)
{
    struct region_run run;
    if (!from || !to) return;
    for (bool more = region_run_first(&run, box, has, gets); more; more = region_run_next(&run))
        flat_sum_into(x->st, to + 4 * run.b, DT_F32, from + 4 * run.a, DT_F32, run.n, true);
}

/* ---- on its way ---- */
void route_run_begin(struct route_run *x, const char *what)
{
    CHECK(!x->begun, "%s is under way already", what);
    x->begun = true;
    for (int64_t i = 0; i < x->out.n; i++) {
        const struct leg *l = &x->out.leg[i];
        const struct route_end *from = &x->t[l->tensor].from;
        const struct message *m = &x->send[l->peer];
        if (m->direct) continue;
        copy_box(x->st, address(from->buf, from->at), &from->box, address(&x->wire, m->at + l->at), &l->box, &l->box,
                 width_of(x, l->tensor));
    }
    x->ticket = x->n_list ? comm_exchange(x->c, x->list, x->n_list, what) : 0;
}

bool route_run_done(struct route_run *x)
{
    CHECK(x->begun, "a route that was not begun");
    return !x->ticket || comm_done(x->c, x->ticket);
}

/* Bytes that are where they belong already: a rank's own box, in place. */
static bool in_place(const struct route_tensor *t)
{
    return t->from.buf == t->to.buf && t->from.at == t->to.at && region_equal(&t->from.box, &t->to.box);
}

void route_run_end(struct route_run *x)
{
    CHECK(x->begun, "a route that was not begun");
    if (x->ticket) comm_wait(x->c, x->ticket);
    x->begun = false;
    if (x->c && comm_status(x->c, NULL)) return; /* what arrived is not all of it */
    for (int64_t i = 0; i < x->in.n; i++) {
        const struct leg *l = &x->in.leg[i];
        const struct route_tensor *t = &x->t[l->tensor];
        const struct message *m = &x->recv[l->peer];
        bool own = l->peer == x->me;
        if (!own && m->direct) continue;
        const char *from = own ? address(t->from.buf, t->from.at) : address(&x->wire, m->at + l->at);
        const struct region *has = own ? &t->from.box : &l->box;
        char *to = address(t->to.buf, t->to.at);
        if (adds(x, l)) add_box(x, from, has, to, &t->to.box, &l->box);
        else if (!own || !in_place(t)) copy_box(x->st, from, has, to, &t->to.box, &l->box, width_of(x, l->tensor));
    }
}
