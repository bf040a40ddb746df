/* SPDX-License-Identifier: Apache-2.0 */
/* Sums are f64 counts and losses, a few hundred numbers per layer: one all-reduce a step. */
#include "engine/balance.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/tally.h"

static int64_t each(const struct engine *g) { return balance_numel(&g->cfg.model); }

size_t balance_bytes(const struct engine_config *c)
{
    return to_size(balance_numel(&c->model) * model_blocks(&c->model)) * sizeof(double);
}

/* Rows may come to their experts in rounds: of the config, so that all ranks say the same. */
static int64_t n_rounds(const struct engine *g)
{
    const struct par *p = &g->cfg.par;
    bool travel = p->size[AXIS_EP] > 1 || par_expert_copies(p) > 1;
    return travel && g->cfg.experts.even > 0 ? PAR_ROUNDS : 0;
}

void balance_bind(struct engine *g)
{
    if (!each(g)) return;
    g->load = xcalloc(to_size(each(g) * model_blocks(&g->cfg.model) + n_rounds(g)), sizeof *g->load);
    for (int l = 0; l < model_blocks(&g->cfg.model); l++)
        g->slot[slot_balance(g->params.n, to_int(model_blocks(&g->cfg.model)), l)] =
            g->balance.p ? (char *)g->balance.p + to_size(l * each(g)) * sizeof(double) : NULL;
}

static void sum_over(struct comm *c, double *v, int64_t n, const char *what)
{
    if (c) comm_wait(c, comm_all_reduce(c, v, v, n, DT_F64, COMM_SUM, what));
}

static void read_rounds(const double *count, struct engine_report *r)
{
    double forwards = 0;
    for (int n = 1; n < PAR_ROUNDS; n++) {
        forwards += count[n];
        if (count[n] > 0) r->rounds_most = n;
    }
    r->rounds_mean = forwards > 0 ? count[0] / forwards : 0;
}

void balance_read(struct engine *g, struct engine_report *r)
{
    int64_t n = each(g) * model_blocks(&g->cfg.model);
    if (!n) return;
    if (tally_balance(g)) memcpy(g->load, tally_balance(g), g->balance.bytes);
    for (int64_t i = 0; i < n_rounds(g); i++) g->load[n + i] = (double)g->collectives.rounds[i];
    memset(g->collectives.rounds, 0, sizeof g->collectives.rounds);
    n += n_rounds(g);
    exchange_sum_f64(&g->exchange, g->load, n);
    if (model_tokens_split(&g->cfg.par))
        sum_over(g->cfg.host.tp, g->load, n, "expert load over tokens"); /* else all tp ranks have the same */
    sum_over(g->cfg.host.pp, g->load, n, "expert load over stages");
    for (int l = 0; r->tokens && l < model_blocks(&g->cfg.model); l++) {
        r->balance_loss += g->load[l * each(g)] / (double)r->tokens;
        r->z_loss += g->load[l * each(g) + 1] / (double)r->tokens;
    }
    if (n_rounds(g)) read_rounds(g->load + n - n_rounds(g), r);
}

const double *balance_load(const struct engine *g, int layer)
{
    return g->load && model_layer_is_moe(&g->cfg.model, layer) ? g->load + layer * each(g) + 2 : NULL;
}

double balance_worst(const struct engine *g)
{
    double worst = 0;
    for (int l = 0; l < model_blocks(&g->cfg.model); l++) {
        const double *load_E = balance_load(g, l);
        double sum = 0, most = 0;
        for (int e = 0; load_E && e < g->cfg.model.moe.experts; e++) {
            sum += load_E[e];
            if (load_E[e] > most) most = load_E[e];
        }
        if (sum > 0 && most / sum * g->cfg.model.moe.experts > worst) worst = most / sum * g->cfg.model.moe.experts;
    }
    return worst;
}

static void move(struct engine *g, int param, const double *load_E)
{
    int experts = g->cfg.model.moe.experts;
    double mean = 0;
    for (int e = 0; e < experts; e++) mean += load_E[e] / experts;
    struct array_span x = store_held(&g->store, param, STORE_MASTER);
    float *b = xmalloc(to_size(x.n) * sizeof *b + 1), speed = (float)g->cfg.model.moe.bias_speed;
    store_read(&g->store, g->stream, param, STORE_MASTER, b);
    for (int64_t i = 0; i < x.n; i++) b[i] += load_E[x.lo + i] > mean ? -speed : load_E[x.lo + i] < mean ? speed : 0;
    store_write(&g->store, &g->kernels, g->stream, param, STORE_MASTER, b);
    xfree(b);
}

bool balance_moves(const struct engine *g)
{
    return g->cfg.model.moe.bias && g->cfg.model.moe.bias_speed != 0 && !g->dev->counts_only;
}

void balance_step(struct engine *g)
{
    if (!balance_moves(g)) return;
    for (int l = 0; l < model_blocks(&g->cfg.model); l++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "layers.%d.moe.router.bias", l);
        int i = balance_load(g, l) ? param_find(&g->params, name) : -1;
        if (i >= 0 && !g->params.p[i].frozen) move(g, i, balance_load(g, l));
    }
}
