/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* suite: touches */
/* suite: wraps trial_run trainer_run site_open save_resume codec_decode codec_encode kernel_enqueue route_run_begin */
/* suite: wraps route_run_end comm_all_reduce feed_info preference_pair policy_advantages policy_token */
/* What tutti verify sees where bounds are wide: under codecs, moments of few bits, Adafactor, recipes in 8 bits, Muon
 * in them, and losses of answers that cancel. The config's own layout of two ranks is all that runs, so that no other
 * layout's bits help; without a fault each is equal. Three faults are known to be no more than what rounding does
 * (docs/data-parallel.md says why); one that is seen after all is not hidden any more. */
#include "verify/planted_narrow.h"

#define ZERO1 "parallel.zero=1"
#define TP2 "parallel.tp=2"
#define GRAD_FP8 "comm.grad=fp8", "batch.global=4"
#define GRAD_E5M2 "comm.grad=fp8-e5m2", "batch.global=4"
#define GRAD_INT8 "comm.grad=int8", "batch.global=4"
#define PARAM(codec) "comm.param=" codec, "precision.recipe=bf16", "batch.global=4"
#define EIGHT "optimizer.moments=8bit", "optimizer.block=16", "batch.global=4"
#define FACTORED "optimizer.name=adafactor", GRAD_FP8
#define DEEP "precision.recipe=fp8-current", "model.layers=8", "batch.global=4"
#define DELAYED "precision.recipe=fp8-delayed", "precision.history=2", "model.layers=8", "batch.global=4"
#define BEHIND "precision.recipe=fp8-current", "model.family=olmo2", "batch.global=4" /* norms behind layers */
#define MUON "optimizer.name=muon", "optimizer.lr=0.005"
#define ANSWERS                                                                                                        \
    "train.objective=grpo", "train.grpo.reward=true", "train.grpo.tokens=6", "train.grpo.group=2", "model.vocab=264"
#define OF_PAIRS                                                                                                       \
    "train.objective=dpo", "model.vocab=264", "batch.micro=1", "model.seq_len=32", "batch.global=6", "comm.grad=fp8"

