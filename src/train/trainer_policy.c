/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of answers (train.objective: grpo). Every rank writes its share of them (rollout.h), all learn all of them,
 * rank 0 asks what they are worth; then each answer is a sequence of the batch, and as many steps as asked learn from
 * it (trainer_policy_step.c) before the next batch is written.
 *
 * Which answers a batch has is a function of the weights and of (seed, batch, prompt, answer), in any layout: one that
 * is stopped while it is written is written again from the beginning, and is the same. What it was written with is gone
 * after its first step, so a run stops and saves between batches. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "learn/policy_prompts.h"
#include "learn/reward.h"
#include "decode/rollout.h"
#include "train/trainer_policy_impl.h"

bool trainer_rewards(const struct trainer *t) { return t->cfg.train.objective == OBJECTIVE_GRPO; }
const struct policy_sums *trainer_policy_sums(const struct trainer *t) { return &t->policy->sums; }
int64_t trainer_policy_prompts(const struct trainer *t) { return policy_prompts_n(t->policy->prompts); }
int64_t trainer_policy_tokens(const struct trainer *t)
{
    return t->policy ? policy_prompts_tokens(t->policy->prompts) : 0;
}

/* Which batch of answers the step at hand learns from. */
static int64_t batch_of(const struct trainer *t) { return t->step / t->cfg.train.grpo.updates; }

bool trainer_policy_amid(const struct trainer *t)
{
    return t->policy && t->step % t->cfg.train.grpo.updates && t->policy->batch == batch_of(t);
}

/* ---- open ---- */

int trainer_policy_data(struct trainer *t, struct err *e)
{
    char n[32], s[32];
    struct policy *p = t->policy = xcalloc(1, sizeof *p);
    p->seq = t->cfg.model.seq_len;
    p->most = t->cfg.train.grpo.tokens;
    int rc =
        policy_prompts_open(&p->prompts, &t->cfg, t->tokenizer, p->seq - p->most + 1, signals_flag(t->job->signals), e);
    if (rc) return err_prefix(e, "%s: data.train", conf_where(t->conf, "data.train"));
    t->data = (struct changes_data){policy_prompts_fingerprint(p->prompts), 0, true};
    if (t->leads)
        log_info("data: %s prompts of %s tokens", str_count(s, (double)policy_prompts_n(p->prompts)),
                 str_count(n, (double)policy_prompts_tokens(p->prompts)));
    return OK;
}

void trainer_policy_open(struct trainer *t)
{
    struct policy *p = t->policy;
    if (!p) return;
    const struct config *c = &t->cfg;
    p->n = c->batch.global;
    p->group = c->train.grpo.group;
    p->batch = -1;
    p->updates = c->train.grpo.updates;
    p->rules = (struct policy_rules){.beta = c->train.grpo.beta,
                                     .low = c->train.grpo.clip,
                                     .high = c->train.grpo.clip_high > 0 ? c->train.grpo.clip_high : c->train.grpo.clip,
                                     .plain_advantage = c->train.grpo.advantage == 1,
                                     .by_token = c->train.grpo.mean == 1,
                                     .constant = c->train.grpo.mean == 2 ? c->train.grpo.tokens : 0};
    size_t n = to_size(p->n), most = to_size(p->most), seq = to_size(p->seq);
    p->answer = xcalloc(n, sizeof *p->answer);
    p->ids = xcalloc(n * most, sizeof *p->ids);
    p->old = xcalloc(n * most, sizeof *p->old);
    p->now = xcalloc(to_size(config_dp(c) * policy_room(t)) * seq, sizeof *p->now);
    p->reference = xcalloc(n * most, sizeof *p->reference);
    p->reward = xcalloc(n, sizeof *p->reward);
    p->advantage = xcalloc(n, sizeof *p->advantage);
    p->tokens = xcalloc(n * seq, sizeof *p->tokens);
    p->targets = xcalloc(n * seq, sizeof *p->targets);
    p->place = xcalloc(n * seq, sizeof *p->place);
    p->factor = xcalloc(n * seq, sizeof *p->factor);
    rollout_end_at(t->site.rollout, &(struct rollout_ends){.tokenizer = t->tokenizer,
                                                           .eos = c->from.eos,
                                                           .n_eos = c->from.n_eos,
                                                           .stop = c->train.grpo.stop.items,
                                                           .n_stop = c->train.grpo.stop.n});
    if (t->leads && !policy_same_sums(t))
        log_info(
            "answers: over parallel.tp and cp sums have another order than on the rank that writes; log-probabilities "
            "are those of a pass of the training's own, and metrics say how far they are from what was written");
}

