/* SPDX-License-Identifier: Apache-2.0 */
/* suite: whole late running */
/* suite: devices late running */
/* suite: long late running */
/* Experts in rounds over a small buffer, beside one buffer for the worst choice: the same layout, the same bits of
 * every gradient, updated value and loss, in more rounds and fewer bytes, as planned. Every token of most sequences is
 * the same word, so all of them go to the same experts. Where the buffer is smaller than what a product sums at a time,
 * sums are rounded otherwise: then all layouts are held against one rank. And experts whose microbatches cp shares out,
 * beside the layout without: the same bits of the experts' gradients, so the same blocks, scales, codes and words of
 * chance. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "plan/plan.h"
#include "machine.h"
#include "site/site.h"
#include "sanitized.h"
#include "verify/thinned.h"
#include "verify/trial.h"
#include "verify/verify.h"

enum { MAX_KEYS = 24, STEPS = 2 };

static void load(struct config *c, struct arena *a, int n_ranks, const char *const *toy, const char *const *keys,
                 const char *buffer, const char *least)
{
    char *all[64];
    int k = 0;
    struct conf *f;
    struct err e = {0};
    for (int i = 0; toy[i]; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; i < MAX_KEYS && keys[i]; i++) all[k++] = arena_strdup(a, keys[i]);
    all[k++] = arena_strdup(a, buffer);
    all[k++] = arena_strdup(a, least);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(c, f, 0, n_ranks, &e)) fail_msg("%s", e.text);
}

/* Of every four sequences three are one word over and over, the fourth is as it was. */
static void make_alike(const struct config *c, int32_t *tokens)
{
    for (int64_t i = 0; i < c->batch.global * c->model.seq_len; i++)
        if (i / c->model.seq_len % 4 != 2) tokens[i] = 5;
}

static void run(struct outcome *o, const struct config *c)
{
    struct param_table p = {0};
    struct replay none = {0};
    struct err e = {0};
    int32_t *tokens = trial_tokens(c, 0), *unseen = trial_tokens(c, 1);
    model_declare(&c->model, NULL, &p);
    outcome_init(o, c, p.numel);
    make_alike(c, tokens);
    make_alike(c, unseen);
    struct trial t =
        {.c = c, .tokens = tokens, .unseen = unseen, .steps = STEPS, .global = &p, .replay = &none, .out = o};
    if (trial_run(&t, &e)) fail_msg("%s", e.text);
    if (o->replicas[0]) fail_msg("%s", o->replicas);
    param_table_free(&p);
    xfree(tokens);
    xfree(unseen);
}

/* Of the parameters whose names have `part` in them. */
static void same(const char *what, const char *part, const float *got, const float *want, const struct config *c,
                 int64_t n)
{
    struct param_table p = {0};
    model_declare(&c->model, NULL, &p);
    for (int i = 0; i < p.n; i++)
        for (int64_t k = 0; strstr(p.p[i].name, part) && k < p.p[i].numel && p.p[i].offset + k < n; k++)
            if (got[p.p[i].offset + k] != want[p.p[i].offset + k])
                fail_msg("%s of %s, element %" PRId64 ": %.9g, wanted %.9g", what, p.p[i].name, k,
                         (double)got[p.p[i].offset + k], (double)want[p.p[i].offset + k]);
    param_table_free(&p);
}

/* What rank 0's ledger says is what the plan says. */
static void planned(const struct config *c, const struct outcome *o)
{
    struct plan p;
    struct err e = {0};
    if (plan_make(&p, c, &e)) fail_msg("%s", e.text);
    const struct plan_rank *first = p.role;
    while (first->rank != 0) first++;
    if (o->peak_bytes != (int64_t)first->peak_bytes)
        fail_msg("%" PRId64 " bytes allocated, %zu planned", o->peak_bytes, first->peak_bytes);
    plan_free(&p);
}

