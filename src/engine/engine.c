/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine is asked beside a step of training (step.c): first weights, evaluation, counts. What it needs was made
 * in engine_open.c. */
#include "engine/engine.h"

#include "engine/build.h"
#include "engine/executor.h"
#include "engine/feed.h"
#include "engine/step.h"
#include "engine/tally.h"

void engine_init(struct engine *g)
{
    loss_scale_init(&g->scale, &g->cfg.scale);
    g->left_out = 0;
    store_init(&g->store, &g->kernels, g->stream, g->cfg.seed);
    coded_round_params(&g->exchange);
}

/* Where nothing is computed steps of no batch are counted, with all that they send. */
bool engine_untrained(const struct engine *g, const struct engine_report *r)
{
    return !r->tokens && !g->dev->counts_only;
}

void engine_evaluate(struct engine *g, const struct engine_batch *b, struct engine_report *r)
{
    *r = (struct engine_report){0};
    int64_t n_trained;
    struct step_info info = feed_info(g, b, 0, false, &n_trained);
    feed_batch(g, b);
    tally_zero(g);
    recipes_begin(g);
    executor_run(g, false, &info, g->watch, g->watch_ctx);
    tally_read(g);
    step_read_loss(g, n_trained, r);
}

int64_t engine_n_sequences(const struct engine *g)
{
    const struct par *p = &g->cfg.par;
    int64_t replicas = p->size[AXIS_DP_REPLICATE] > 1 ? p->size[AXIS_DP_REPLICATE] : 1,
            shards = p->size[AXIS_DP_SHARD] > 1 ? p->size[AXIS_DP_SHARD] : 1;
    return g->cfg.n_microbatches * replicas * shards;
}

void engine_sequence_nats(struct engine *g, double *nats) { tally_sequences(g, nats); }

void engine_token_nats(struct engine *g, double *nats) { tally_tokens(g, nats); }

void engine_weigh(struct engine *g, const double *factor)
{
    CHECK(!factor || g->cfg.by_sequence, "sequences are not apart");
    g->factor = factor;
}

int engine_status(const struct engine *g, struct err *e) { return g->cfg.world ? comm_status(g->cfg.world, e) : OK; }

/* ---- counts ---- */
int engine_runs(const struct engine *g, const struct schedule *when, int i)
{
    int runs = 0;
    for (int m = 0; m < when->n_microbatches; m++)
        runs += schedule_rank_of(when, g->stage[i].index, m) == build_pipe_rank(g);
    return runs;
}

static double all_of(const struct program *p, bool model)
{
    return model ? p->flops_model : p->flops[PHASE_F] + p->flops[PHASE_B] + p->flops[PHASE_W];
}

static double flops(const struct engine *g, bool model)
{
    double sum = 0;
    for (int i = 0; i < g->n_stages; i++) {
        const struct engine_stage *s = &g->stage[i];
        sum += all_of(s->train ? s->train : s->eval, model) * engine_runs(g, g->when, i);
        if (s->train && g->cfg.passes > 0)
            sum += g->cfg.passes * all_of(s->eval, model) * engine_runs(g, g->when_eval, i);
    }
    return sum;
}

double engine_flops_step(const struct engine *g) { return flops(g, false); }

double engine_flops_model(const struct engine *g) { return flops(g, true); }