enum { KEYS = 10 };
static const struct sight {
    const char *name;
    enum plant plant;
    const char *layout; /* on two ranks */
    const char *key[KEYS];
    bool hidden; /* in what rounding does */
} sights[] = {
    /* Terms of gradients in codes. */
    {"scale of the neighbour, fp8", NEIGHBOUR, ZERO1, {GRAD_FP8}, false},
    {"term twice, fp8", TERM_TWICE, ZERO1, {GRAD_FP8}, false},
    {"term lost, fp8", TERM_LOST, ZERO1, {GRAD_FP8}, false},
    {"bucket halved, fp8", HALVED, ZERO1, {GRAD_FP8}, false},
    {"cut off, fp8", TRUNCATED, ZERO1, {GRAD_FP8}, false},
    {"saturated, fp8", SATURATED, ZERO1, {GRAD_FP8}, false},
    {"a term a tenth too large, fp8", TERM_LARGER, ZERO1, {GRAD_FP8}, false},
    {"a fiftieth too large, fp8", HAIR, ZERO1, {GRAD_FP8}, true},
    {"scale of the neighbour, int8", NEIGHBOUR, ZERO1, {GRAD_INT8}, false},
    {"saturated, int8", SATURATED, ZERO1, {GRAD_INT8}, false},
    {"term lost, e5m2", TERM_LOST, ZERO1, {GRAD_E5M2}, false},
    {"bucket halved, e5m2", HALVED, ZERO1, {GRAD_E5M2}, false},
    {"cut off, e5m2", TRUNCATED, ZERO1, {GRAD_E5M2}, false},
    {"mean over own tokens, e5m2", COUNTED_ALONE, ZERO1, {GRAD_E5M2}, false},
    {"a term a tenth too large, e5m2", TERM_LARGER, ZERO1, {GRAD_E5M2}, true},
    {"microbatch lost, fp8", MICROBATCH_LOST, "parallel.zero=2", {"comm.grad=fp8", "batch.global=8"}, false},
    /* Parameters in codes. */
    {"stale bucket", STALE, ZERO1, {PARAM("fp8")}, false},
    {"parameters with the neighbour's scale", PARAM_SCALE, ZERO1, {PARAM("int8")}, false},
    {"parameters cut off", PARAM_TRUNCATED, ZERO1, {PARAM("fp8")}, false},
    /* Moments of few bits. */
    {"blocks shifted", SHIFTED, ZERO1, {EIGHT}, false},
    {"scales after loading", RESHARDED, ZERO1, {EIGHT}, false},
    {"second moments stand still", STILL, ZERO1, {EIGHT}, false},
    {"decays twice", DECAYED_TWICE, ZERO1, {EIGHT}, false},
    {"second moments stand still, fp8", STILL, ZERO1, {EIGHT, "comm.grad=fp8"}, false},
    {"decays twice, fp8", DECAYED_TWICE, ZERO1, {EIGHT, "comm.grad=fp8"}, false},
    {"first moments forget, fp8", FORGETS, ZERO1, {EIGHT, "comm.grad=fp8"}, false},
    {"short steps, fp8", SHORT, ZERO1, {EIGHT, "comm.grad=fp8"}, false},
    {"second moments stand still, bf16", STILL, ZERO1, {"optimizer.moments=bf16", "batch.global=4"}, false},
    /* Adafactor. */
    {"factors of a shard, bf16", FACTORS_ALONE, TP2, {"optimizer.name=adafactor", "precision.recipe=bf16"}, false},
    {"factors of a shard", FACTORS_ALONE, ZERO1, {FACTORED}, false},
    {"factors exchanged", EXCHANGED, ZERO1, {FACTORED}, false},
    {"adafactor decays twice", DECAYED_TWICE, ZERO1, {FACTORED}, false},
    {"short steps of adafactor", SHORT, ZERO1, {FACTORED}, false},
    {"clipped by a shard", CLIPPED_ALONE, ZERO1, {FACTORED, "optimizer.adafactor.clip=0.3"}, false},
    /* Recipes. */
    {"history of a rank", HISTORY_ALONE, ZERO1, {DELAYED}, false},
    {"history of a rank, tp", HISTORY_ALONE, TP2, {DELAYED}, false},
    {"largest of a rank, tp", LARGEST_ALONE, TP2, {DEEP}, true},
    {"decays twice, tp", DECAYED_TWICE, TP2, {DEEP, "optimizer.moments=bf16"}, false},
    {"norm of a rank, tp", NORM_ALONE, TP2, {BEHIND}, false},
    {"short steps, tp", SHORT, TP2, {BEHIND, "optimizer.moments=bf16"}, false},
    {"second moments stand still, tp", STILL, TP2, {BEHIND, "optimizer.moments=bf16"}, false},
    {"mean over own tokens, fp8 twice", COUNTED_ALONE, ZERO1, {BEHIND, "comm.grad=fp8-e5m2"}, false},
    /* Muon in them. */
    {"shards orthogonalised alone, tp", MATRIX_ALONE, TP2, {DEEP, MUON}, false},
    {"another momentum, tp", MOMENTUM_OTHER, TP2, {DEEP, MUON}, false},
    {"size of a shard, tp", SIZE_ALONE, TP2, {DEEP, MUON}, false},
    {"muon decays twice, tp", DECAYED_TWICE, TP2, {DEEP, MUON}, false},
    {"size of a shard, fp8", SIZE_ALONE, ZERO1, {GRAD_FP8, MUON}, false},
    /* Answers. */
    {"weights of a rank's answers", WEIGHT_ALONE, ZERO1, {ANSWERS}, false},
    {"weights of a rank's answers, fp8", WEIGHT_ALONE, ZERO1, {ANSWERS, "comm.grad=fp8"}, false},
    {"advantages of a rank's answers, fp8", ADVANTAGE_ALONE, ZERO1, {ANSWERS, "comm.grad=fp8"}, false},
    {"no distance to the reference, fp8",
     KL_LOST,
     ZERO1,
     {ANSWERS, "train.grpo.beta=0.1", "train.grpo.updates=2", "comm.grad=fp8"},
     false},
    {"weights of a rank's pairs, fp8", WEIGHT_ALONE, ZERO1, {OF_PAIRS}, false},
    {"reference of the other answer, fp8", OTHER_ANSWER, ZERO1, {OF_PAIRS}, false},
};

