/* SPDX-License-Identifier: Apache-2.0 */
/* A step that learns from a batch of answers: each is a sequence whose tokens have factors (policy.h), and the step is
 * one as any other.
 *
 * Factors follow from what a token's nats are now. In the first step of a batch these are, on ranks that hold whole
 * layers, those that it was written with, to the bit, so nothing is computed twice; the step's own forward tells them
 * again, and the two are compared (logprobs_unlike). Over tp or cp sums have another order than on the rank that wrote:
 * there a pass of its own measures them before the step, and its numbers count as those of the writing; how far they
 * are from these is told. In later steps the weights are others, and such a pass is needed anywhere.
 *
 * The reference's nats are taken once a batch, with its weights in the place of the others (engine/reference.h). */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "train/trainer_policy_impl.h"

const double *policy_now(const struct trainer *t, int64_t i)
{
    const struct policy *p = t->policy;
    int64_t first, n;
    for (int part = 0;; part++) {
        config_part(&t->cfg, part, &first, &n);
        if (i >= first && i < first + n)
            return p->now + (part * policy_room(t) + i - first) * p->seq + p->answer[i].n_prompt - 1;
    }
}

/* Old ones beside those of now. The weights are those that wrote. */
static void compare(const struct trainer *t)
{
    struct policy *p = t->policy;
    for (int64_t i = 0; i < p->n; i++) {
        const double *now = policy_now(t, i), *old = p->old + i * p->most;
        for (int64_t k = 0; k < p->answer[i].n; k++) {
            double by = fabs(now[k] - old[k]);
            p->sums.unlike += memcmp(&now[k], &old[k], sizeof *now) != 0;
            if (by > p->sums.unlike_most) p->sums.unlike_most = by;
        }
    }
}

/* Nats of the batch with the weights that are there, to now, and to `of` where that is not NULL. */
static void measure(struct trainer *t, const struct engine_batch *b, double *of)
{
    struct policy *p = t->policy;
    struct engine_report r;
    engine_evaluate(t->site.engine, b, &r);
    t->passed_flops += work_flops(&t->cost, &r, false);
    engine_token_nats(t->site.engine, p->now);
    for (int64_t i = 0; of && i < p->n; i++)
        memcpy(of + i * p->most, policy_now(t, i), to_size(p->answer[i].n) * sizeof *of);
}

static void measure_reference(struct trainer *t, const struct engine_batch *b)
{
    reference_swap(t->site.engine);
    measure(t, b, t->policy->reference);
    reference_swap(t->site.engine);
}

/* What must be known before the step; now: what its weights give, or NULL where that is what was written. */
static void prepare(struct trainer *t, const struct engine_batch *b)
{
    struct policy *p = t->policy;
    if (p->fresh && p->rules.beta > 0) measure_reference(t, b);
    if (p->fresh && policy_same_sums(t)) return;
    measure(t, b, NULL);
    if (!p->fresh) return;
    compare(t);
    for (int64_t i = 0; i < p->n; i++)
        memcpy(p->old + i * p->most, policy_now(t, i), to_size(p->answer[i].n) * sizeof *p->old);
}

static void set_factors(struct trainer *t)
{
    struct policy *p = t->policy;
    for (int64_t i = 0; i < p->n; i++) {
        const struct rollout_answer *a = &p->answer[i];
        const double *old = p->old + i * p->most, *now = p->fresh ? old : policy_now(t, i);
        float *factor = p->factor + i * p->seq;
        double weight = p->rules.by_token   ? 1 / (double)p->sums.length
                        : p->rules.constant ? 1 / ((double)p->rules.constant * (double)p->n)
                                            : 1 / ((double)a->n * (double)p->n);
        memset(factor, 0, to_size(p->seq) * sizeof *factor);
        for (int64_t k = 0; k < a->n; k++) {
            struct policy_token x = {.now = now[k],
                                     .old = old[k],
                                     .ref = p->reference[i * p->most + k],
                                     .advantage = p->advantage[i],
                                     .weight = weight};
            factor[a->n_prompt - 1 + k] = (float)policy_token(&p->rules, &x, &p->sums);
        }
    }
}

static void say_unlike(struct trainer *t)
{
    struct policy *p = t->policy;
    if (t->leads && p->sums.unlike && !p->warned)
        log_warn("step %lld: %lld of %lld log-probabilities are not, to the bit, what they were when the answers were "
                 "written; by %.3g at most (logprobs_unlike in metrics.jsonl)",
                 (long long)t->step + 1, (long long)p->sums.unlike, (long long)p->sums.length, p->sums.unlike_most);
    p->warned |= p->sums.unlike > 0;
}

bool trainer_policy_step(struct trainer *t, const struct engine_batch *b, double lr, struct engine_report *r)
{
    struct policy *p = t->policy;
    t->passed_flops = 0;
    prepare(t, b);
    set_factors(t);
    bool finite = engine_step(t->site.engine, b, t->step, lr, r);
    engine_token_nats(t->site.engine, p->now);
    if (p->fresh && policy_same_sums(t)) {
        compare(t);
        say_unlike(t);
    }
    if (!p->fresh) p->sums.unlike = -1;
    p->fresh = false;
    if (r->skip != SKIP_UNTRAINED) r->loss = p->sums.loss;
    return finite;
}
