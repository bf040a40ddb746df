/* SPDX-License-Identifier: Apache-2.0 */
/* The exact loss: every rank writes its microbatches into a list of all, zeros elsewhere; adding the lists up adds zeros
 * only, so the transport's order means nothing, and everybody sums the list from the front. */
#include "run/tally.h"

#include <math.h>

#include "optim/squares.h"

static int at_least_1(int n) { return n > 1 ? n : 1; }

size_t tally_bytes(const struct engine_config *c)
{
    return (c->exact_order ? to_size(c->n_microbatches) : 1) * 2 * sizeof(double);
}

void *tally_at(const struct engine *g, int microbatch)
{
    size_t one = g->cfg.exact_order ? 2 * sizeof(double) : 0;
    return g->stat.p ? (char *)g->stat.p + (size_t)microbatch * one : NULL;
}

/* Over data-parallel ranks, and over the stages: the loss is where the head is. */
static void over_ranks(struct engine *g, double *v, int64_t n)
{
    struct comm *pipe = g->cfg.host.pp;
    exchange_sum_f64(&g->exchange, v, n);
    if (pipe) comm_wait(pipe, comm_all_reduce(pipe, v, v, n, DT_F64, COMM_SUM, "loss over stages"));
}

void tally_loss(struct engine *g, double *nats, double *tokens)
{
    const struct par *p = &g->cfg.par;
    int64_t here = (int64_t)(g->stat.bytes / (2 * sizeof(double))), parts = 1, part = 0;
    if (g->cfg.exact_order) {
        parts = (int64_t)at_least_1(p->size[AXIS_DP_REPLICATE]) * at_least_1(p->size[AXIS_DP_SHARD]);
        part = (int64_t)p->rank[AXIS_DP_REPLICATE] * at_least_1(p->size[AXIS_DP_SHARD]) + p->rank[AXIS_DP_SHARD];
    }
    double *all = xcalloc(to_size(2 * here * parts), sizeof *all);
    device_to_host(g->stream, all + 2 * here * part, &g->stat, 0, g->stat.bytes);
    stream_sync(g->stream);
    over_ranks(g, all, 2 * here * parts);
    *nats = *tokens = 0;
    for (int64_t i = 0; i < here * parts; i++) {
        *nats += all[2 * i];
        *tokens += all[2 * i + 1];
    }
    xfree(all);
}

static void over_model(struct engine *g, void *v, int64_t n, enum dtype t)
{
    struct comm *c = g->cfg.model_group;
    if (c) comm_wait(c, comm_all_reduce(c, v, v, n, t, COMM_SUM, "gradient norm"));
}

double tally_norm(struct engine *g)
{
    const struct store *s = &g->store;
    if (!g->cfg.exact_order) {
        double squares = optim_sum_squares(s, g->stream);
        over_model(g, &squares, 1, DT_F64);
        return sqrt(squares);
    }
    int64_t word[FLAT_SQUARES_WORDS] = {0};
    for (int i = 0; !g->dev->counts_only && i < s->table->n; i++)
        if (s->table->p[i].counted) flat_squares(g->stream, store_piece_grad(s, i), s->units.piece[i].n, word);
    over_model(g, word, FLAT_SQUARES_WORDS, DT_I64);
    return sqrt(squares_total(word));
}
