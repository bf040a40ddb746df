/* SPDX-License-Identifier: Apache-2.0 */
/* One training step on the null device, then reading its books. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "run/serve.h"
#include "run/stages.h"

static int ascending(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* The remainders of the parameters that n ranks share out. */
static void note_bounds(struct plan_bounds *b, const struct engine *g, bool expert, int n, struct arena *a)
{
    int *all = xcalloc((size_t)g->params.n + 1, sizeof *all), k = 0;
    for (int i = 0; i < g->params.n; i++) {
        const struct param *p = &g->params.p[i];
        if (p->expert == expert && p->held && p->ln[0] % n) all[k++] = (int)(p->ln[0] % n);
    }
    qsort(all, (size_t)k, sizeof *all, ascending);
    b->at = arena_alloc(a, sizeof *b->at * ((size_t)k + 1));
    b->count = arena_alloc(a, sizeof *b->count * ((size_t)k + 1));
    b->n = 0;
    for (int i = 0; i < k; i++) {
        if (!i || all[i] != all[i - 1]) {
            b->at[b->n] = all[i];
            b->count[b->n++] = 0;
        }
        b->count[b->n - 1]++;
    }
    xfree(all);
}

static void note_stages(struct plan_stages *s, const struct engine *g, struct arena *a)
{
    *s = (struct plan_stages){.layer = arena_alloc(a, sizeof *s->layer * (to_size(g->cfg.model.layers) + 1))};
    for (int i = 0; i < g->n_stages; i++) {
        const struct model_stage *part = &g->stage[i].part;
        s->embeds |= part->embeds;
        s->heads |= part->heads;
        for (int layer = part->first; layer < part->end; layer++) s->layer[s->n_layers++] = layer;
    }
    qsort(s->layer, (size_t)s->n_layers, sizeof *s->layer, ascending);
}

/* The step is done. */
static void read_books(struct plan_rank *r, struct plan *p, const struct config *c, const struct engine *g, const struct ranks *ranks)
{
    const struct engine_config *ec = &g->cfg;
    p->params = g->params.numel;
    p->microbatches = ec->n_microbatches;
    p->tokens_per_step = c->batch.global * c->model.seq_len;
    r->flops_token = engine_flops_model(g) / (double)(ec->n_microbatches * ec->micro * ec->seq * config_dp(c));
    r->flops = engine_flops_step(g);
    r->at = ranks->par;
    r->rank = ranks->rank;
    r->server = ranks->server >= 0;
    memcpy(r->bytes, g->dev->ledger.at_peak, sizeof r->bytes);
    r->peak_bytes = g->dev->ledger.peak_total;
    r->act_bytes_microbatch = g->n_act ? (int64_t)g->act[0].bytes : 0;
    ranks_traffic(ranks, r->comm);
    struct comm_traffic copies = copies_traffic(&g->copies); /* between stages with the same parameters */
    r->comm[AXIS_PP].bytes += copies.bytes;
    r->comm[AXIS_PP].messages += copies.messages;
    r->comm[AXIS_PP].operations += copies.operations;
}

int plan_rank(struct plan_rank *r, struct plan *p, const struct config *c, int rank, struct plan_cuts *cuts, struct err *e)
{
    struct device *d = NULL;
    struct engine *g = NULL;
    struct comm *world = NULL;
    struct ranks ranks = {0};
    struct engine_config ec = config_engine(c);
    struct comm_config cc = config_comm(c);
    cc.link_GBps = cc.link_latency_s = 0;
    int rc = device_null_new(&d, e);
    if (!rc && p->n_ranks > 1) rc = comm_world_null(&world, rank, p->n_ranks, &cc, e);
    if (!rc) rc = ranks_init(&ranks, world, c, e);
    if (!rc) ranks_engine(&ranks, &ec);
    if (!rc) rc = engine_new(&g, &ec, d, e);
    struct serve *serve = NULL;
    struct serve_config sc = {.async = c->parallel.server_mode == SERVER_ASYNC, .optim = ec.optim, .lr = config_lr(c), .steps = 1};
    if (!rc && ranks.n_servers) rc = serve_new(&serve, &sc, g, &ranks, e);
    if (!rc) engine_init(g);
    if (!rc && serve) rc = serve_dry_step(serve, &r->serve_bytes, e);
    if (!rc) {
        struct engine_batch nothing = {0};
        struct engine_report report;
        if (!serve) engine_step(g, &nothing, 0, 0, &report);
        read_books(r, p, c, g, &ranks);
    }
    if (!rc && cuts) {
        note_bounds(&cuts->dense, g, false, g->store.units.n_ranks, cuts->arena);
        note_bounds(&cuts->expert, g, true, g->store.units.n_expert_ranks, cuts->arena);
        note_stages(&cuts->stages, g, cuts->arena);
    }
    serve_free(serve);
    engine_free(g);
    ranks_fini(&ranks);
    comm_free(world);
    if (d) device_free(d);
    return rc;
}

void plan_free(struct plan *p)
{
    for (int i = 0; i < p->n_roles; i++) xfree(p->role[i].alike);
    xfree(p->role);
    *p = (struct plan){0};
}

double plan_sent_bytes(const struct plan_rank *r)
{
    double sent = (double)r->serve_bytes;
    for (int x = 0; x < AXIS_N; x++) sent += (double)r->comm[x].bytes;
    return sent;
}
