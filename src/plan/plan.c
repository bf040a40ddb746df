/* SPDX-License-Identifier: Apache-2.0 */
/* One training step on the null device, then reading its books. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "site/site.h"
#include "engine/stages.h"
#include "optim/muon.h"

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
static void read_books(struct plan_rank *r, struct plan *p, const struct config *c, const struct engine *g,
                       const struct ranks *ranks)
{
    const struct engine_config *ec = &g->cfg;
    p->params = g->params.numel;
    p->microbatches = ec->n_microbatches;
    p->tokens_per_step = c->batch.global * c->model.seq_len;
    r->flops_token = engine_flops_model(g) / (double)(ec->n_microbatches * ec->micro * ec->seq * config_dp(c));
    r->flops = engine_flops_step(g) * config_share_there(c);
    r->optimizer_flops = muon_flops(g->tools.muon);
    struct choose_cost cost = choose_cost_of(g);
    r->waits = cost.work;
    if (g->when && !p->stage) {
        p->n_stages = g->when->n_stages;
        p->stage = xcalloc(to_size(p->n_stages), sizeof *p->stage);
    }
    if (p->stage) choose_stages_of(g, p->stage);
    r->moved = cost.moved;
    r->sent = cost.sent;
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

int plan_rank(struct plan_rank *r, struct plan *p, const struct config *c, int rank, struct plan_cuts *cuts,
              struct err *e)
{
    struct site s;
    struct comm_config cc = config_comm(c);
    cc.link_GBps = cc.link_latency_s = 0;
    struct param_server_config serve = {.async = c->parallel.server_mode == SERVER_ASYNC, .steps = 1};
    int rc = site_open(&s,
                       &(struct site_config){.config = c,
                                             .kind = SITE_COUNTS,
                                             .rank = rank,
                                             .n = p->n_ranks,
                                             .link = &cc,
                                             .serve = &serve},
                       e);
    if (rc) return rc;
    engine_init(s.engine);
    if (s.serve) rc = param_server_dry_step(s.serve, &r->serve_bytes, e);
    if (!rc) {
        struct engine_batch nothing = {.n = 0};
        struct engine_report report;
        if (!s.serve) engine_step(s.engine, &nothing, 0, 0, &report);
        read_books(r, p, c, s.engine, &s.ranks);
    }
    if (!rc && cuts) {
        note_bounds(&cuts->dense, s.engine, false, s.engine->store.units.n_ranks, cuts->arena);
        note_bounds(&cuts->expert, s.engine, true, s.engine->store.units.n_expert_ranks, cuts->arena);
        note_stages(&cuts->stages, s.engine, cuts->arena);
    }
    site_close(&s);
    return rc;
}

void plan_free(struct plan *p)
{
    for (int i = 0; i < p->n_roles; i++) xfree(p->role[i].alike);
    xfree(p->role);
    xfree(p->stage);
    *p = (struct plan){0};
}

double plan_sent_bytes(const struct plan_rank *r)
{
    double sent = (double)r->serve_bytes;
    for (int x = 0; x < AXIS_N; x++) sent += (double)r->comm[x].bytes;
    return sent;
}
