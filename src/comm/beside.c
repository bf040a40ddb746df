/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation is to the rank's stream: work beside it. It begins after what the stream held when it was called,
 * follows the collective before it on its communicator (exchanges do not: they start in order and end in any), reads
 * and writes the ranges below, and comm_wait puts the stream behind it. Streams of a device that runs everything at
 * once take no notice. */
#include "base/mem.h"
#include "comm/impl.h"
#include "device/device.h"
#include "device/order.h"

static struct byte_span range(const void *p, int64_t n, enum dtype t, bool writes, const char *part)
{
    size_t bytes = to_size(n) * dtype_bytes(t);
    return (struct byte_span){p, bytes, bytes, 1, writes, part};
}

/* In place a rank's own piece is there already: it is not written. */
static int of_gather(const struct coll *k, const void *in, void *out, struct byte_span *s)
{
    size_t each = dtype_bytes(k->dtype);
    const int64_t *at = k->out_at;
    const char *mine = (const char *)out + to_size(at[k->rank]) * each,
               *behind = (const char *)out + to_size(at[k->rank + 1]) * each;
    s[0] = range(in, at[k->rank + 1] - at[k->rank], k->dtype, false, "what it sends");
    s[1] = range(out, in == mine ? at[k->rank] : at[k->size], k->dtype, true, "what it receives");
    if (in != mine) return 2;
    s[2] = range(behind, at[k->size] - at[k->rank + 1], k->dtype, true, "what it receives");
    return 3;
}

static int of_coll(const struct coll *k, const void *in, void *out, struct byte_span *s)
{
    int64_t reads = k->in_at ? k->in_at[k->size] : k->n, writes = k->out_at ? k->out_at[k->size] : k->n;
    bool root = k->rank == k->root;
    switch (k->op) {
    case COMM_BROADCAST: s[0] = range(in, k->n, k->dtype, !root, "buffer"); return 1;
    case COMM_REDUCE: writes = root ? k->n : 0; break;
    case COMM_REDUCE_SCATTER: writes = k->in_at[k->rank + 1] - k->in_at[k->rank]; break;
    case COMM_ALL_GATHER: return of_gather(k, in, out, s);
    case COMM_BARRIER: return 0;
    default: break;
    }
    s[0] = range(in, reads, k->dtype, false, "what it sends");
    s[1] = range(writes ? out : NULL, writes, k->dtype, true, "what it receives");
    return 2;
}

/* An operation, for a device that begins it later. */
struct later {
    struct comm *c;
    int64_t ticket;
};

static void submit_later(void *arg)
{
    const struct later *x = arg;
    engine_submit(x->c, x->ticket);
}

static bool is_over(void *arg)
{
    const struct later *x = arg;
    struct world *w = x->c->w;
    if (w->cfg.progress == COMM_INLINE && !op_done(x->c, x->ticket)) engine_poll(w);
    return op_done(x->c, x->ticket) || board_failed(w->board);
}

static void wait_later(void *arg)
{
    const struct later x = *(const struct later *)arg;
    engine_wait(x.c, x.ticket);
}

bool beside_joins(const struct comm *c) { return c->dev && c->w->stream && stream_begins(c->w->stream); }

void beside_reach(struct comm *c, int64_t ticket)
{
    if (ticket > atomic_load(&c->submitted) && c->w->stream)
        stream_reach(c->w->stream, c->ring[ticket % COMM_RING].began);
}

static void begin(struct comm *c, struct op *o, int64_t ticket, enum comm_op op, struct stream_work *w)
{
    w->kind = WORK_COLLECTIVE;
    w->name = comm_op_name(op);
    o->side_exchange = op == COMM_EXCHANGE;
    o->side = stream_fork(c->w->stream, w, o->side_exchange ? 0 : c->last_side);
    o->began = o->side;
    o->side_ticket = ticket;
    if (!o->side_exchange) c->last_side = o->side;
}

static bool tells(struct comm *c, struct op *o)
{
    if (o->side) beside_end(c, o); /* whoever had the slot was waited for when it was given out again */
    return c->dev && c->w->stream && stream_takes_work(c->w->stream);
}

bool beside_begin(struct comm *c, struct op *o, int64_t ticket, const void *in, void *out, const struct comm_p2p *list,
                  int n_list)
{
    struct byte_span span[WORK_SPANS];
    struct later later = {c, ticket};
    struct side_work side = {.begin = submit_later, .done = is_over, .wait = wait_later, .queue = c};
    int n = 0;
    if (!tells(c, o)) return false;
    CHECK(n_list <= WORK_SPANS, "an exchange of %d messages", n_list);
    for (int i = 0; i < n_list; i++)
        span[n++] = range(list[i].buf, list[i].n, list[i].dtype, !list[i].send,
                          list[i].send ? "what it sends" : "what it receives");
    if (o->coll.op != COMM_EXCHANGE) n = of_coll(&o->coll, in, out, span);
    begin(c, o, ticket, o->coll.op,
          &(struct stream_work){.tensor = o->desc.what,
                                .span = span,
                                .n_span = n,
                                .side = &side,
                                .arg = &later,
                                .arg_bytes = sizeof later});
    return stream_begins(c->w->stream);
}

void beside_counted(struct comm *c, struct op *o, int64_t ticket, enum comm_op op, const char *what, int64_t bytes)
{
    if (tells(c, o)) begin(c, o, ticket, op, &(struct stream_work){.tensor = what, .bytes = to_size(bytes)});
}

void beside_end(struct comm *c, struct op *o)
{
    if (o->side && c->w->stream) stream_join(c->w->stream, o->side, false);
    if (o->side == c->last_side) c->last_side = 0;
    o->side = 0;
}

/* Collectives are done in order: a ticket stands for those before it. */
void beside_waited(struct comm *c, int64_t ticket)
{
    struct op *last = &c->ring[ticket % COMM_RING];
    if (!c->w->stream || !last->side || last->side_ticket != ticket) return;
    for (int i = 0; i < COMM_RING && !last->side_exchange; i++) {
        struct op *o = &c->ring[i];
        if (o->side && o->side_ticket < ticket && !o->side_exchange) beside_end(c, o);
    }
    beside_end(c, last);
}

void comm_stream_on(struct comm *world, struct stream *s) { world->w->stream = s; }

/* A side that was not begun; 0: all were. */
static uint64_t behind(const struct world *w)
{
    for (int i = 0; i < w->n_comms; i++) {
        struct comm *c = w->comms[i];
        int64_t next = atomic_load(&c->submitted) + 1;
        if (next <= c->called) return c->ring[next % COMM_RING].began;
    }
    return 0;
}

void comm_stream_off(struct comm *world, const struct stream *s)
{
    if (world->w->stream != s) return;
    while (stream_begins(s) && behind(world->w)) stream_reach(world->w->stream, behind(world->w));
    world->w->stream = NULL;
}
