/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c: the calls of comm.h. Each fills one slot of the communicator's ring (descriptor, buffers, program), counts
 * what the program sends, and submits it; execute.c and the transports do the rest. A null communicator ends after
 * counting.
 *
 * Cost of a call: writing a program of a few steps per peer, about a microsecond for small groups. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/thread.h"
#include "base/mem.h"
#include "comm/blocks.h"
#include "comm/impl.h"
#include "device/device.h"

static const char *const op_names[COMM_OP_N] = {"broadcast",  "reduce",     "all_reduce", "reduce_scatter",
                                                "all_gather", "all_to_all", "exchange",   "barrier"};
static const char *const red_names[COMM_RED_N] = {"sum", "max", "min", "avg"};

const char *comm_op_name(enum comm_op op) { return op_names[op]; }
const char *comm_red_name(enum comm_red r) { return red_names[r]; }

/* ---- one call ---- */
struct call {
    enum comm_op op;
    enum comm_red red;
    enum dtype dtype;
    int root;
    int64_t n;                 /* as struct coll has it */
    const int64_t *in, *out;   /* [size] elements of pieces; NULL: none */
    int64_t in_each, out_each; /* even pieces where the pointer is NULL; -1: the operation has no pieces there */
    const void *src;
    void *dst;
    const struct comm_p2p *list;
    int n_list;
    const char *what;
};

/* Where pieces begin, [size + 1]. */
static const int64_t *begins(int64_t *at, const int64_t *counts, int64_t each, int size)
{
    if (!counts && each < 0) return NULL;
    at[0] = 0;
    for (int p = 0; p < size; p++) at[p + 1] = at[p] + (counts ? counts[p] : each);
    return at;
}

static void fill_coll(struct coll *k, int64_t *pieces, const struct comm *c, const struct call *a)
{
    int size = c->size, cell = size + 1;
    *k = (struct coll){.op = a->op,
                       .red = a->red,
                       .dtype = a->dtype,
                       .root = a->root,
                       .rank = c->rank,
                       .size = size,
                       .n = a->n,
                       .host = c->host};
    k->in_at = begins(pieces, a->in, a->in_each, size);
    k->out_at = begins(pieces + cell, a->out, a->out_each, size);
    int64_t *even = pieces + 2 * cell, lo;
    for (int p = 0; p < size; p++) team_split(a->n, p, size, &lo, &even[p + 1]);
    even[0] = 0;
    k->even = even;
}

/* Adds a message to what an exchange does. */
static void describe_message(const struct comm *c, struct desc *d, const struct comm_p2p *m)
{
    int32_t *peer = m->send ? &d->to : &d->from, its = c->world_rank[m->peer];
    *(m->send ? &d->sent : &d->received) += m->n * (int64_t)dtype_bytes(m->dtype);
    *peer = *peer == DESC_NOBODY || *peer == its ? its : DESC_SEVERAL;
}

static struct desc describe(const struct comm *c, const struct call *a, int64_t seq)
{
    struct desc d = {.seq = seq,
                     .n = a->op == COMM_EXCHANGE ? a->n_list : a->n,
                     .op = (int16_t)a->op,
                     .red = (int16_t)a->red,
                     .dtype = (int16_t)a->dtype,
                     .root = a->root};
    bool compared = a->op == COMM_REDUCE_SCATTER || a->op == COMM_ALL_GATHER; /* the same counts on all ranks */
    const int64_t *counts = a->op == COMM_ALL_GATHER ? a->out : a->in;
    if (counts && compared) d.counts = hash64(counts, (size_t)c->size * sizeof *counts) | 1;
    d.to = d.from = DESC_NOBODY;
    for (int i = 0; a->op == COMM_EXCHANGE && i < a->n_list; i++) describe_message(c, &d, &a->list[i]);
    snprintf(d.group, sizeof d.group, "%s", c->name);
    snprintf(d.what, sizeof d.what, "%.*s", DESC_WHAT - 1, a->what ? a->what : "");
    return d;
}