void trainer_policy_close(struct trainer *t)
{
    struct policy *p = t->policy;
    if (!p) return;
    policy_prompts_close(p->prompts);
    xfree(p->answer);
    xfree(p->ids);
    xfree(p->old);
    xfree(p->now);
    xfree(p->reference);
    xfree(p->reward);
    xfree(p->advantage);
    xfree(p->tokens);
    xfree(p->targets);
    xfree(p->place);
    xfree(p->factor);
    xfree(p);
    t->policy = NULL;
}

/* ---- answers ---- */

struct policy_prompt policy_prompt_of(const struct trainer *t, int64_t answer)
{
    const struct policy *p = t->policy;
    return policy_prompts_at(p->prompts, (batch_of(t) * p->n + answer) / p->group);
}

/* This rank's share: all of some ranks' groups, so that a prompt is read once where that can be. */
static void share_of(const struct trainer *t, int64_t *first, int64_t *n)
{
    const struct policy *p = t->policy;
    int64_t lo = p->n * t->site.ranks.rank / t->site.ranks.n, hi = p->n * (t->site.ranks.rank + 1) / t->site.ranks.n;
    *first = lo;
    *n = hi - lo;
}

static int write_share(struct trainer *t, struct err *e)
{
    struct policy *p = t->policy;
    uint64_t stream = rng_stream_at(rng_stream("answer"), (uint64_t)batch_of(t));
    int64_t first, n;
    share_of(t, &first, &n);
    for (int64_t i = first; i < first + n; i++) {
        struct policy_prompt q = policy_prompt_of(t, i);
        p->answer[i] = (struct rollout_answer){.prompt = q.ids,
                                               .n_prompt = q.n,
                                               .seed = rng_u64((uint64_t)t->cfg.run.seed, stream, (uint64_t)i),
                                               .like = i % p->group && i > first ? i - i % p->group - first : -1,
                                               .ids = p->ids + i * p->most,
                                               .nats = p->old + i * p->most};
        if (p->answer[i].like < 0 && i > first && i % p->group) p->answer[i].like = 0;
    }
    return rollout_write(t->site.rollout, p->answer + first, n, p->most, signals_flag(t->job->signals), e);
}

/* What each rank wrote, on all of them; what a rank did not write is zeros there. */
static int share_all(struct trainer *t, struct err *e)
{
    struct policy *p = t->policy;
    struct comm *w = t->site.ranks.world;
    int64_t first, mine, words = p->most + 2;
    if (!w) return OK;
    share_of(t, &first, &mine);
    int64_t *all = xcalloc(to_size(p->n * words), sizeof *all);
    for (int64_t i = 0; i < p->n; i++) {
        bool here = i >= first && i < first + mine;
        if (!here) memset(p->old + i * p->most, 0, to_size(p->most) * sizeof *p->old);
        if (!here) continue;
        all[i * words] = p->answer[i].n;
        all[i * words + 1] = p->answer[i].ended;
        for (int64_t k = 0; k < p->answer[i].n; k++) all[i * words + 2 + k] = p->ids[i * p->most + k];
        for (int64_t k = p->answer[i].n; k < p->most; k++) p->old[i * p->most + k] = 0;
    }
    comm_wait(w, comm_all_reduce(w, all, all, p->n * words, DT_I64, COMM_SUM, "answers"));
    comm_wait(w, comm_all_reduce(w, p->old, p->old, p->n * p->most, DT_F64, COMM_SUM, "log-probabilities of answers"));
    for (int64_t i = 0; i < p->n; i++) {
        struct policy_prompt q = policy_prompt_of(t, i);
        p->answer[i].prompt = q.ids;
        p->answer[i].n_prompt = q.n;
        p->answer[i].n = all[i * words];
        p->answer[i].ended = all[i * words + 1] != 0;
        for (int64_t k = 0; k < p->answer[i].n; k++) p->ids[i * p->most + k] = (int32_t)all[i * words + 2 + k];
    }
    xfree(all);
    return comm_status(w, e);
}

/* ---- rewards ---- */

static int ask_rewards(struct trainer *t, struct err *e)
{
    struct policy *p = t->policy;
    struct str lines = {0}, text = {0};
    struct reward_hook h = {.hook = t->cfg.train.grpo.reward,
                            .limit_s = t->cfg.train.grpo.reward_limit_s,
                            .tries = t->cfg.train.grpo.reward_tries,
                            .pause_s = t->cfg.train.grpo.reward_pause_s,
                            .give_up = signals_flag(t->job->signals)};
    for (int64_t i = 0; i < p->n; i++) policy_put_question(t, i, &text, &lines);
    int rc = reward_ask(&h, str_text(&lines), lines.n, p->n, p->reward, e);
    str_free(&lines);
    str_free(&text);
    return rc;
}

/* Rewards that are alike in every group teach nothing; said when it begins, and after ten, a hundred, ... such batches.
 */