static const char *const toy[] = {"model.layers=2",    "model.hidden=20",
                                  "model.heads=2",     "model.vocab=67",
                                  "model.seq_len=256", "run.threads=1",
                                  "comm.timeout_s=60", "batch.micro=4",
                                  "optimizer.lr=1e-2", NULL};
#define MIXTRAL "model.family=mixtral", "model.kv_heads=1", "model.moe.experts=6", "model.ffn=24"
#define DEEPSEEK                                                                                                       \
    "model.family=deepseek", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=12", "model.moe.shared=1",     \
        "model.moe.first_dense=1", "model.ffn=28", "model.moe.score=sigmoid", "model.mla.kv_rank=10",                  \
        "model.mla.nope_dim=6", "model.mla.rope_dim=4", "model.mla.value_dim=7"

#define EXPERTS_IN(recipe) "precision.layers={\"*.experts.*\": " recipe "}"

static const struct {
    int ranks;
    const char *keys[MAX_KEYS];
} layouts[] = {
    {2, {MIXTRAL, "parallel.ep=2", "batch.global=16"}},
    {2, {DEEPSEEK, "parallel.ep=2", "batch.global=8", "parallel.zero=3", "precision.recipe=fp32"}},
    {2,
     {DEEPSEEK, "parallel.ep=2", "batch.global=8", "precision.recipe=fp8-current",
      "precision.layers={\"*.experts.*\": fp8-delayed}"}},
    {4,
     {MIXTRAL, "parallel.ep=2", "parallel.tp=2", "batch.global=8", "memory.recompute=full",
      "precision.layers={\"*.experts.*\": fp8-delayed}", "parallel.zero=2"}},
    {2, {MIXTRAL, "parallel.ep=2", "parallel.cp=2", "batch.global=8", "batch.micro=8", "precision.recipe=fp8-delayed"}},
    /* scales of an expert's rows of a microbatch: rounds end between those */
    {2, {MIXTRAL, EXPERTS_IN("fp8-current"), "parallel.ep=2", "batch.global=16", "memory.recompute=full"}},
    {2,
     {MIXTRAL, EXPERTS_IN("nvfp4"), "parallel.ep=2", "parallel.tp=2", "parallel.etp=1", "batch.global=8",
      "precision.keep_weights=true"}},
    {2, {DEEPSEEK, EXPERTS_IN("mxfp8"), "parallel.ep=2", "batch.global=16", "parallel.zero=3"}},
    {2, {MIXTRAL, EXPERTS_IN("fp8-block"), "precision.block_scale=fp32", "parallel.ep=2", "batch.global=8"}},
    {2, {MIXTRAL, EXPERTS_IN("nvfp4"), "parallel.ep=2", "parallel.cp=2", "batch.global=12", "batch.micro=6"}},
    {4,
     {MIXTRAL, EXPERTS_IN("fp8-current"), "parallel.ep=2", "parallel.tp=4", "parallel.etp=2", "batch.global=8",
      "memory.recompute=experts"}},
    {4, {MIXTRAL, "parallel.ep=4", "batch.global=16", "parallel.zero=1"}},
    {4,
     {DEEPSEEK, "model.layers=3", "parallel.pp_layers=[2, 1]", "parallel.ep=2", "parallel.pp=2",
      "parallel.schedule=zbh1", "batch.global=24", "parallel.zero=2"}},
    {4, {MIXTRAL, "parallel.ep=2", "parallel.tp=2", "parallel.zero=3", "batch.global=8", "memory.recompute=full"}},
    {4,
     {MIXTRAL, "parallel.ep=2", "parallel.tp=4", "parallel.etp=2", "batch.global=4", "memory.offload=[activations]",
      "memory.offload_least=1"}},
    {4,
     {DEEPSEEK, "parallel.ep=4", "parallel.tp=2", "parallel.etp=1", "parallel.sequence_parallel=true", "batch.global=8",
      "parallel.zero=3"}},
    {2, {DEEPSEEK, "parallel.ep=2", "parallel.cp=2", "batch.global=8", "batch.micro=8", "memory.recompute=experts"}},
    {2, {MIXTRAL, "parallel.ep=2", "batch.global=8", "memory.recompute=selective", "model.moe.capacity=3"}},
};

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i += SANITIZED ? 3 : 1) {
        if (!drawn_half(i, SANITIZED ? 3 : 1)) continue; /* every day half of them */
        struct arena *a = arena_new();
        struct config one, few;
        struct outcome want, got;
        load(&one, a, layouts[i].ranks, toy, layouts[i].keys, "moe.buffer=0", "moe.buffer_least=1");
        load(&few, a, layouts[i].ranks, toy, layouts[i].keys, "moe.buffer=0.1", "moe.buffer_least=1536");
        run(&want, &one);
        run(&got, &few);
        assert_int_equal(want.rounds[0], 0);
        if (got.rounds[0] < 2) fail_msg("layout %zu: %d rounds", i, got.rounds[0]);
        if (got.peak_bytes >= want.peak_bytes)
            fail_msg("layout %zu: %" PRId64 " bytes, %" PRId64 " in one round", i, got.peak_bytes, want.peak_bytes);
        planned(&few, &got);
        for (int s = 0; s < STEPS; s++)
            if (got.loss[s] != want.loss[s])
                fail_msg("layout %zu: loss %.17g, in one round %.17g", i, got.loss[s], want.loss[s]);
        assert_true(got.eval_loss == want.eval_loss);
        char what[48];
        snprintf(what, sizeof what, "layout %zu: gradient", i);
        same(what, "", got.grad, want.grad, &one, want.numel);
        same("value", "", got.value, want.value, &one, want.numel);
        outcome_fini(&want);
        outcome_fini(&got);
        arena_free(a);
    }
}