static void load(struct config *c, struct arena *a, const struct sight *s, bool one, char **words, int *n)
{
    struct err e = {0};
    struct conf *f;
    int keys = 0;
    while (keys < KEYS && s->key[keys]) keys++;
    *n = toy_words(words, a, s->key, keys);
    words[*n] = arena_strdup(a, one ? "parallel.zero=0" : s->layout);
    if (config_load(c, &f, a, NULL, words, *n + 1, &e)) fail_msg("%s: %s", s->name, e.text);
    if (config_resolve(c, f, 0, one ? 1 : 2, &e)) fail_msg("%s: %s", s->name, e.text);
}

/* A run that ends is told as well. */
static bool equal(const struct sight *s, struct str *out)
{
    struct arena *a = arena_new();
    struct config c, own;
    struct verify v;
    struct err e = {0};
    char *words[64];
    int n;
    load(&own, a, s, false, words, &n);
    load(&c, a, s, true, words, &n);
    bool trains = c.train.objective != OBJECTIVE_NEXT;
    const struct trained_asked asked = {.keys = words, .n_keys = n};
    int rc = verify_all(&v,
                        &(struct verify_asked){.config = &c,
                                               .own = &own,
                                               .trains = trains ? &asked : NULL,
                                               .axes = VERIFY_ALL,
                                               .steps = 3},
                        &e);
    if (rc) str_printf(out, "ended: %s\n", e.text);
    else verify_print(&v, out);
    if (!rc && trains && !v.n_trained) fail_msg("%s: not trained: %s", s->name, v.untrained);
    bool ok = !rc && v.ok;
    verify_free(&v);
    arena_free(a);
    return ok;
}

static bool same_run(const struct sight *a, const struct sight *b)
{
    return !strcmp(a->layout, b->layout) && !memcmp(a->key, b->key, sizeof a->key);
}

static void test_planted_faults_are_seen(void **state)
{
    (void)state;
    const struct sight *before = NULL;
    struct str said = {0};
    for (size_t i = 0; i < sizeof sights / sizeof *sights; i += CASE_STRIDE) {
        const struct sight *s = &sights[i];
        if (!drawn_half(i, CASE_STRIDE)) continue; /* every day half of them */
        struct str out = {0};
        planted = NONE;
        if ((!before || !same_run(before, s)) && !equal(s, &out))
            fail_msg("without '%s':\n%s", s->name, str_text(&out));
        before = s;
        str_clear(&out);
        planted = s->plant;
        if (equal(s, &out) != s->hidden) str_printf(&said, "%s: %s\n", s->name, s->hidden ? "seen" : str_text(&out));
        planted = NONE;
        str_free(&out);
    }
    fputs(str_text(&said), stderr);
    if (said.n) fail_msg("not as it is known");
    str_free(&said);
}

/* Each is planted somewhere, and all but these are seen. */
static void test_what_is_planted(void **state)
{
    (void)state;
    enum { N = sizeof sights / sizeof *sights, SEEN = 50, HIDDEN = 3 };
    _Static_assert(N == SEEN + HIDDEN, "how many of how many");
    bool any[PLANTS] = {false};
    int hidden = 0;
    for (int i = 0; i < N; i++) {
        any[sights[i].plant] = true;
        hidden += sights[i].hidden;
    }
    assert_int_equal(hidden, HIDDEN);
    for (int p = NONE + 1; p < PLANTS; p++)
        if (!any[p]) fail_msg("fault %d is planted nowhere", p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_planted),
                                       cmocka_unit_test(test_planted_faults_are_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
