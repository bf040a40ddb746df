/* SPDX-License-Identifier: Apache-2.0 */
/* A reading is a stretch of a stored box, so up to nine boxes of the tensor, one behind the other in the staging (
 * region_stretch): a route each. All that a round brings from one rank to another is one message (route_run.h), which
 * goes straight from the staging, or straight into the array, where it lies in one stretch there.
 *
 * Two rounds overlap: while the messages of one are under way the next one's bytes are read. Its buffers are made
 * before the agreement on it, so that nobody has begun what somebody else has no memory for. */
#include "engine/loading.h"

#include "base/mem.h"
#include "state/route_run.h"

/* One round on this rank. */
struct round {
    struct buffer stage;
    struct route **route;
    struct route_tensor *t;
    int n, room;
    struct route_run *run;
};

struct loading {
    struct engine *g;
    const struct readers *plan;
    const struct ckpt *c;
    struct comm *comm; /* of the holders; NULL: one */
    loading_read_fn *read;
    void *ctx;
    struct boxes boxes;
    struct round round[2];
    int64_t next; /* reading that the next round begins with */
};

static int agree(const struct loading *x, int rc, struct err *e)
{
    return x->g->cfg.world ? comm_agree(x->g->cfg.world, rc, e) : rc;
}

/* ---- a round's routes ---- */
static void add_tensor(struct round *o, struct route *route, const struct route_tensor *t)
{
    if (o->n == o->room) {
        o->room = o->room ? 2 * o->room : 64;
        o->t = xrealloc(o->t, to_size(o->room) * sizeof *o->t);
        o->route = xrealloc(o->route, to_size(o->room) * sizeof *o->route);
    }
    o->route[o->n] = route;
    o->t[o->n] = *t;
    o->t[o->n++].route = route;
}

/* From the reader to all that hold some of the box. */
static int add_part(struct loading *x, struct round *o, const struct reading *r, const struct region *part, size_t at,
                    struct err *e)
{
    const struct boxes *h = &x->boxes;
    int me = x->g->params.rank, n = 0;
    struct holding from = {.holder = r->reader, .box = *part}, *to = xcalloc(to_size(h->n), sizeof *to);
    bool mine = r->reader == me;
    for (int i = 0; i < h->n; i++) {
        to[n].holder = i;
        if (!region_intersect(part, &h->box[i], &to[n].box)) continue;
        mine |= i == me;
        n++;
    }
    struct route *route = NULL;
    int rc = mine && n ? route_new_holdings(&route, &from, 1, to, n, e) : OK;
    xfree(to);
    if (rc || !route) return rc;
    const struct array *a = store_array_of(&x->g->store, r->which, r->param);
    struct array_span held = store_held(&x->g->store, r->param, r->which);
    struct route_tensor t = {.dtype = a->row.dtype,
                             .to = {&a->buf, to_size(held.at) * dtype_bytes(a->row.dtype), h->box[me]}};
    if (r->reader == me) t.from = (struct route_end){&o->stage, at, *part};
    if (!region_volume(&h->box[me])) t.to.buf = NULL;
    add_tensor(o, route, &t);
    return OK;
}

static int add_reading(struct loading *x, struct round *o, const struct reading *r, struct err *e)
{
    struct region box = ckpt_box(x->c, r->tensor, r->box), part[REGION_STRETCH];
    size_t at = r->at, width = dtype_bytes(store_array_of(&x->g->store, r->which, r->param)->row.dtype);
    int n = region_stretch(&box, r->lo, r->n, part), rc = OK;
    boxes_look(&x->boxes, r->which, r->param);
    for (int i = 0; i < n && !rc; i++) {
        rc = add_part(x, o, r, &part[i], at, e);
        at += to_size(region_volume(&part[i])) * width;
    }
    return rc;
}

/* ---- reading ---- */
/* One rank holds all of it as it is stored, in memory that the host reaches: it is read to where it stays. NULL: not
 * so. */
static void *place_of(struct loading *x, const struct reading *r)
{
    const struct array *a = store_array_of(&x->g->store, r->which, r->param);
    struct array_span held = store_held(&x->g->store, r->param, r->which);
    struct region box = ckpt_box(x->c, r->tensor, r->box);
    if (x->boxes.n != 1 || !device_is_direct(x->g->dev) || a->buf.dev != x->g->dev || a->row.away || held.lo)
        return NULL;
    boxes_look(&x->boxes, r->which, r->param);
    return region_equal(&box, &x->boxes.box[0]) ? array_at(a, held.at + r->lo) : NULL;
}

static int read_one(struct loading *x, struct round *o, const struct reading *r, struct err *e)
{
    enum dtype as = store_array_of(&x->g->store, r->which, r->param)->row.dtype;
    size_t bytes = to_size(r->n) * dtype_bytes(as);
    bool direct = device_is_direct(x->g->dev);
    char *p = direct ? (char *)o->stage.p + r->at : xmalloc(bytes);
    int rc = x->read(x->ctx, r, as, p, e);
    if (direct) return rc;
    if (!rc) device_from_host(x->g->stream, &o->stage, r->at, p, bytes);
    stream_sync(x->g->stream); /* the copy reads p */
    xfree(p);
    return rc;
}