static void say_alike(struct trainer *t)
{
    struct policy *p = t->policy;
    bool any = false;
    int64_t decade = 1;
    for (int64_t i = 0; i < p->n; i++) any |= p->advantage[i] != 0;
    p->alike = any ? 0 : p->alike + 1;
    while (decade < p->alike) decade *= 10;
    if (!t->leads || p->alike != decade) return;
    log_status_end();
    log_warn("step %lld: the rewards of all answers to a prompt are the same (%g the first one) in %lld batch%s in a "
             "row: "
             "%s; does train.grpo.reward tell answers apart, and is there one that is right?",
             (long long)t->step + 1, p->reward[0], (long long)p->alike, p->alike == 1 ? "" : "es",
             p->rules.beta > 0 ? "only train.grpo.beta moves the model" : "nothing is learnt from them");
}

static int learn_rewards(struct trainer *t, struct err *e)
{
    struct policy *p = t->policy;
    struct comm *w = t->site.ranks.world;
    int rc = trainer_together(t, t->leads ? ask_rewards(t, e) : OK, e);
    if (rc) return rc;
    if (w) comm_wait(w, comm_broadcast(w, p->reward, p->n, DT_F64, 0, "rewards"));
    policy_advantages(&p->rules, p->reward, p->n, p->group, p->advantage);
    say_alike(t);
    return w ? comm_status(w, e) : OK;
}

/* ---- the batch ---- */

static double mean_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

static void count(struct policy *p)
{
    p->sums = (struct policy_sums){.answers = p->n,
                                   .reward = mean_of(p->reward, p->n),
                                   .rules = &p->rules,
                                   .updates = p->updates};
    for (int64_t i = 0; i < p->n; i++) {
        p->sums.length += p->answer[i].n;
        p->sums.ended += p->answer[i].ended;
    }
    for (int64_t g = 0; g < p->n; g += p->group) {
        double mean = mean_of(p->reward + g, p->group), squares = 0;
        for (int64_t i = g; i < g + p->group; i++) squares += (p->reward[i] - mean) * (p->reward[i] - mean);
        p->sums.reward_std += sqrt(squares / (double)(p->group - 1)) / (double)(p->n / p->group);
    }
}

/* Sequence i: the prompt, the answer; place k says token k + 1. */
static void lay_out(struct policy *p, int64_t i)
{
    const struct rollout_answer *a = &p->answer[i];
    const int32_t *ids = p->ids + i * p->most;
    int32_t *tokens = p->tokens + i * p->seq, *targets = p->targets + i * p->seq, *place = p->place + i * p->seq;
    int64_t all = a->n_prompt + a->n;
    for (int64_t k = 0; k < p->seq; k++) {
        tokens[k] = k < a->n_prompt ? a->prompt[k] : k < all ? ids[k - a->n_prompt] : 0;
        targets[k] = k + 1 >= a->n_prompt && k + 1 < all ? ids[k + 1 - a->n_prompt] : -1;
        place[k] = (int32_t)k;
    }
}

/* Answers and what they are worth. t->put_off: a signal came. */
static int next_answers(struct trainer *t, struct err *e)
{
    struct policy *p = t->policy;
    int rc = rollout_take_weights(t->site.rollout, e);
    if (!rc) rc = write_share(t, e);
    rc = trainer_together(t, rc, e);
    if (!rc) rc = trainer_together(t, share_all(t, e), e);
    if (!rc) rc = learn_rewards(t, e);
    t->put_off = rc == ERR_SIGNAL;
    if (t->put_off) return OK;
    if (rc && t->step > 0 && t->saved != t->step) {
        struct err other = {0};
        bool saved = !trainer_save(t, true, &other);
        err_prefix(e, saved ? "step %lld was saved, and nothing is lost" : "step %lld could not be saved, either",
                   (long long)t->step);
    }
    if (rc) return rc;
    for (int64_t i = 0; i < p->n; i++) lay_out(p, i);
    p->batch = batch_of(t);
    p->fresh = true;
    return OK;
}

int trainer_policy_batch(struct trainer *t, struct engine_batch *b, struct err *e)
{
    struct policy *p = t->policy;
    int64_t first, n;
    t->put_off = false;
    int rc = p->batch == batch_of(t) ? OK : next_answers(t, e);
    if (rc || t->put_off) return rc;
    count(p);
    config_part(&t->cfg, t->site.ranks.part, &first, &n);
    *b = (struct engine_batch){.n = n, .first = first};
    b->tokens = p->tokens + first * p->seq;
    b->targets = p->targets + first * p->seq;
    b->positions = p->place + first * p->seq;
    b->factor = p->factor + first * p->seq;
    for (int64_t i = first; i < first + n; i++) {
        b->n_trained += p->answer[i].n;
        b->n_padded += p->seq - (p->answer[i].n_prompt + p->answer[i].n - 1);
    }
    return OK;
}