static void take_list(struct comm *c, struct op *o, const struct call *a)
{
    int room = o->list_room;
    GROW(o->list, 0, room, a->n_list);
    GROW(o->number, 0, o->list_room, a->n_list);
    if (a->n_list) memcpy(o->list, a->list, (size_t)a->n_list * sizeof *o->list);
    for (int i = 0; i < a->n_list; i++) o->list[i].buf = device_here(o->list[i].buf);
    for (int i = 0; i < a->n_list; i++) o->number[i] = ++c->passed[a->list[i].peer + (a->list[i].send ? 0 : c->size)];
    o->n_list = a->n_list;
}

/* Checksums are messages too. */
static void count_sum(const struct comm *c, int peer, int64_t n, struct comm_traffic *t)
{
    if (n <= 0 || !comm_checks(c, peer)) return;
    t->bytes += (int64_t)sizeof(uint64_t);
    t->messages++;
}

struct comm_traffic comm_count(const struct comm *c, const struct algorithm *a, const struct moves *p,
                               const struct coll *k)
{
    if (!a->native) {
        struct comm_traffic sum = comm_moves_traffic(p, k->rank, k->dtype);
        for (int i = 0; c->w->cfg.checksum && i < p->n; i++)
            if (p->move[i].kind == MOVE_SEND) count_sum(c, p->move[i].peer, p->move[i].n, &sum);
        return sum;
    }
    struct moves direct = {0}; /* what the library sends is unknown: count the least it can */
    direct_write(&direct, k);
    struct comm_traffic t = comm_moves_traffic(&direct, k->rank, k->dtype);
    comm_moves_free(&direct);
    return t;
}

void comm_on(struct comm *c, const struct device *d)
{
    if (!c || (d->counts_only && !c->w->ops->counts_only)) return;
    CHECK(c->w->comms[0] != c, "the world is the hosts'");
    c->dev = d;
}

/* An address that belongs elsewhere is our bug. */
static void check_place(const struct comm *c, const struct call *a, const void *p)
{
    if (!p) return;
    CHECK(c->dev || !device_faults(p), "%s of %s over %s, which is the hosts', was given a device's memory",
          op_names[a->op], a->what ? a->what : "", c->name);
    CHECK(!c->dev || (!c->dev->counts_only && device_owns(c->dev, p)),
          "%s of %s over %s, which is on a device, was given the host's memory", op_names[a->op],
          a->what ? a->what : "", c->name);
}

static void check_places(const struct comm *c, const struct call *a)
{
    check_place(c, a, a->src);
    check_place(c, a, a->dst);
    for (int i = 0; i < a->n_list; i++) check_place(c, a, a->list[i].buf);
}

/* What this operation sends, and how long a pretended link has with it. */
static struct comm_traffic count(const struct comm *c, struct op *o)
{
    struct comm_traffic now = {.operations = 1};
    for (int i = 0; o->coll.op == COMM_EXCHANGE && i < o->n_list; i++)
        if (o->list[i].send && o->list[i].peer != c->rank) {
            now.bytes += o->list[i].n * (int64_t)dtype_bytes(o->list[i].dtype);
            now.messages++;
            count_sum(c, o->list[i].peer, o->list[i].n, &now);
        }
    if (o->coll.op != COMM_EXCHANGE) now = comm_count(c, o->algorithm, &o->moves, &o->coll);
    const struct comm_config *f = &c->w->cfg;
    o->link_s =
        now.messages ? (f->link_GBps > 0 ? (double)now.bytes / (f->link_GBps * 1e9) : 0) + f->link_latency_s : 0;
    return now;
}

static bool is_watched(const struct comm *c) { return atomic_load_explicit(&c->w->watched, memory_order_relaxed); }

static void wait_for(struct comm *c, int64_t ticket)
{
    beside_reach(c, ticket);
    bool done = op_done(c, ticket);
    long long link = atomic_load(&c->link_ns);
    double from = done ? 0 : clock_now_s();
    engine_wait(c, ticket);
    if (done) return;
    double to = clock_now_s(), waited = to - from, linked = 1e-9 * (double)(atomic_load(&c->link_ns) - link);
    c->times.waited_s += waited;
    c->w->waited_s += waited;
    c->times.exposed_s += linked < waited ? linked : waited;
    if (is_watched(c)) c->w->watch.stayed(c->w->watch.ctx, c, ticket, COMM_WAITS, from, to);
}