static size_t bytes_here(struct loading *x, int round)
{
    const struct readers *plan = x->plan;
    size_t bytes = 0;
    for (int64_t k = x->next; k < plan->n && plan->p[k].round == round; k++)
        if (plan->p[k].reader == x->g->params.rank && !place_of(x, &plan->p[k]))
            bytes = plan->p[k].at +
                    to_size(plan->p[k].n) *
                        dtype_bytes(store_array_of(&x->g->store, plan->p[k].which, plan->p[k].param)->row.dtype);
    return bytes;
}

/* This rank's part of round i, and all that is needed for it to travel. */
static int prepare(struct loading *x, int i, struct err *e)
{
    const struct readers *plan = x->plan;
    struct round *o = &x->round[i % 2];
    int me = x->g->params.rank;
    int rc = buffer_new(&o->stage, x->g->dev, MEM_COMM, bytes_here(x, i), e);
    for (; x->next < plan->n && plan->p[x->next].round == i && !rc; x->next++) {
        const struct reading *r = &plan->p[x->next];
        void *place = place_of(x, r);
        enum dtype as = store_array_of(&x->g->store, r->which, r->param)->row.dtype;
        if (place) rc = x->read(x->ctx, r, as, place, e);
        else if (r->reader == me) rc = read_one(x, o, r, e);
        if (!rc && !place) rc = add_reading(x, o, r, e);
    }
    if (!rc) rc = route_run_new(&o->run, x->comm, x->g->stream, o->t, o->n, NULL, e);
    return rc;
}

static void finish(struct loading *x, struct round *o, bool begun)
{
    if (begun) route_run_end(o->run);
    if (begun) stream_sync(x->g->stream); /* the staging is read until now */
    route_run_free(o->run);
    for (int i = 0; i < o->n; i++) route_free(o->route[i]);
    xfree(o->route);
    xfree(o->t);
    buffer_free(&o->stage);
    *o = (struct round){0};
}

/* ---- all of it ---- */
/* The ranks that hold something: of a parameter server the servers, which are the last. */
static int holders_group(struct loading *x, struct err *e)
{
    struct comm *world = x->g->cfg.world;
    int n = x->boxes.n, first = world ? comm_size(world) - n : 0, *list = xcalloc(to_size(n), sizeof *list);
    for (int i = 0; i < n; i++) list[i] = first + i;
    int rc = n > 1 ? comm_split_list(&x->comm, world, list, n, "checkpoint", e) : OK;
    comm_on(x->comm, x->g->dev);
    xfree(list);
    return rc;
}

int64_t loading_round(struct engine *g)
{
    double room = g->cfg.limit_bytes - (double)g->dev->ledger.now_total;
    int64_t n = READERS_ROUND;
    if (g->cfg.limit_bytes > 0 && room / 6 < (double)n)
        n = room / 6 > READERS_LEAST ? (int64_t)(room / 6) : READERS_LEAST;
    if (g->cfg.world)
        comm_wait(g->cfg.world, comm_all_reduce(g->cfg.world, &n, &n, 1, DT_I64, COMM_MIN, "bytes of a round"));
    return n;
}

static int64_t rounds_of_all(const struct loading *x, int64_t n)
{
    struct comm *world = x->g->cfg.world;
    if (world) comm_wait(world, comm_all_reduce(world, &n, &n, 1, DT_I64, COMM_MAX, "rounds of reading"));
    return n;
}

static int carry(struct loading *x, int64_t rounds, bool holds, struct err *e)
{
    int rc = OK;
    bool begun[2] = {false, false};
    for (int64_t i = 0; i < rounds && !rc; i++) {
        int now = i % 2;
        rc = agree(x, holds ? prepare(x, to_int(i), e) : OK, e);
        finish(x, &x->round[!now], begun[!now]);
        begun[!now] = false;
        if (rc || !holds) continue;
        route_run_begin(x->round[now].run, "checkpoint");
        begun[now] = true;
    }
    for (int i = 0; i < 2; i++) finish(x, &x->round[i], begun[i]);
    return rc;
}

int loading_run(struct engine *g, const struct readers *plan, const struct ckpt *c, loading_read_fn *read, void *ctx,
                int rc, struct err *e)
{
    struct loading x = {.g = g, .plan = plan, .c = c, .read = read, .ctx = ctx};
    bool holds = !g->cfg.n_servers || g->cfg.server >= 0;
    if (holds) boxes_open(&x.boxes, g);
    rc = agree(&x, rc, e); /* nobody waits for a group that a rank which brings an error does not come to make */
    if (!rc) rc = agree(&x, holds ? holders_group(&x, e) : OK, e);
    int64_t rounds = rc ? 0 : rounds_of_all(&x, plan->n_rounds);
    if (!rc) rc = carry(&x, rounds, holds, e);
    if (holds) stream_sync(g->stream);
    if (!rc && g->cfg.world) rc = comm_status(g->cfg.world, e);
    comm_free(x.comm);
    boxes_close(&x.boxes);
    return rc;
}
