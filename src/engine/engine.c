/* SPDX-License-Identifier: Apache-2.0 */
/* A step: feeding the batch, running the itinerary, adding up a few numbers over the ranks. What it needs was made in
 * engine_open.c. */
#include "engine/engine.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/balance.h"
#include "engine/build.h"
#include "engine/executor.h"
#include "engine/feed.h"
#include "engine/tally.h"

const char *const engine_skips[SKIP_UNTRAINED + 1] = {"", "gradient", "loss", "batch", "untrained"};

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

static void read_loss(struct engine *g, int64_t n_trained, struct engine_report *r)
{
    struct tally sum = tally_loss(g);
    CHECK(g->dev->counts_only || (int64_t)sum.tokens == n_trained || engine_status(g, NULL),
          "trained on %.0f tokens, the batch has %lld", sum.tokens, (long long)n_trained);
    r->nats = sum.nats;
    r->right = sum.right;
    r->tokens = n_trained;
    r->sequences = g->sequences;
    memcpy(r->pairs, g->pairs, sizeof r->pairs);
    r->padded = g->padded;
    r->busiest = g->busiest;
    r->busiest_by_position = g->busiest_by_position;
    r->loss = engine_untrained(g, r) ? NAN : n_trained ? sum.nats / (double)n_trained : 0;
    for (int k = 0; k < g->cfg.model.mtp.depth; k++)
        r->ahead[k] = sum.ahead[k].tokens > 0 ? sum.ahead[k].nats / sum.ahead[k].tokens : NAN;
    balance_read(g, r);
}

/* Now, until when a part of the step lasted. */
static double part_over(struct engine *g, enum trace_kind kind, const char *what, int64_t step, double from)
{
    double now = clock_now_s();
    trace_add(g->trace, kind, what, step, from, now);
    return now;
}

/* A step that somebody looks at. */
struct looker {
    struct engine *g;
    bool telemetry, exponents;
};

static void look_at(void *looker, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    const struct looker *l = looker;
    if (l->g->watch) l->g->watch(l->g->watch_ctx, p, c, i);
    if (l->telemetry) telemetry_look(l->g, p, c, i);
    if (l->exponents) exponents_look(l->g, p, c, i);
}

void engine_gradients(struct engine *g, const struct engine_batch *b, int64_t step, struct engine_report *r)
{
    CHECK(g->cfg.training, "this engine was built for evaluation");
    *r = (struct engine_report){0};
    int64_t n_trained;
    double from = clock_now_s();
    struct step_info info = feed_info(g, b, step, true, &n_trained);
    feed_batch(g, b);
    tally_zero(g);
    recipes_begin(g);
    exchange_step_begin(&g->exchange);
    from = part_over(g, TRACE_PART, "count tokens, hand over the batch", step, from);
    struct looker look = {g, telemetry_begin(g, step), exponents_due(g, step)};
    if (look.exponents) exponents_begin(g);
    bool looks = look.telemetry || look.exponents;
    executor_run(g, true, &info, looks ? look_at : g->watch, looks ? &look : g->watch_ctx);
    from = clock_now_s();
    exchange_reduce_finish(&g->exchange);
    copies_sum(&g->copies);
    from = part_over(g, TRACE_PART, "finish the sums of gradients", step, from);
    tally_read(g, true);
    from = part_over(g, TRACE_PART, "loss and norm of this rank", step, from);
    read_loss(g, n_trained, r);
    from = part_over(g, TRACE_PART, "loss of all ranks", step, from);
    r->loss_scale = g->store.grad_times = g->scale.now;
    r->grad_norm = tally_norm(g) / g->scale.now;
    part_over(g, TRACE_PART, "norm of the gradient", step, from);
}

bool engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr, struct engine_report *r)
{
    engine_gradients(g, b, step, r);
    if (g->before_update) g->before_update(g->before_update_ctx);
    if (exponents_due(g, step)) exponents_agree(g);
    if (engine_untrained(g, r)) {
        engine_leave_out(g, r, SKIP_UNTRAINED);
        return true;
    }
    bool finite = isfinite(r->loss) && isfinite(r->grad_norm), goes_on = finite;
    if (g->cfg.scale.first > 0) {
        r->skip = finite ? SKIP_NONE : isfinite(r->loss) ? SKIP_GRADIENT : SKIP_LOSS;
        goes_on = loss_scale_after(&g->scale, &g->cfg.scale, finite);
    }
    if (!finite && goes_on) g->left_out++;
    if (!finite) return goes_on;
    balance_step(g);
    recipes_end(g);
    if (telemetry_due(g, step)) {
        telemetry_agree(g);
        fallback_decide(g);
    }
    executor_update(g, step, step - g->left_out, lr, r->grad_norm);
    return true;
}

void engine_leave_out(struct engine *g, struct engine_report *r, enum engine_skip why)
{
    g->left_out++;
    r->skip = why;
    r->loss = r->grad_norm = NAN;
    r->loss_scale = g->scale.now;
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
    tally_read(g, false);
    read_loss(g, n_trained, r);
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
