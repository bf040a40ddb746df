/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: a step of training, from a batch to new weights. engine_step at the end of the file is the whole of it; what
 * its lines do is said where they lead:
 *
 *   the batch              feed.c       tokens, targets, places go to the device; all ranks count what is trained
 *   forward and backward   executor.c   this rank's list (itinerary.c, written from the schedule): gather a unit's
 *                                       weights, run a microbatch through a stage's program (program/program_run.c: one
 *                                       kernel or message after the other), send to the next stage, reduce a unit's
 *                                       gradients (state/reduce.c)
 *   norm                   tally.c      of all ranks: words on the device (kernel/words.h) by which updates go
 *   update                 executor.c   the list's last part: optim/, then units are published; where the words say
 *                                       that a number is not finite, weights stay what they were
 *   loss                   tally.c      the host waits, reads the words, and adds up the loss of all ranks
 *   loss scale             scale.c      what fp16 makes of a gradient that is not finite
 */
#include "engine/step.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/balance.h"
#include "engine/executor.h"
#include "engine/feed.h"
#include "engine/tally.h"

const char *const engine_skips[SKIP_UNTRAINED + 1] = {"", "gradient", "loss", "batch", "untrained"};

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

void step_read_loss(struct engine *g, int64_t n_trained, struct engine_report *r)
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

/* Sums of the step before are gone. */
static void begin_sums(struct engine *g)
{
    tally_zero(g);
    recipes_begin(g);
    exchange_step_begin(&g->exchange);
}

static void forward_and_backward(struct engine *g, int64_t step, const struct step_info *info)
{
    struct looker look = {g, telemetry_begin(g, step), exponents_due(g, step)};
    if (look.exponents) exponents_begin(g);
    bool looks = look.telemetry || look.exponents;
    executor_run(g, true, info, looks ? look_at : g->watch, looks ? &look : g->watch_ctx);
}

static void finish_reductions(struct engine *g)
{
    exchange_reduce_finish(&g->exchange);
    copies_sum(&g->copies);
}

/* From a batch to gradients and the words that updates go by. All of it is on its way; nothing is waited for. */
static void make_gradients(struct engine *g, const struct engine_batch *b, int64_t step, struct engine_report *r)
{
    CHECK(g->cfg.training, "this engine was built for evaluation");
    *r = (struct engine_report){0};
    double from = clock_now_s();
    struct step_info info = feed_info(g, b, step, true, &r->tokens);
    feed_batch(g, b);
    begin_sums(g);
    part_over(g, TRACE_PART, "count tokens, hand over the batch", step, from);
    forward_and_backward(g, step, &info);
    from = clock_now_s();
    finish_reductions(g);
    from = part_over(g, TRACE_PART, "finish the sums of gradients", step, from);
    g->store.grad_times = g->scale.now;
    tally_norm_make(g);
    part_over(g, TRACE_PART, "norm of the gradient", step, from);
}

/* The host waits for the step. */
static void read_numbers(struct engine *g, int64_t step, struct engine_report *r)
{
    double from = clock_now_s();
    tally_read(g);
    from = part_over(g, TRACE_PART, "wait for the step's numbers", step, from);
    step_read_loss(g, r->tokens, r);
    part_over(g, TRACE_PART, "loss of all ranks", step, from);
    r->loss_scale = g->scale.now;
    r->grad_norm = tally_norm(g);
}

void engine_gradients(struct engine *g, const struct engine_batch *b, int64_t step, struct engine_report *r)
{
    make_gradients(g, b, step, r);
    read_numbers(g, step, r);
}

void engine_leave_out(struct engine *g, struct engine_report *r, enum engine_skip why)
{
    g->left_out++;
    r->skip = why;
    r->loss = r->grad_norm = NAN;
    r->loss_scale = g->scale.now;
}

/* Whether weights followed from the numbers, as the words say: the same on all ranks. *goes_on: whether the run may go
 * on where they did not, which is so while the loss scale can fall (fp16). */
static bool has_updated(struct engine *g, struct engine_report *r, bool *goes_on)
{
    const bool updated = tally_goes(g);
    *goes_on = updated;
    if (g->cfg.scale.first > 0) {
        r->skip = updated ? SKIP_NONE : isfinite(r->loss) ? SKIP_GRADIENT : SKIP_LOSS;
        *goes_on = loss_scale_after(&g->scale, &g->cfg.scale, updated);
    }
    if (!updated && *goes_on) g->left_out++;
    return updated;
}

/* What follows from a step beside its weights: scales of recipes, layers that fall back. */
static void decide_from(struct engine *g, int64_t step)
{
    recipes_end(g);
    if (!telemetry_due(g, step)) return;
    telemetry_agree(g);
    fallback_decide(g);
}

/* What the host does between gradients and update, where somebody wants it: routers' biases follow from loads that it
 * adds up, and are published as other weights are; a witness compares gradients. It waits for the numbers before. */
static bool host_is_between(const struct engine *g) { return g->before_update || balance_moves(g); }

static void between(struct engine *g, int64_t step, struct engine_report *r)
{
    read_numbers(g, step, r);
    if (g->before_update) g->before_update(g->before_update_ctx);
    if (tally_goes(g) && !engine_untrained(g, r)) balance_step(g);
}

bool engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr, struct engine_report *r)
{
    bool goes_on;
    make_gradients(g, b, step, r);
    const bool waits = host_is_between(g);
    if (waits) between(g, step, r);
    if (!engine_untrained(g, r)) executor_update(g, step, step - g->left_out, lr);
    if (!waits) read_numbers(g, step, r);
    if (exponents_due(g, step)) exponents_agree(g);
    if (engine_untrained(g, r)) {
        engine_leave_out(g, r, SKIP_UNTRAINED);
        return true;
    }
    if (has_updated(g, r, &goes_on)) decide_from(g, step);
    return goes_on;
}
