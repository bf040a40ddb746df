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

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "kernel/flat.h"
#include "layout/recognise.h"

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
    enum dtype dtype; /* of all that is in it; u8 where they differ */
    uint64_t hash;    /* of what is in it */
    int like;         /* the peer whose message has the same in it, and is packed; itself */
    bool bundled;     /* travels with a bundle */
};

/* A collective that this rank has a part in. */
struct bundle {
    struct known known; /* borrowed from the list */
    struct comm *group; /* the root, then the others */
    struct message *m;  /* what this rank gives or gets */
    int64_t ticket;
};

struct route_run {
    struct comm *c; /* NULL: one rank */
    struct stream *st;
    struct route_tensor *t;
    int n, me, size;
    /* out: what others get; in: all that arrives here, this rank's own boxes too, in order of arrival. */
    struct legs out, in;
    struct message *send, *recv; /* [size] by peer */
    struct buffer wire;
    struct known_list known;
    struct bundle *bundle;
    int n_bundles;
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
    if (!with[peer].there) with[peer].dtype = x->t[tensor].dtype;
    if (with[peer].dtype != x->t[tensor].dtype) with[peer].dtype = DT_U8;
    l->at = (with[peer].bytes + width - 1) / width * width; /* kernels that add from there want it aligned */
    with[peer].there = true;
    with[peer].bytes = l->at + bytes_of(x, l);
    with[peer].like = peer;
    for (int d = 0; d < l->box.nd; d++) {
        int64_t key[] = {(int64_t)with[peer].hash, tensor, l->box.lo[d], l->box.hi[d]};
        with[peer].hash = hash64(key, sizeof key);
    }
}

/* Of what is recognised one message is listed: to the first of a fan, from the first of a sum. */
static bool stands_for(const struct route_run *x, enum known_kind kind, int peer)
{
    for (int i = 0; i < x->known.n; i++) {
        const struct known *k = &x->known.p[i];
        if (k->kind == kind && k->root == x->me) return peer == k->rank[0] || peer == x->me;
    }
    return true;
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
            if (m->dst != x->me && stands_for(x, KNOWN_FAN, m->dst)) add_leg(x, &x->out, x->send, m, i, m->dst);
        }
        n = route_receives(r, x->me, &first);
        for (int64_t k = first; k < first + n; k++) {
            check_end(x, &t->to, &r->msg[k].box, i);
            CHECK(r->msg[k].src < x->size, "tensor %d comes from %d, one of %d ranks", i, r->msg[k].src, x->size);
            if (stands_for(x, KNOWN_SUM, r->msg[k].src)) add_leg(x, &x->in, x->recv, &r->msg[k], i, r->msg[k].src);
        }
    }
}

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
        bool summed = x->t[l->tensor].route->n_terms > 1;
        if (!sends && summed && !m->bundled) m->direct = false;
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

static bool same_legs(const struct route_run *x, int p, int q)
{
    int64_t i = 0, j = 0, n = x->out.n;
    for (;; i++, j++) {
        while (i < n && x->out.leg[i].peer != p) i++;
        while (j < n && x->out.leg[j].peer != q) j++;
        if (i == n || j == n) return i == n && j == n;
        const struct leg *a = &x->out.leg[i], *b = &x->out.leg[j];
        if (a->tensor != b->tensor || a->at != b->at || !region_equal(&a->box, &b->box)) return false;
    }
}

/* What goes to several ranks in one form is packed once. */
static void find_alike(struct route_run *x)
{
    for (int p = 0; p < x->size; p++)
        for (int q = 0; x->send[p].there && !x->send[p].direct && q < p; q++) {
            const struct message *m = &x->send[q];
            if (!m->there || m->direct || m->like != q || m->hash != x->send[p].hash || !same_legs(x, p, q)) continue;
            x->send[p].like = q;
            break;
        }
}

