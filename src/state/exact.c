/* SPDX-License-Identifier: Apache-2.0 */
/* The binary counter is the one that merges runs in a merge sort: run r meets as many waiting sums as r has trailing
 * one bits. Sums wait in buffers of their own and the last merge ends in the gradient buffer itself, where everything
 * else looks for it. */
#include "state/exact.h"

#include <string.h>

#include "base/mem.h"
#include "kernel/flat.h"
#include "layout/region.h"

int64_t exact_run(int64_t n)
{
    while (n % 2 == 0 && n > 0) n /= 2;
    return n;
}

static int64_t share(int64_t n, int rank, int size)
{
    int64_t lo, hi;
    region_split(n, rank, size, &lo, &hi);
    return hi - lo;
}

/* The most that the ranks' parts of one parameter take. */
static int64_t largest_parts(const struct units *u, int shard, int replicate)
{
    int64_t most = 0;
    for (int i = 0; i < u->table->n; i++) {
        int64_t n = u->table->p[i].frozen ? 0 : u->piece[i].n, a = shard > 2 ? n * shard : 0,
                b = replicate > 2 ? (n / replicate + 1) * replicate : 0;
        if (a > most) most = a;
        if (b > most) most = b;
    }
    return most;
}

int exact_init(struct exact *x, struct store *s, struct stream *st, int64_t n_microbatches, int shard, int replicate,
               struct err *e)
{
    *x = (struct exact){.s = s, .stream = st, .run = exact_run(n_microbatches)};
    x->n_runs = n_microbatches / x->run;
    int most = shard > replicate ? shard : replicate, rc = OK;
    x->send = xcalloc((size_t)most + 1, sizeof *x->send);
    x->recv = xcalloc((size_t)most + 1, sizeof *x->recv);
    for (; !rc && (int64_t)1 << x->n_levels < x->n_runs; x->n_levels += !rc) {
        CHECK(x->n_levels < EXACT_MAX_LEVELS, "%lld runs", (long long)x->n_runs);
        rc = buffer_new(&x->level[x->n_levels], s->dev, MEM_GRAD, s->array[STORE_GRAD].buf.bytes, e);
    }
    int64_t parts = largest_parts(&s->units, shard, replicate);
    if (!rc && parts) rc = buffer_new(&x->parts, s->dev, MEM_COMM, to_size(parts) * sizeof(float), e);
    if (rc) exact_fini(x);
    return rc;
}

void exact_fini(struct exact *x)
{
    for (int k = 0; k < x->n_levels; k++) buffer_free(&x->level[k]);
    buffer_free(&x->parts);
    xfree(x->send);
    xfree(x->recv);
    memset(x, 0, sizeof *x);
}

static float *at(const struct buffer *b, int64_t element) { return (float *)b->p + element; }

void exact_run_end(struct exact *x, int unit, int64_t run)
{
    const struct unit *u = &x->s->units.unit[unit];
    struct device *d = x->s->dev;
    if (d->counts_only || x->n_runs == 1) return;
    int64_t from = x->s->array[STORE_GRAD].at[u->first]; /* sums lie as gradients do */
    float *sum = at(&x->s->array[STORE_GRAD].buf, from);
    int k = 0;
    for (; run >> k & 1; k++) flat_sum_into(x->stream, sum, DT_F32, at(&x->level[k], from), DT_F32, u->numel, true);
    if (run + 1 < x->n_runs) flat_sum_into(x->stream, at(&x->level[k], from), DT_F32, sum, DT_F32, u->numel, false);
}

void exact_reduce_scatter(struct exact *x, struct comm *c, const float *whole, float *piece, int param)
{
    const struct units *u = &x->s->units;
    int size = comm_size(c);
    int64_t mine = u->piece[param].n;
    units_counts(u, param, x->send);
    for (int r = 0; r < size; r++) x->recv[r] = mine;
    comm_wait(c, comm_all_to_all_v(c, whole, x->parts.p, x->send, x->recv, DT_F32, u->table->p[param].name));
    if (!x->s->dev->counts_only) flat_sum_tree(x->stream, piece, x->parts.p, size, mine);
}

void exact_all_reduce(struct exact *x, struct comm *c, float *v, int64_t n, const char *what)
{
    int size = comm_size(c), rank = comm_rank(c);
    int64_t mine = share(n, rank, size), before = 0;
    for (int r = 0; r < size; r++) {
        x->send[r] = share(n, r, size);
        x->recv[r] = mine;
        if (r < rank) before += x->send[r];
    }
    comm_wait(c, comm_all_to_all_v(c, v, x->parts.p, x->send, x->recv, DT_F32, what));
    float *own = v ? v + before : NULL;
    if (!x->s->dev->counts_only) flat_sum_tree(x->stream, own, x->parts.p, size, mine);
    comm_wait(c, comm_all_gather_v(c, own, v, x->send, DT_F32, what));
}
