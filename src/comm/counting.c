/* SPDX-License-Identifier: Apache-2.0 */
/* counting.c: what a rank that only counts has been asked for, one row per distinct operation, in order of first
 * appearance: the communicator's plan of a step. A big model asks for 100,000 distinct ones (its experts' gradients),
 * and for each of them once per microbatch; so keys are found by hash, and an operation's program is written the first
 * time only. Rejected: looking at all rows (quadratic in layers), writing programs each time (linear in messages, which
 * are many). */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "comm/impl.h"

_Static_assert(sizeof(struct tally_key) == 3 * 8 + 2 * 8 + sizeof(void *) + 4 * 4 + DESC_WHAT,
               "keys are compared as bytes");

/* ---- keys ---- */
static int bucket_of(const struct tally_keys *t, const struct tally_key *k)
{
    uint32_t mask = (uint32_t)t->n_buckets - 1, at = (uint32_t)hash64(k, sizeof *k) & mask;
    while (t->bucket[at] && memcmp(&t->key[t->bucket[at] - 1], k, sizeof *k)) at = (at + 1) & mask;
    return (int)at;
}

static int keys_find(const struct tally_keys *t, const struct tally_key *k)
{
    return t->n ? t->bucket[bucket_of(t, k)] - 1 : -1;
}

static void keys_grow(struct tally_keys *t)
{
    GROW(t->key, t->n, t->room, 1);
    xfree(t->bucket);
    t->n_buckets = 2 * t->room;
    t->bucket = xcalloc((size_t)t->n_buckets, sizeof *t->bucket);
    for (int i = 0; i < t->n; i++) t->bucket[bucket_of(t, &t->key[i])] = i + 1;
}

static int keys_add(struct tally_keys *t, const struct tally_key *k)
{
    if (t->n == t->room) keys_grow(t);
    int at = bucket_of(t, k);
    CHECK(!t->bucket[at], "%s is in the tally already", k->what);
    t->key[t->n] = *k;
    t->bucket[at] = ++t->n;
    return t->n - 1;
}

/* ---- plans ---- */
/* Seconds by the alpha-beta model, over a link of the config or, where that names none, of this machine class. */
static double seconds(const struct comm *c, const struct op *o, struct comm_traffic t)
{
    const struct comm_config *f = &c->w->cfg;
    double latency = f->link_latency_s > 0 ? f->link_latency_s : COMM_LINK_LATENCY_S;
    double rate = f->link_GBps > 0 ? f->link_GBps * 1e9 : COMM_LINK_GBPS * 1e9;
    if (o->coll.op == COMM_EXCHANGE || o->algorithm->native)
        return latency * (double)t.messages + (double)t.bytes / rate;
    return comm_moves_cost(&o->moves, c->rank, o->coll.dtype, latency, rate);
}

/* The row that a reader sees this operation in. */
static int row_of(struct counted_rows *t, const struct op *o)
{
    bool exchange = o->coll.op == COMM_EXCHANGE;
    struct tally_key k;
    memset(&k, 0, sizeof k);
    k.op = (int32_t)o->coll.op;
    k.dtype = (int32_t)(exchange && o->n_list ? o->list[0].dtype : o->coll.dtype);
    k.n = exchange && o->n_list ? o->list[0].n : o->coll.n;
    k.algorithm = exchange ? NULL : o->algorithm;
    memcpy(k.what, o->desc.what, sizeof k.what);
    int i = keys_find(&t->told, &k), room = t->told.room;
    if (i >= 0) return i;
    i = keys_add(&t->told, &k);
    if (room != t->told.room) t->row = xrealloc(t->row, (size_t)t->told.room * sizeof *t->row);
    t->row[i] = (struct comm_tally){.op = o->coll.op,
                                    .dtype = (enum dtype)k.dtype,
                                    .n = k.n,
                                    .algorithm = exchange ? "messages" : o->algorithm->name};
    snprintf(t->row[i].what, sizeof t->row[i].what, "%s", o->desc.what);
    return i;
}

const struct tally_plan *tally_find(struct comm *c, const struct tally_key *k)
{
    int i = keys_find(&c->tally.asked, k);
    return i < 0 ? NULL : &c->tally.plan[i];
}

const struct tally_plan *tally_plan(struct comm *c, const struct tally_key *k, const struct op *o,
                                    struct comm_traffic t, double link_s)
{
    struct counted_rows *x = &c->tally;
    int room = x->asked.room, i = keys_add(&x->asked, k);
    if (room != x->asked.room) x->plan = xrealloc(x->plan, (size_t)x->asked.room * sizeof *x->plan);
    x->plan[i] = (struct tally_plan){t, seconds(c, o, t), link_s, row_of(x, o)};
    return &x->plan[i];
}

void tally_add(struct comm *c, const struct tally_plan *p)
{
    struct comm_tally *row = &c->tally.row[p->row];
    struct comm_traffic *t = &c->traffic[row->op];
    t->operations++;
    t->bytes += p->traffic.bytes;
    t->messages += p->traffic.messages;
    row->traffic.operations++;
    row->traffic.bytes += p->traffic.bytes;
    row->traffic.messages += p->traffic.messages;
    row->seconds += p->seconds;
    c->times.link_s += p->link_s;
}

void tally_free(struct counted_rows *t)
{
    struct tally_keys *keys[] = {&t->asked, &t->told};
    for (int i = 0; i < 2; i++) {
        xfree(keys[i]->key);
        xfree(keys[i]->bucket);
    }
    xfree(t->plan);
    xfree(t->row);
    memset(t, 0, sizeof *t);
}

const struct comm_tally *comm_tally(const struct comm *c, int *n)
{
    *n = c->tally.told.n;
    return c->tally.row;
}