/* The message of a bundle on this rank. */
static struct message *bundled(struct route_run *x, const struct known *k)
{
    bool root = k->root == x->me, fan = k->kind == KNOWN_FAN;
    return root == fan ? &x->send[root ? k->rank[0] : k->root] : &x->recv[root ? k->rank[0] : k->root];
}

static bool takes_part(const struct route_run *x, const struct known *k)
{
    bool in = k->root == x->me;
    for (int i = 0; i < k->n; i++) in |= k->rank[i] == x->me;
    return in;
}

/* The groups, made in the list's order by all who share one. */
static int new_bundles(struct route_run *x, const char *often, struct err *e)
{
    int *list = xcalloc(to_size(x->size) + 1, sizeof *list), rc = OK;
    x->bundle = xcalloc(to_size(x->known.n) + 1, sizeof *x->bundle);
    for (int i = 0; i < x->known.n && !rc; i++) {
        const struct known *k = &x->known.p[i];
        char name[32];
        if (!takes_part(x, k)) continue;
        struct bundle *b = &x->bundle[x->n_bundles++];
        *b = (struct bundle){.known = *k, .m = bundled(x, k)};
        for (int j = 0; j <= k->n; j++) list[j] = comm_world_rank(x->c, j ? k->rank[j - 1] : k->root);
        snprintf(name, sizeof name, "%.16s %s %d", often, k->kind == KNOWN_FAN ? "from" : "to", list[0]);
        rc = comm_split_list(&b->group, x->c, list, k->n + 1, name, e);
        if (!rc) comm_on(b->group, x->st->dev);
        b->m->bundled = true;
    }
    xfree(list);
    return rc;
}

static int64_t count_of(const struct message *m) { return (int64_t)(m->bytes / dtype_bytes(m->dtype)); }

static void *place_of(const struct route_run *x, const struct message *m)
{
    return m->direct ? address(m->buf, m->from) : address(&x->wire, m->at);
}

static int new_wire(struct route_run *x, struct err *e)
{
    size_t bytes = 0;
    x->list = xcalloc(2 * to_size(x->size) + 1, sizeof *x->list);
    for (int s = 0; s < 2; s++)
        for (int p = 0; p < x->size; p++) {
            struct message *m = s ? &x->recv[p] : &x->send[p];
            if (!m->there || m->direct) continue;
            m->at = m->like == p ? (bytes + ALIGN - 1) / ALIGN * ALIGN : x->send[m->like].at;
            if (m->like == p) bytes = m->at + m->bytes;
        }
    int rc = buffer_new(&x->wire, x->st->dev, MEM_COMM, bytes, e);
    for (int s = 0; s < 2 && !rc; s++)
        for (int p = 0; p < x->size; p++) {
            const struct message *m = s ? &x->recv[p] : &x->send[p];
            void *at = place_of(x, m);
            if (m->there && !m->bundled)
                x->list[x->n_list++] =
                    (struct comm_p2p){.send = !s, .peer = p, .buf = at, .n = count_of(m), .dtype = m->dtype};
        }
    return rc;
}

/* Sums are fp32's, and somebody must be there to add. */
static int check_sums(const struct route_run *x, struct err *e)
{
    for (int i = 0; i < x->n; i++) {
        const struct route *r = x->t[i].route;
        if (r->n_terms == 1) continue;
        if (x->t[i].dtype != DT_F32)
            return err_set(e, ERR_REQUEST,
                           "tensor %d: a route with %d terms of %s would round at every one of them; send f32, or "
                           "reduce it by a collective",
                           i, r->n_terms, dtype_name(x->t[i].dtype));
        CHECK(x->st->kernels || x->st->dev->counts_only, "tensor %d is a sum, and there is nothing to add with", i);
    }
    return OK;
}

static void find_known(struct route_run *x)
{
    const struct route **r = xcalloc(to_size(x->n) + 1, sizeof *r);
    for (int i = 0; i < x->n; i++) r[i] = x->t[i].route;
    recognise(&x->known, r, x->n, x->size);
    xfree(r);
}

