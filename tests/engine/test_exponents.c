/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Numbers by exponent (engine/exponents.h): counted as frexp says, as many in every layout and recipe, the same where
 * nothing is rounded in another order, and a step that is counted is the same step. */
#include "toy.h"

#include "config/config.h"
#include "machine.h"
#include "site/site.h"

/* ---- one view ---- */
static void test_bins(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 257, STRIDE = 300 };
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    for (int t = 0; t < 3; t++) {
        int64_t bins[EXPONENT_BINS] = {0}, want[EXPONENT_BINS] = {0};
        float *f = xcalloc((size_t)ROWS * STRIDE, sizeof *f);
        uint16_t *h = xcalloc((size_t)ROWS * STRIDE, sizeof *h);
        for (int i = 0; i < ROWS * STRIDE; i++) {
            uint32_t u = rng_u32(9, (uint64_t)t, (uint64_t)i);
            if (i % 5 == 0) u &= 0x807fffff; /* subnormal */
            if (i % 50 == 0) u = 0x80000000u;
            memcpy(&f[i], &u, sizeof u);
            h[i] = (uint16_t)(u >> 16);
            double x = t == 0 ? (double)f[i] : t == 1 ? (double)bf16_to_f32(h[i]) : (double)f16_to_f32(h[i]);
            int e = 0;
            (void)frexp(x, &e);
            if (i % STRIDE >= COLS) continue;
            want[!isfinite(x) ? EXPONENT_NOT_FINITE
                 : x == 0     ? EXPONENT_ZERO
                              : EXPONENT_FIRST + e - 1 - EXPONENT_LEAST]++;
        }
        struct view v = {.p = t ? (void *)h : (void *)f,
                         .dtype = types[t],
                         .nd = 2,
                         .n = {ROWS, COLS},
                         .stride = STRIDE};
        exponents_count(&v, bins);
        assert_memory_equal(bins, want, sizeof want);
        assert_true(want[EXPONENT_NOT_FINITE] > 0 && want[EXPONENT_ZERO] > 0 && (t || want[EXPONENT_FIRST + 100] > 0));
        xfree(f);
        xfree(h);
    }
}

/* ---- layouts ---- */
struct job {
    struct config c;
    int32_t *tokens;
    int64_t bins[CLASS_N][EXPONENT_BINS];
    double loss;
};

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    int rc = site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    engine_init(g);
    struct engine_batch b = machine_part(&j->c, j->tokens, at.ranks.part);
    struct engine_report report;
    for (int s = 0; s < 2; s++) engine_step(g, &b, s, 1e-2, &report);
    if (!world || comm_rank(world) == 0) {
        j->loss = report.loss;
        if (g->exponents.bins) memcpy(j->bins, g->exponents.bins, sizeof j->bins);
    }
    site_close(&at);
    return rc;
}

static void run(struct job *j, struct arena *a, const char *keys, int ranks)
{
    struct err e = {0};
    memset(j, 0, sizeof *j);
    j->tokens =
        machine_toy(&j->c, a,
                    arena_printf(a, "batch.global=8 batch.micro=2 model.layers=3 run.exponents_every=2 %s", keys),
                    ranks);
    struct comm_config cc = config_comm(&j->c);
    int rc = ranks > 1 ? comm_run_local(ranks, &cc, rank_main, j, &e) : rank_main(NULL, j, &e);
    if (rc) fail_msg("'%s': %s", keys, e.text);
    xfree(j->tokens);
}

static int64_t sum(const int64_t bins[EXPONENT_BINS])
{
    int64_t n = 0;
    for (int i = 0; i < EXPONENT_BINS; i++) n += bins[i];
    return n;
}

static void test_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        int ranks;
        bool exact;
    } ways[] = {
        {"parallel.dp_shard=2 parallel.zero=3", 2, false}, /* gradients of weights are added up in another order */
        {"parallel.pp=3 parallel.schedule=zbh1", 3, true},
        {"memory.recompute=full", 1, true},
        {"parallel.tp=3 parallel.dp_shard=1", 3, false},
        {"parallel.tp=3 parallel.dp_shard=1 parallel.sequence_parallel=true", 3, false},
        {"parallel.cp=2 parallel.dp_shard=1", 2, false},
        {"precision.recipe=fp8-delayed", 1, false},
        {"precision.recipe=fp8-delayed precision.fallback.after=0", 1, false},
        {"precision.recipe=mxfp8", 1, false},
        {"precision.recipe=fp16", 1, false},
        /* sequences that do not exist, and a whole microbatch of them, have no numbers */
        {"batch.micro=3", 1, false},
        {"batch.micro=3 precision.recipe=fp8-delayed", 1, false},
        {"batch.micro=3 parallel.tp=3 parallel.dp_shard=1 parallel.sequence_parallel=true", 3, false},
        {"batch.micro=3 memory.loss_chunk=7", 1, false},
        {"batch.micro=1 parallel.dp_shard=3", 3, false},
        {"batch.micro=1 parallel.dp_shard=3 precision.recipe=fp8-delayed precision.keep_weights=true", 3, false},
    };
    struct arena *a = arena_new();
    struct job *one = xcalloc(1, sizeof *one), *other = xcalloc(1, sizeof *other);
    run(one, a, "precision.recipe=bf16", 1);
    for (int k = 0; k < CLASS_N; k++) assert_true(sum(one->bins[k]) > 1000 && one->bins[k][EXPONENT_NOT_FINITE] == 0);
    run(other, a, "precision.recipe=bf16 run.exponents_every=0", 1);
    assert_true(other->loss == one->loss && sum(other->bins[0]) == 0);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        run(other, a, arena_printf(a, "precision.recipe=bf16 %s", ways[w].keys), ways[w].ranks);
        for (int k = 0; k < CLASS_N; k++) {
            /* sharded over ranks a weight is read by as many as read other tokens */
            int64_t times = k == CLASS_WEIGHTS && strstr(ways[w].keys, "cp=2") ? 2 : 1, of = 1;
            if (k == CLASS_WEIGHTS && strstr(ways[w].keys, "loss_chunk")) continue; /* the head's, by chunk */
            if (k == CLASS_WEIGHTS && other->c.batch.micro != 2)
                times = other->c.batch.micro == 3 ? 3 : 8, of = 4; /* microbatches, and one rank's */
            if (sum(other->bins[k]) * of != times * sum(one->bins[k]))
                fail_msg("'%s': class %d: %lld numbers, one rank has %lld", ways[w].keys, k,
                         (long long)sum(other->bins[k]), (long long)sum(one->bins[k]));
            if (ways[w].exact) assert_memory_equal(other->bins[k], one->bins[k], sizeof one->bins[k]);
        }
    }
    xfree(one);
    xfree(other);
    arena_free(a);
}

