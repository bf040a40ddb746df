/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: tells what operations did. Whoever completes an operation (the rank, or its communication thread) writes the
 * time into the operation's slot before it publishes `done`; the rank's thread reads it afterwards and tells, so that
 * the watcher needs no lock. A slot keeps what there is to tell until it is used again, and before that its last
 * operation is told. Cost: two clock readings and two calls per operation when watched, one test when not. */
#include "comm/impl.h"

static int64_t whole_bytes(const struct coll *k)
{
    int64_t n = k->op == COMM_ALL_TO_ALL && k->in_at ? k->in_at[k->size] : k->n;
    return k->op == COMM_BARRIER ? 0 : n * (int64_t)dtype_bytes(k->dtype);
}

static void tell(const struct comm *c, const struct op *o, int64_t ticket)
{
    struct comm_event v = {.c = c,
                           .op = o->coll.op,
                           .ticket = ticket,
                           .number = o->desc.seq,
                           .send = -1,
                           .peer = -1,
                           .dtype = o->coll.dtype,
                           .sent = o->sent,
                           .what = o->desc.what,
                           .asked_s = o->asked_s,
                           .over_s = o->over_s};
    if (v.op != COMM_EXCHANGE) {
        v.bytes = whole_bytes(&o->coll);
        v.algorithm = o->algorithm->name;
        c->w->watch.over(c->w->watch.ctx, &v);
    }
    for (int i = 0; v.op == COMM_EXCHANGE && i < o->n_list; i++) {
        const struct comm_p2p *m = &o->list[i];
        v.send = m->send;
        v.peer = m->peer;
        v.number = o->number[i];
        v.dtype = m->dtype;
        v.bytes = m->n * (int64_t)dtype_bytes(m->dtype);
        v.sent = m->send && m->peer != c->rank ? v.bytes : 0;
        c->w->watch.over(c->w->watch.ctx, &v);
    }
}

void watch_tell(struct comm *c, int64_t last)
{
    for (; c->told < last && op_done(c, c->told + 1); c->told++) {
        const struct op *o = &c->ring[(c->told + 1) % COMM_RING];
        if (o->asked_s > 0 && o->over_s > 0) tell(c, o, c->told + 1);
    }
}

void comm_watch_tell(struct comm *world, bool wait)
{
    struct world *w = world->w;
    for (int i = 0; wait && i < w->n_comms; i++) comm_sync(w->comms[i]);
    for (int i = 0; i < w->n_comms && atomic_load(&w->watched); i++)
        watch_tell(w->comms[i], atomic_load(&w->comms[i]->submitted));
}

void comm_watch(struct comm *world, const struct comm_watch *watch)
{
    struct world *w = world->w;
    atomic_store(&w->watched, false);
    if (!watch || w->ops->counts_only) return;
    w->watch = *watch;
    for (int i = 0; i < w->n_comms; i++) w->comms[i]->told = atomic_load(&w->comms[i]->submitted);
    atomic_store(&w->watched, true);
}