/* Every token sees itself alone: then attention by heads, which has a sequence's keys in another order, gives every row
 * the bits that it has without cp, and the experts of a model of one layer are asked the same. An expert's rows of a
 * microbatch (246 at most) are fewer than any product sums at a time: a gradient that is sent after every microbatch
 * then has the bits of one that goes on from microbatch to microbatch. */
static void test_cp_changes_nothing(void **state)
{
    (void)state;
    static const char *const small[] = {"model.layers=1",       "model.hidden=64",
                                        "model.heads=4",        "model.vocab=67",
                                        "model.ffn=64",         "run.threads=1",
                                        "comm.timeout_s=60",    "batch.global=12",
                                        "model.seq_len=41",     "model.attn.window=1",
                                        "model.family=mixtral", "model.kv_heads=4",
                                        "model.moe.experts=4",  "parallel.cp_algorithm=all_to_all",
                                        "batch.micro=6",        NULL};
    static const struct {
        int without, with; /* ranks */
        const char *keys[3], *more[3];
    } layouts_of_cp[] =
        {{1, 2, {"parallel.ep=1"}, {"parallel.cp=2", "parallel.ep=2"}},
         {2, 4, {"parallel.dp_shard=2", "parallel.ep=2"}, {"parallel.cp=2", "parallel.ep=4"}},
         {2, 4, {"parallel.tp=2", "parallel.etp=1", "parallel.ep=2"}, {"parallel.cp=2", "parallel.ep=4"}}};
    static const char *const recipes[] = {EXPERTS_IN("nvfp4"), EXPERTS_IN("mxfp8"), EXPERTS_IN("fp8-block")};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (size_t k = 0; k < sizeof layouts_of_cp / sizeof *layouts_of_cp; k++) {
            if ((i + k) % CASE_STRIDE) continue;
            struct arena *a = arena_new();
            struct config one, cp;
            struct outcome want, got;
            const char *keys[MAX_KEYS] = {recipes[i]};
            memcpy(keys + 1, layouts_of_cp[k].keys, sizeof layouts_of_cp[k].keys);
            load(&one, a, layouts_of_cp[k].without, small, keys, "moe.buffer=0", "moe.buffer_least=1");
            int n = 0;
            while (keys[n]) n++;
            memcpy(keys + n, layouts_of_cp[k].more, sizeof layouts_of_cp[k].more);
            load(&cp, a, layouts_of_cp[k].with, small, keys, "moe.buffer=0", "moe.buffer_least=1");
            run(&want, &one);
            run(&got, &cp);
            same(arena_printf(a, "%s, layout %zu", recipes[i], k), ".experts.", got.grad, want.grad, &one, want.numel);
            outcome_fini(&want);
            outcome_fini(&got);
            arena_free(a);
        }
}