/* The operation on paper: pieces, messages, algorithm and program. */
static void write_op(struct comm *c, struct op *o, const struct call *a)
{
    if (!o->pieces) o->pieces = xcalloc(3 * (size_t)(c->size + 1), sizeof *o->pieces);
    fill_coll(&o->coll, o->pieces, c, a);
    o->desc = describe(c, a, a->op == COMM_EXCHANGE ? ++c->n_exchanges : ++c->n_collectives);
    take_list(c, o, a);
    comm_moves_clear(&o->moves);
    if (a->op == COMM_EXCHANGE) return;
    o->algorithm = select_algorithm(c, &o->coll, &o->moves);
    o->desc.algorithm = (int16_t)(o->algorithm - algorithms);
}

/* All that the plan of an operation depends on. */
static struct tally_key key_of(const struct comm *c, const struct call *a)
{
    struct tally_key k;
    memset(&k, 0, sizeof k);
    k.n = a->n;
    k.in_each = a->in_each;
    k.out_each = a->out_each;
    if (a->in) k.in = hash64(a->in, (size_t)c->size * sizeof *a->in) | 1;
    if (a->out) k.out = hash64(a->out, (size_t)c->size * sizeof *a->out) | 1;
    for (int i = 0; i < a->n_list; i++) { /* where the bytes lie does not matter */
        const struct comm_p2p *m = &a->list[i];
        uint64_t words[] = {k.in, m->send, (uint64_t)m->peer, (uint64_t)m->n, (uint64_t)m->dtype};
        k.in = hash64(words, sizeof words);
    }
    k.algorithm = c->asked;
    k.op = (int32_t)a->op;
    k.red = (int32_t)a->red;
    k.dtype = (int32_t)a->dtype;
    k.root = a->root;
    snprintf(k.what, sizeof k.what, "%s", a->what ? a->what : "");
    return k;
}

/* A rank that only counts: done at once, and written once however often it comes. */
static int64_t submit_counted(struct comm *c, const struct call *a, int64_t ticket)
{
    struct tally_key k = key_of(c, a);
    const struct tally_plan *p = tally_find(c, &k);
    struct op *o = &c->ring[ticket % COMM_RING];
    if (!p) {
        write_op(c, o, a);
        struct comm_traffic t = count(c, o);
        p = tally_plan(c, &k, o, t, o->link_s);
    }
    tally_add(c, p);
    beside_counted(c, o, ticket, a->op, a->what, p->traffic.bytes);
    atomic_store(&o->done, ticket);
    atomic_store(&c->submitted, ticket);
    c->called = ticket;
    c->open = ticket + 1;
    return ticket;
}

/* Everybody who waits for this rank learns it at once, as from a process that the system reports. */
static void die(struct comm *c, const struct call *a)
{
    struct world *w = c->w;
    struct err e;
    if (w->ops->die) w->ops->die(w);
    w->died = true;
    board_die(w->board, w->row);
    err_set(&e, ERR_LOST, "rank %d is gone: it died before its %s '%s' on %s", w->rank, op_names[a->op],
            a->what ? a->what : "", c->name);
    world_fail(w, &e);
}

static int64_t submit(struct comm *c, const struct call *a)
{
    int64_t ticket = c->called + 1;
    check_places(c, a);
    if (board_failed(c->w->board)) return ticket;
    const struct comm_config *f = &c->w->cfg;
    if (f->dies && !c->w->ops->counts_only && f->dies(f->dies_ctx, c->w->rank, a->op, a->what))
        return die(c, a), ticket;
    if (c->w->ops->counts_only) return submit_counted(c, a, ticket);
    if (ticket > COMM_RING) wait_for(c, ticket - COMM_RING);
    if (board_failed(c->w->board)) return ticket;
    struct op *o = &c->ring[ticket % COMM_RING];
    bool watched = is_watched(c);
    if (watched) watch_tell(c, ticket - COMM_RING); /* the last one that had this slot */
    o->asked_s = watched ? clock_now_s() : 0;
    o->over_s = 0;
    write_op(c, o, a);
    o->in = device_here(a->src);
    o->out = device_here(a->dst);
    o->stage = OP_QUEUED;
    o->pc = o->n_req = 0;
    o->at_work = 0;
    o->may_block = o->named = false;
    o->way = WAY_OPEN;
    o->timeout_s = world_timeout(c->w, a->op == COMM_EXCHANGE);
    struct comm_traffic *t = &c->traffic[a->op], now = count(c, o);
    t->bytes += now.bytes;
    t->messages += now.messages;
    t->operations += now.operations;
    c->times.link_s += o->link_s;
    o->sent = now.bytes;
    if (a->op != COMM_EXCHANGE) o->meet = c->n_collectives - 1;
    o->record = board_queue(c->w->board, c->w->row, &o->desc);
    atomic_fetch_add(&c->w->pending, 1);
    c->called = ticket;
    if (!beside_begin(c, o, ticket, a->src, a->dst, a->list, a->n_list)) engine_submit(c, ticket);
    if (watched) c->w->watch.stayed(c->w->watch.ctx, c, ticket, COMM_STARTS, o->asked_s, clock_now_s());
    return ticket;
}

