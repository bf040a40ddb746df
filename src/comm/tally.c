/* tally.c: what a rank that only counts has been asked for, one row per distinct operation, in order of first appearance:
 * the communicator's plan of a step. Rows are found by looking at all of them: a step has tens, and nothing runs. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/impl.h"

/* Seconds by the alpha-beta model, over a link of the config or, where that names none, of this machine class. */
static double seconds(const struct comm *c, const struct op *o, struct comm_traffic t)
{
    const struct comm_config *f = &c->w->cfg;
    double latency = f->link_latency_s > 0 ? f->link_latency_s : COMM_LINK_LATENCY_S;
    double rate = f->link_GBps > 0 ? f->link_GBps * 1e9 : COMM_LINK_GBPS * 1e9;
    if (o->coll.op == COMM_EXCHANGE || o->algorithm->native) return latency * (double)t.messages + (double)t.bytes / rate;
    return comm_program_cost(&o->program, c->rank, o->coll.dtype, latency, rate);
}

void tally_add(struct comm *c, const struct op *o, struct comm_traffic t)
{
    enum dtype type = o->coll.op == COMM_EXCHANGE && o->n_list ? o->list[0].dtype : o->coll.dtype;
    int64_t n = o->coll.op == COMM_EXCHANGE && o->n_list ? o->list[0].n : o->coll.n;
    const char *algorithm = o->coll.op == COMM_EXCHANGE ? "messages" : o->algorithm->name;
    struct comm_tally *row = NULL;
    for (int i = 0; i < c->n_tally && !row; i++) {
        struct comm_tally *x = &c->tally[i];
        bool same = x->op == o->coll.op && x->dtype == type && x->n == n && x->algorithm == algorithm;
        if (same && !strcmp(x->what, o->desc.what)) row = x;
    }
    if (!row) {
        if (c->n_tally == c->tally_room) {
            c->tally_room = c->tally_room ? 2 * c->tally_room : 32;
            c->tally = xrealloc(c->tally, (size_t)c->tally_room * sizeof *c->tally);
        }
        row = &c->tally[c->n_tally++];
        *row = (struct comm_tally){.op = o->coll.op, .dtype = type, .n = n, .algorithm = algorithm};
        snprintf(row->what, sizeof row->what, "%s", o->desc.what);
    }
    row->traffic.operations++;
    row->traffic.bytes += t.bytes;
    row->traffic.messages += t.messages;
    row->seconds += seconds(c, o, t);
}

const struct comm_tally *comm_tally(const struct comm *c, int *n)
{
    *n = c->n_tally;
    return c->tally;
}