/* A buffer of a few rows, cut anywhere: every layout of three ranks, with a capacity and without. */
static void test_few_rows(void **state)
{
    (void)state;
    static const char *const small[] = {"model.layers=2",        "model.hidden=24",
                                        "model.heads=2",         "model.vocab=67",
                                        "model.seq_len=10",      "run.threads=1",
                                        "comm.timeout_s=60",     "batch.global=5",
                                        "batch.micro=2",         "optimizer.lr=1e-3",
                                        "precision.recipe=fp32", "parallel.dp_shard=-1",
                                        "optimizer.eps=1e-5",    NULL};
    static const char *const variants[][MAX_KEYS] = {{MIXTRAL}, {DEEPSEEK, "model.moe.capacity=0.9"}};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += SANITIZED ? 2 : 1) {
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        load(&c, a, 1, small, variants[i], "moe.buffer=0.3", "moe.buffer_least=3");
        if (thinned_run(&v, &c, 3, VERIFY_DP | VERIFY_EP | VERIFY_TP, 1, 0, 1, &e)) fail_msg("%s", e.text);
        struct str out = {0};
        verify_print(&v, &out);
        if (!v.ok) {
            fputs(str_text(&out), stderr);
            fail_msg("variant %zu", i);
        }
        assert_non_null(strstr(str_text(&out), "tp3 ep3 etp1"));
        str_free(&out);
        verify_free(&v);
        arena_free(a);
    }
}

/* Both experts get all tokens, so every forward takes as many rounds as its rows fill the buffer: the mean says exactly
 * that, also beyond what is counted one by one. */
struct counting {
    const struct config *c;
    const int32_t *tokens;
    double mean;
    int most;
};
static int count(struct comm *world, void *arg, struct err *e)
{
    struct counting *x = arg;
    struct site at;
    struct engine_report report;
    int rc = site_open(&at, &(struct site_config){.config = x->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine_batch b = machine_part(x->c, x->tokens, at.ranks.part);
    engine_init(at.engine);
    engine_step(at.engine, &b, 0, 1e-3, &report);
    if (!at.ranks.rank) {
        x->mean = report.rounds_mean;
        x->most = report.rounds_most;
    }
    rc = engine_status(at.engine, e);
    site_close(&at);
    return rc;
}

static void test_mean(void **state)
{
    (void)state;
    static const int rows[] = {47, 20, 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int wide = 1; wide <= 2; wide++) { /* sequences of a microbatch; of two there are twice as many rows */
            struct arena *a = arena_new();
            struct config c;
            struct err e = {0};
            char keys[400];
            snprintf(keys, sizeof keys,
                     "model.family=mixtral model.moe.experts=2 model.moe.top_k=2 parallel.ep=2 model.seq_len=24 "
                     "batch.global=4 batch.micro=%d moe.buffer=0.001 moe.buffer_least=%d",
                     wide, rows[i]);
            struct counting x = {.c = &c, .tokens = machine_toy(&c, a, keys, 2)};
            struct comm_config cc = config_comm(&c);
            if (comm_run_local(2, &cc, count, &x, &e)) fail_msg("%s: %s", keys, e.text);
            int want = (48 * wide + rows[i] - 1) / rows[i], most = want < 64 ? want : 64;
            if (x.mean != want || x.most != most)
                fail_msg("%s: mean %g, most %d; wanted %d and %d", keys, x.mean, x.most, want, most);
            xfree((void *)(uintptr_t)x.tokens);
            arena_free(a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_cp_changes_nothing),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