/* ---- operations ---- */
/* clang-format off */
int64_t comm_broadcast(struct comm *c, void *buf, int64_t n, enum dtype t, int root, const char *what)
{
    return submit(c, &(struct call){.op = COMM_BROADCAST, .dtype = t, .root = root, .n = n, .in_each = -1, .out_each = -1,
                                    .src = buf, .dst = buf, .what = what});
}

int64_t comm_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r, int root,
                    const char *what)
{
    return submit(c, &(struct call){.op = COMM_REDUCE, .red = r, .dtype = t, .root = root, .n = n, .in_each = -1,
                                    .out_each = -1, .src = in, .dst = out, .what = what});
}

int64_t comm_all_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                        const char *what)
{
    return submit(c, &(struct call){.op = COMM_ALL_REDUCE, .red = r, .dtype = t, .n = n, .in_each = -1, .out_each = -1,
                                    .src = in, .dst = out, .what = what});
}

static int64_t sum_of(const int64_t *counts, int size)
{
    int64_t n = 0;
    for (int p = 0; p < size; p++) n += counts[p];
    return n;
}

int64_t comm_reduce_scatter(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                            const char *what)
{
    return submit(c, &(struct call){.op = COMM_REDUCE_SCATTER, .red = r, .dtype = t, .n = n * c->size, .in_each = n,
                                    .out_each = -1, .src = in, .dst = out, .what = what});
}

int64_t comm_reduce_scatter_v(struct comm *c, const void *in, void *out, const int64_t *counts, enum dtype t,
                              enum comm_red r, const char *what)
{
    return submit(c, &(struct call){.op = COMM_REDUCE_SCATTER, .red = r, .dtype = t, .n = sum_of(counts, c->size),
                                    .in = counts, .out_each = -1, .src = in, .dst = out, .what = what});
}

int64_t comm_all_gather(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, const char *what)
{
    return submit(c, &(struct call){.op = COMM_ALL_GATHER, .dtype = t, .n = n * c->size, .in_each = -1, .out_each = n,
                                    .src = in, .dst = out, .what = what});
}

int64_t comm_all_gather_v(struct comm *c, const void *in, void *out, const int64_t *counts, enum dtype t,
                          const char *what)
{
    return submit(c, &(struct call){.op = COMM_ALL_GATHER, .dtype = t, .n = sum_of(counts, c->size), .in_each = -1,
                                    .out = counts, .src = in, .dst = out, .what = what});
}

int64_t comm_all_to_all(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, const char *what)
{
    return submit(c, &(struct call){.op = COMM_ALL_TO_ALL, .dtype = t, .n = n * c->size, .in_each = n, .out_each = n,
                                    .src = in, .dst = out, .what = what});
}

int64_t comm_all_to_all_v(struct comm *c, const void *in, void *out, const int64_t *send, const int64_t *recv,
                          enum dtype t, const char *what)
{
    return submit(c, &(struct call){.op = COMM_ALL_TO_ALL, .dtype = t, .in = send, .out = recv, .src = in, .dst = out,
                                    .what = what});
}

int64_t comm_exchange(struct comm *c, const struct comm_p2p *list, int n, const char *what)
{
    return submit(c, &(struct call){.op = COMM_EXCHANGE, .dtype = DT_U8, .in_each = -1, .out_each = -1, .list = list,
                                    .n_list = n, .what = what});
}