/* Products of experts: as many numbers in every layout as on one rank, rows of rounds once; a layer that computes
 * attention alone in front of them has fewer. */
static void test_experts(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        int ranks;
    } ways[] = {
        {"parallel.dp_shard=2", 2},
        {"parallel.ep=2", 2},
        {"parallel.ep=4", 4},
        {"parallel.tp=2 parallel.dp_shard=1", 2},
        {"parallel.tp=2 parallel.dp_shard=1 parallel.etp=1", 2},
        {"parallel.tp=2 parallel.dp_shard=1 parallel.etp=1 parallel.ep=2", 2},
        {"parallel.tp=4 parallel.dp_shard=1 parallel.etp=2 parallel.ep=2", 4},
        {"parallel.ep=2 moe.buffer=0.3 moe.buffer_least=3", 2},
        {"memory.recompute=full", 1},
        {"precision.layers={\"*.experts.*\":fp8-delayed}", 1},
        {"batch.global=8 batch.micro=3 parallel.dp_shard=2", 2}, /* 3 and 1, 3 and 1: no copies of what is not there */
        {"precision.layers={\"*.experts.*\":fp8-current} parallel.ep=2", 2},
        {"precision.layers={\"*.experts.*\":fp8-delayed} parallel.ep=2 moe.buffer=0.3 moe.buffer_least=3", 2},
    };
    static const char moe[] = "precision.recipe=bf16 model.family=mixtral model.moe.experts=4 model.moe.top_k=2 "
                              "model.heads=4 model.kv_heads=4 model.hidden=32 model.moe.ffn=64";
    struct arena *a = arena_new();
    struct job *one = xcalloc(1, sizeof *one), *other = xcalloc(1, sizeof *other);
    run(one, a, moe, 1);
    const int64_t T = 8 * one->c.model.seq_len, L = 3, D = 32, F = 64, heads = 4 * D; /* q, k, v and o */
    const int64_t x = T * L * (D /* qkv */ + D /* o */ + D /* router */ + 2 * (D + F)) + T * D /* head */;
    assert_int_equal(sum(one->bins[CLASS_ACTIVATIONS]), x);
    assert_int_equal(sum(one->bins[CLASS_GRADIENTS]),
                     T * L * (3 * D + D + 4 /* router */ + 2 * (2 * F + D)) + T * one->c.model.vocab);
    assert_int_equal(sum(one->bins[CLASS_WEIGHTS]),
                     4 /* microbatches */ * (L * D * (heads + 4 + 4 * 3 * F) + D * one->c.model.vocab));
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        run(other, a, arena_printf(a, "%s %s", moe, ways[w].keys), ways[w].ranks);
        for (int k = 0; k < CLASS_N; k++)
            if (sum(other->bins[k]) != sum(one->bins[k]))
                fail_msg("'%s': class %d: %lld numbers, one rank has %lld", ways[w].keys, k,
                         (long long)sum(other->bins[k]), (long long)sum(one->bins[k]));
    }
    xfree(one);
    xfree(other);
    arena_free(a);
}

/* Each count is of its step. */
static void test_each_count_begins_anew(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct job j = {0};
    struct site at;
    struct err e = {0};
    struct engine_report report;
    int64_t n[2][CLASS_N];
    j.tokens = machine_toy(&j.c, a, "batch.global=4 batch.micro=2 run.exponents_every=1", 1);
    if (site_open(&at, &(struct site_config){.config = &j.c, .kind = SITE_WORKS}, &e)) fail_msg("%s", e.text);
    engine_init(at.engine);
    struct engine_batch b = machine_part(&j.c, j.tokens, at.ranks.part);
    for (int s = 0; s < 2; s++) {
        engine_step(at.engine, &b, s, 1e-2, &report);
        for (int k = 0; k < CLASS_N; k++) n[s][k] = sum(at.engine->exponents.bins[k]);
    }
    for (int k = 0; k < CLASS_N; k++) assert_true(n[0][k] > 0 && n[0][k] == n[1][k]);
    site_close(&at);
    xfree(j.tokens);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bins), cmocka_unit_test(test_layouts),
                                       cmocka_unit_test(test_each_count_begins_anew), cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
