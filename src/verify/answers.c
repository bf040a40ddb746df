/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks write all answers, which no run does: so each rank's copy of the weights is read, and ranks can be compared
 * with each other. Prompts have unlike lengths, and fewer answers are written at a time than there are, so that rows
 * beside a row change while it is written. */
#include "verify/answers.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

struct answers {
    const struct config *c;
    struct site *at;
    struct tokenizer *tokenizer;
    int64_t n, most, seq;
    struct rollout_answer *answer;     /* [n] */
    int32_t *ids;                      /* [n][most] */
    double *nats;                      /* [n][most], as written */
    int32_t *tokens, *targets, *place; /* [n][seq] */
    float *factor;
    double *now; /* of engine_token_nats */
};

/* In bf16 a logit is a sum of products of numbers that were rounded to 8 bits, in every layer once more where partial
 * sums of ranks meet: an eighth of a nat is ten times what small models show. In fp32 it is 24 bits. */
double answers_bound(const struct config *c)
{
    if (c->parallel.tp == 1 && c->parallel.cp == 1) return 0;
    return c->precision.recipe == RECIPE_FP32 ? 1e-5 : 0.125;
}

int answers_new(struct answers **out, const struct config *c, struct site *at, const int32_t *tokens, struct err *e)
{
    const struct engine_config *g = &at->engine->cfg;
    int64_t n = c->batch.global, seq = c->model.seq_len, room = seq / 2 + 1;
    struct answers *x = *out = xcalloc(1, sizeof *x);
    *x = (struct answers){.c = c, .at = at, .n = n, .seq = seq};
    x->most = c->train.grpo.tokens < room ? c->train.grpo.tokens : room;
    x->answer = xcalloc(to_size(n), sizeof *x->answer);
    x->ids = xcalloc(to_size(n * x->most), sizeof *x->ids);
    x->nats = xcalloc(to_size(n * x->most), sizeof *x->nats);
    x->tokens = xcalloc(to_size(n * seq), sizeof *x->tokens);
    x->targets = xcalloc(to_size(n * seq), sizeof *x->targets);
    x->place = xcalloc(to_size(n * seq), sizeof *x->place);
    x->factor = xcalloc(to_size(n * seq), sizeof *x->factor);
    x->now = xcalloc(to_size(config_dp(c) * g->n_microbatches * g->micro * seq), sizeof *x->now);
    for (int64_t i = 0; i < n; i++)
        x->answer[i] = (struct rollout_answer){.prompt = tokens + i * seq,
                                               .n_prompt = 1 + i % (seq - seq / 2),
                                               .seed = rng_u64(7, rng_stream("answers that are compared"), (uint64_t)i),
                                               .like = -1,
                                               .ids = x->ids + i * x->most,
                                               .nats = x->nats + i * x->most};
    int rc = tokenizer_open(&x->tokenizer, "byte", e); /* its end of a text is as good as any */
    if (!rc) rollout_end_at(at->rollout, &(struct rollout_ends){.tokenizer = x->tokenizer});
    return rc;
}

void answers_free(struct answers *x)
{
    if (!x) return;
    tokenizer_free(x->tokenizer);
    xfree(x->answer);
    xfree(x->ids);
    xfree(x->nats);
    xfree(x->tokens);
    xfree(x->targets);
    xfree(x->place);
    xfree(x->factor);
    xfree(x->now);
    xfree(x);
}

/* Place k of a sequence says token k + 1. */
static void lay_out(struct answers *x)
{
    for (int64_t i = 0; i < x->n; i++) {
        const struct rollout_answer *a = &x->answer[i];
        for (int64_t k = 0; k < x->seq; k++) {
            int64_t at = i * x->seq + k, next = k + 1 - a->n_prompt;
            x->tokens[at] = next <= 0 ? a->prompt[k] : next <= a->n ? a->ids[next - 1] : 0;
            x->targets[at] = next >= 0 && next < a->n ? a->ids[next] : -1;
            x->place[at] = (int32_t)k;
            x->factor[at] = x->targets[at] >= 0;
        }
    }
}

static void learn(struct answers *x)
{
    struct engine_report r;
    int64_t first, n;
    config_part(x->c, x->at->ranks.part, &first, &n);
    struct engine_batch b = {.tokens = x->tokens + first * x->seq,
                             .targets = x->targets + first * x->seq,
                             .positions = x->place + first * x->seq,
                             .factor = x->factor + first * x->seq,
                             .n = n,
                             .first = first};
    for (int64_t i = first; i < first + n; i++) b.n_trained += x->answer[i].n;
    engine_evaluate(x->at->engine, &b, &r);
    engine_token_nats(x->at->engine, x->now);
}

/* What training says of the places of sequence i. */
static const double *now_of(const struct answers *x, int64_t i)
{
    const struct engine_config *g = &x->at->engine->cfg;
    int64_t first, n, room = g->n_microbatches * g->micro;
    for (int part = 0;; part++) {
        config_part(x->c, part, &first, &n);
        if (i >= first && i < first + n) return x->now + (part * room + i - first) * x->seq;
    }
}

static uint64_t hash_of(const struct answers *x)
{
    struct hash64 h;
    hash64_init(&h);
    for (int64_t i = 0; i < x->n; i++) {
        const struct rollout_answer *a = &x->answer[i];
        hash64_add(&h, &a->n, sizeof a->n);
        hash64_add(&h, a->ids, to_size(a->n) * sizeof *a->ids);
        hash64_add(&h, a->nats, to_size(a->n) * sizeof *a->nats);
    }
    return hash64_value(&h);
}

/* found[]: tokens, unlike, most of this rank. */
static void count(const struct answers *x, double found[3])
{
    for (int64_t i = 0; i < x->n; i++) {
        const struct rollout_answer *a = &x->answer[i];
        const double *now = now_of(x, i) + a->n_prompt - 1;
        for (int64_t k = 0; k < a->n; k++) {
            double by = fabs(now[k] - a->nats[k]);
            found[0]++;
            found[1] += memcmp(&now[k], &a->nats[k], sizeof *now) != 0;
            if (!(by <= found[2])) found[2] = isnan(by) ? INFINITY : by;
        }
    }
}

int answers_compare(struct answers *x, struct answers_found *f, struct err *e)
{
    struct comm *w = x->at->ranks.world;
    double found[4] = {0};
    int rc = rollout_take_weights(x->at->rollout, e);
    if (!rc) rc = rollout_write(x->at->rollout, x->answer, x->n, x->most, NULL, e);
    if (w) rc = comm_agree(w, rc, e);
    if (rc) return rc;
    lay_out(x);
    learn(x);
    count(x, found);
    uint64_t mine = hash_of(x), first = mine;
    if (w) {
        comm_wait(w, comm_broadcast(w, &first, 1, DT_I64, 0, "what rank 0 wrote"));
        found[3] = mine != first;
        comm_wait(w, comm_all_reduce(w, found, found, 4, DT_F64, COMM_MAX, "answers that differ"));
    }
    if (!f->tokens) f->written = first;
    f->tokens += (int64_t)found[0];
    f->unlike += (int64_t)found[1];
    f->most = fmax(f->most, found[2]);
    f->apart |= found[3] > 0;
    return w ? comm_status(w, e) : engine_status(x->at->engine, e);
}