int64_t comm_send(struct comm *c, const void *buf, int64_t n, enum dtype t, int peer, const char *what)
{
    return comm_exchange(c, &(struct comm_p2p){true, peer, (void *)(uintptr_t)buf, n, t}, 1, what);
}

int64_t comm_recv(struct comm *c, void *buf, int64_t n, enum dtype t, int peer, const char *what)
{
    return comm_exchange(c, &(struct comm_p2p){false, peer, buf, n, t}, 1, what);
}

int64_t comm_barrier(struct comm *c, const char *what)
{
    return submit(c, &(struct call){.op = COMM_BARRIER, .dtype = DT_U8, .in_each = -1, .out_each = -1, .what = what});
}
/* clang-format on */

/* ---- buffers ---- */
void *comm_pages_new(struct comm *c, size_t bytes)
{
    void *p = c->w->blocks ? blocks_alloc(c->w->blocks, bytes) : NULL;
    return p ? p : mem_pages_new(bytes);
}

void comm_pages_free(struct comm *c, void *p, size_t bytes)
{
    if (!c->w->blocks || !blocks_release(c->w->blocks, p)) mem_pages_free(p, bytes);
}

bool comm_pages_shared(const struct comm *c) { return blocks_work(c->w->blocks) && !c->w->cfg.staged; }

/* ---- waiting ---- */
void comm_wait(struct comm *c, int64_t ticket)
{
    if (ticket > c->called) return;
    if (!c->w->ops->counts_only && !beside_joins(c)) wait_for(c, ticket);
    beside_waited(c, ticket);
}

bool comm_done(struct comm *c, int64_t ticket)
{
    if (c->w->ops->counts_only) return true;
    if (board_failed(c->w->board)) return world_quiet(c->w), true;
    double from = is_watched(c) ? clock_now_s() : 0;
    bool moved = c->w->cfg.progress == COMM_INLINE && engine_poll(c->w);
    if (moved && from > 0) c->w->watch.stayed(c->w->watch.ctx, c, ticket, COMM_MOVES, from, clock_now_s());
    bool done = op_done(c, ticket) || ticket <= c->called - COMM_RING;
    if (!done) engine_look(c->w);
    if (!done && c->w->stream) (void)stream_nudge(c->w->stream); /* who asks and asks waits, too */
    return done;
}

void comm_sync(struct comm *c)
{
    int64_t last = c->called, first = last > COMM_RING ? last - COMM_RING + 1 : 1;
    for (int64_t t = first; t <= last; t++) comm_wait(c, t); /* exchanges finish in any order */
}

/* ---- errors ---- */
int comm_status(struct comm *c, struct err *e)
{
    if (!board_failed(c->w->board)) return OK;
    struct err cause;
    int rank;
    board_cause(c->w->board, &cause, &rank);
    if (e) *e = cause;
    return cause.code;
}

double comm_failed_s(const struct comm *c) { return board_failed(c->w->board) ? c->w->board->failed_s : 0; }

bool comm_died(const struct comm *c) { return c->w->died; }

struct verdict {
    int64_t code;
    char text[1000];
};

int comm_agree(struct comm *c, int code, struct err *e)
{
    if (c->w->ops->counts_only) return code;
    struct verdict mine = {.code = code}, *all = xcalloc((size_t)c->size, sizeof *all);
    if (code && e) snprintf(mine.text, sizeof mine.text, "%s", e->text);
    comm_wait(c, comm_all_gather(c, &mine, all, sizeof mine, DT_U8, "agree"));
    int rc = comm_status(c, e);
    for (int p = 0; !rc && p < c->size; p++) {
        if (!all[p].code) continue;
        rc = (int)all[p].code;
        err_set(e, (enum err_code)rc, "rank %d: %s", c->world_rank[p], all[p].text);
    }
    xfree(all);
    return rc;
}

void comm_abort(struct comm *c, const struct err *why)
{
    struct err e = *why;
    if (!strncmp(e.text, "rank ", 5)) world_fail(c->w, &e); /* agreed on: it names a rank already */
    else {
        err_prefix(&e, "rank %d", c->w->rank);
        world_fail(c->w, &e);
    }
    if (c->w->ops->abort) c->w->ops->abort(c->w, &e);
}