int route_run_new(struct route_run **out, struct comm *c, struct stream *st, const struct route_tensor *t, int n,
                  const char *often, struct err *e)
{
    struct route_run *x = xcalloc(1, sizeof *x);
    *x = (struct route_run){.c = c, .st = st, .n = n, .me = c ? comm_rank(c) : 0, .size = c ? comm_size(c) : 1};
    x->t = xcalloc(to_size(n) + 1, sizeof *x->t);
    x->send = xcalloc(to_size(x->size), sizeof *x->send);
    x->recv = xcalloc(to_size(x->size), sizeof *x->recv);
    if (n) memcpy(x->t, t, to_size(n) * sizeof *t);
    int rc = check_sums(x, e);
    if (!rc && often) find_known(x);
    if (!rc) list_legs(x);
    if (!rc) rc = new_bundles(x, often, e);
    if (!rc) {
        find_stretches(x, &x->out, x->send, true);
        find_stretches(x, &x->in, x->recv, false);
        find_alike(x);
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
    for (int i = x->n_bundles - 1; i >= 0; i--) comm_free(x->bundle[i].group);
    xfree(x->bundle);
    known_free(&x->known);
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
    for (int p = 0; p < x->size; p++) n += x->send[p].bundled ? 0 : (int64_t)x->send[p].bytes;
    for (int i = 0; i < x->n_bundles; i++) {
        const struct bundle *b = &x->bundle[i];
        enum comm_op op = b->known.kind == KNOWN_FAN ? COMM_BROADCAST : COMM_REDUCE;
        n += comm_predict(b->group, op, count_of(b->m), b->m->dtype, COMM_SUM).bytes;
    }
    return n;
}

struct comm *route_run_group(const struct route_run *x, int i) { return i < x->n_bundles ? x->bundle[i].group : NULL; }

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
/* The root of a sum has no term of its own: it gives zeros, in the place of the result. */
static void begin_bundle(struct route_run *x, struct bundle *b, const char *what)
{
    void *at = place_of(x, b->m);
    int64_t n = count_of(b->m);
    bool is_root = b->known.root == x->me;
    if (b->known.kind == KNOWN_FAN) {
        b->ticket = comm_broadcast(b->group, at, n, b->m->dtype, 0, what);
        return;
    }
    if (is_root) stream_zero(x->st, at, b->m->bytes);
    b->ticket = comm_reduce(b->group, at, is_root ? at : NULL, n, DT_F32, COMM_SUM, 0, what);
}

void route_run_begin(struct route_run *x, const char *what)
{
    CHECK(!x->begun, "%s is under way already", what);
    x->begun = true;
    for (int64_t i = 0; i < x->out.n; i++) {
        const struct leg *l = &x->out.leg[i];
        const struct route_end *from = &x->t[l->tensor].from;
        const struct message *m = &x->send[l->peer];
        if (m->direct || m->like != l->peer) continue;
        copy_box(x->st, address(from->buf, from->at), &from->box, address(&x->wire, m->at + l->at), &l->box, &l->box,
                 width_of(x, l->tensor));
    }
    x->ticket = x->n_list ? comm_exchange(x->c, x->list, x->n_list, what) : 0;
    for (int i = 0; i < x->n_bundles; i++) begin_bundle(x, &x->bundle[i], what);
}

bool route_run_done(struct route_run *x)
{
    CHECK(x->begun, "a route that was not begun");
    for (int i = 0; i < x->n_bundles; i++)
        if (!comm_done(x->bundle[i].group, x->bundle[i].ticket)) return false;
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
    for (int i = 0; i < x->n_bundles; i++) comm_wait(x->bundle[i].group, x->bundle[i].ticket);
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
        if (l->term) add_box(x, from, has, to, &t->to.box, &l->box);
        else if (!own || !in_place(t)) copy_box(x->st, from, has, to, &t->to.box, &l->box, width_of(x, l->tensor));
    }
}