/* ---- groups ---- */
int comm_split(struct comm **out, struct comm *world, const struct mesh_axis *axes, int n_axes, struct err *e)
{
    int n = mesh_group(axes, n_axes, world->w->rank, NULL);
    int *ranks = xcalloc((size_t)n, sizeof *ranks);
    mesh_group(axes, n_axes, world->w->rank, ranks);
    struct str name = {0};
    for (int i = 0; i < n_axes; i++) {
        char axis[48];
        str_printf(&name, "%s%s", i ? "+" : "", mesh_axis_print(axis, axes[i]));
    }
    int rc = comm_split_list(out, world, ranks, n, str_text(&name), e);
    str_free(&name);
    xfree(ranks);
    return rc;
}

int comm_split_list(struct comm **out, struct comm *world, const int *ranks, int n, const char *name, struct err *e)
{
    return world_comm(out, world->w, ranks, n, name, e);
}

/* ---- inspect ---- */
int comm_rank(const struct comm *c) { return c->rank; }
int comm_size(const struct comm *c) { return c->size; }
int comm_world_rank(const struct comm *c, int rank) { return c->world_rank[rank]; }
int comm_ranks_here(const struct comm *c)
{
    int n = 0;
    for (int r = 0; r < c->size; r++) n += c->host[r] == c->host[c->rank];
    return n;
}

int comm_host(const struct comm *c, int rank) { return c->host[rank]; }
int comm_sharers(const struct comm *c) { return c->w->sharers; }
bool comm_sees_buffers(const struct comm *c) { return blocks_work(c->w->blocks) && !c->w->cfg.staged; }

const char *comm_name(const struct comm *c) { return c->name; }
const struct comm *comm_nth(const struct comm *world, int i)
{
    return i < world->w->n_comms ? world->w->comms[i] : NULL;
}
const char *comm_transport(const struct comm *c) { return c->w->ops->name; }

double comm_waited_s(const struct comm *world) { return world->w->waited_s; }

struct comm_times comm_times(const struct comm *c) { return c->times; }

int64_t comm_one_pass(const struct comm *c) { return atomic_load_explicit(&c->one_pass, memory_order_relaxed); }

struct comm_traffic comm_traffic(const struct comm *c)
{
    struct comm_traffic t = {0};
    for (int i = 0; i < COMM_OP_N; i++) {
        t.bytes += c->traffic[i].bytes;
        t.messages += c->traffic[i].messages;
        t.operations += c->traffic[i].operations;
    }
    return t;
}

void comm_sketch(const struct comm *c, enum comm_op op, int64_t n, enum dtype t, enum comm_red r, int64_t **pieces,
                 struct coll *k)
{
    bool in = op == COMM_REDUCE_SCATTER || op == COMM_ALL_TO_ALL, out = op == COMM_ALL_GATHER || op == COMM_ALL_TO_ALL;
    *pieces = xcalloc(3 * (size_t)(c->size + 1), sizeof **pieces);
    fill_coll(k, *pieces, c,
              &(struct call){.op = op,
                             .red = r,
                             .dtype = t,
                             .n = n,
                             .in_each = in ? n / c->size : -1,
                             .out_each = out ? n / c->size : -1});
}

const char *comm_choice(const struct comm *c, enum comm_op op, int64_t n, enum dtype t, enum comm_red r)
{
    struct moves p = {0};
    struct coll k;
    int64_t *pieces;
    comm_sketch(c, op, n, t, r, &pieces, &k);
    const char *name = select_algorithm(c, &k, &p)->name;
    comm_moves_free(&p);
    xfree(pieces);
    return name;
}

struct comm_traffic comm_predict(const struct comm *c, enum comm_op op, int64_t n, enum dtype t, enum comm_red r)
{
    struct moves p = {0};
    struct coll k;
    int64_t *pieces;
    comm_sketch(c, op, n, t, r, &pieces, &k);
    const struct algorithm *a = select_algorithm(c, &k, &p);
    struct comm_traffic traffic = comm_count(c, a, &p, &k);
    comm_moves_free(&p);
    xfree(pieces);
    return traffic;
}

int comm_algorithm_set(struct comm *c, const char *algorithm, struct err *e)
{
    int rc = comm_config_check(&(struct comm_config){.algorithm = algorithm}, e);
    if (!rc) c->asked = select_named(algorithm);
    return rc;
}
