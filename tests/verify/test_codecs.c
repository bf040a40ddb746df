/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* test_codecs.c: runs whose gradients and parameters travel encoded (comm.grad, comm.param): every layout of up to four
 * ranks beside one rank within the stated bound, replicas and zero levels bit for bit, fp16 leaves out the same steps;
 * and what is planned is allocated and sent, which falls to what a codec's bytes come to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/config_codec.h"
#include "plan/plan.h"
#include "verify/counting.h"
#include "verify/toy_layouts.h"

struct made {
    struct arena *arena;
    struct config c;
};

static void make(struct made *m, const char *more)
{
    static const char toy[] =
        "model.layers=2 model.hidden=36 model.heads=3 model.kv_heads=1 model.ffn=52 model.vocab=67 model.seq_len=12 "
        "run.threads=1 comm.timeout_s=60 batch.global=12 batch.micro=1 optimizer.lr=1e-3 precision.recipe=fp32 ";
    char *all[64];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    m->arena = arena_new();
    for (char *word = strtok(arena_printf(m->arena, "%s%s", toy, more), " "); word; word = strtok(NULL, " "))
        all[k++] = word;
    if (config_load(&m->c, &f, m->arena, NULL, all, k, &e)) fail_msg("%s: %s", more, e.text);
    if (config_resolve(&m->c, f, 0, 1, &e)) fail_msg("%s: %s", more, e.text);
}

/* ---- beside one rank ---- */
static const struct {
    const char *keys;
    unsigned axes;
    double most, least; /* of any tensor: what verify's bound is; what shows that something was rounded */
} runs[] = {
    {"comm.grad=bf16", VERIFY_DP, 1e-2, 1e-4},
    {"comm.grad=fp8 parallel.reduce=step", VERIFY_DP, 0.1, 1e-2},
    {"comm.grad=fp8-e5m2 batch.global=11", VERIFY_DP, 0.2, 3e-2},
    {"comm.grad=int8 precision.recipe=bf16 comm.param=int8 batch.micro=3", VERIFY_DP | VERIFY_TP, 0.1, 3e-3},
    {"comm.param=fp8", VERIFY_DP, 0.1, 1e-2},
    {"comm.grad=int8 precision.grad=bf16", VERIFY_DP, 5e-2, 3e-3},
    {"comm.grad=int8 model.family=mixtral model.moe.experts=4", VERIFY_DP | VERIFY_EP, 5e-2, 3e-3},
    {"comm.grad=int8", VERIFY_DP | VERIFY_CP, 5e-2, 3e-3},
    {"comm.grad=fp8 precision.recipe=fp16 precision.loss_scale.initial=1073741824", VERIFY_DP, 0.1, 0},
    {"comm.grad=fp8 comm.param=int8 precision.recipe=fp16", VERIFY_DP, 0.15, 1e-2},
};

static void layouts_equal_one_rank_within_the_bound(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i += CASE_STRIDE == 1 ? 1 : 4) {
        if (!drawn_half(i, CASE_STRIDE == 1 ? 1 : 4)) continue; /* every day half of them */
        struct made m;
        struct verify v;
        double largest = 0;
        make(&m, runs[i].keys);
        verified(&v, &m.c, 4, runs[i].axes, 2, runs[i].keys, i / 2,
                 (size_t)drawn_number(sizeof runs / sizeof *runs, 2));
        for (int k = 0; k < v.n; k++) {
            if (v.layout[k].max_rel_error > largest) largest = v.layout[k].max_rel_error;
            assert_true(v.layout[k].bound <= runs[i].most + 2e-2); /* beside what the recipe has without a codec */
        }
        if (largest < runs[i].least) fail_msg("%s: nothing was rounded: %g", runs[i].keys, largest);
        verify_free(&v);
        arena_free(m.arena);
    }
}

/* ---- bytes ---- */
static struct plan planned(struct made *m, int replicate, int shard, int zero)
{
    struct plan p;
    struct err e = {0};
    m->c.parallel.dp_replicate = replicate;
    m->c.parallel.dp_shard = shard;
    m->c.parallel.ranks_here = replicate * shard;
    m->c.parallel.zero = zero;
    if (plan_make(&p, &m->c, &e)) fail_msg("%s", e.text);
    return p;
}

static void what_is_planned_is_allocated_and_sent(void **state)
{
    (void)state;
    static const char *const keys[] = {"comm.grad=int8", "comm.grad=fp8 parallel.reduce=step",
                                       "comm.grad=bf16 precision.recipe=bf16 comm.param=fp8 batch.global=11",
                                       "comm.grad=int8 precision.grad=bf16 precision.recipe=bf16 comm.param=int8"};
    static const int degrees[][2] = {{1, 3}, {2, 2}, {3, 1}};
    for (int i = 0; i < 4 * 3 * 4; i += CASE_STRIDE) {
        if (!drawn_here(i / CASE_STRIDE, 3)) continue; /* every day a third, of all levels and degrees */
        int zero = i % 4, replicate = degrees[i / 4 % 3][0], shard = degrees[i / 4 % 3][1];
        struct made m;
        struct err e = {0};
        make(&m, keys[i / 12]);
        struct plan p = planned(&m, replicate, shard, zero);
        struct counting x = {.c = &m.c};
        struct comm_config cc = config_comm(&m.c);
        if (comm_run_local(p.n_ranks, &cc, count, &x, &e)) fail_msg("%s", e.text);
        for (int c = 0; c < MEM_N; c++) assert_int_equal(x.bytes[c], p.role[0].bytes[c]);
        for (int a = 0; a < AXIS_N; a++) {
            assert_int_equal(x.sent[a].bytes, p.role[0].comm[a].bytes);
            assert_int_equal(x.sent[a].messages, p.role[0].comm[a].messages);
        }
        plan_free(&p);
        arena_free(m.arena);
    }
}

/* The rows of exchange.h's table with a codec's bytes: 33 for 32 elements of a matrix in blocks, 64 in bf16; vectors as
 * they are kept. */
static void bytes_fall_to_the_codecs(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        int zero = i % 4, replicate = i / 4 % 2 + 1, step = i / 8 % 2, wide = i / 16;
        struct made m;
        char keys[300];
        snprintf(keys, sizeof keys,
                 "model.hidden=64 model.heads=4 model.kv_heads=4 model.ffn=128 model.vocab=256 batch.global=24 "
                 "precision.recipe=bf16 comm.grad=%s comm.param=%s parallel.reduce=%s",
                 wide ? "bf16" : "int8", wide ? "kept" : "fp8", step ? "step" : "microbatch");
        make(&m, keys);
        struct plan p = planned(&m, replicate, 4, zero);
        int64_t vectors = 5 * 64, matrices = p.params - vectors, k = p.microbatches, times = wide ? 64 : 33;
        int64_t g = matrices * times / 32 + 4 * vectors, w = matrices * times / 32 + 2 * vectors,
                ends = 2 * 64 * 256 * times / 32, w3 = k * (2 * w - ends);
        int64_t once[4] = {2 * g, g + w, g + w, g + w3}, each[4] = {(k + 1) * g, k * g + w, k * g + w, k * g + w3};
        int64_t small = p.role[0].comm[AXIS_DP_SHARD].bytes - (step ? once : each)[zero] * 3 / 4;
        if (small < 0 || small > 512) fail_msg("%s zero%d: %lld bytes too many", keys, zero, (long long)small);
        small = p.role[0].comm[AXIS_DP_REPLICATE].bytes - (replicate == 2 ? 2 * (g / 4) / 2 : 0);
        if (small < 0 || small > 512) fail_msg("%s: %lld bytes too many over replicas", keys, (long long)small);
        plan_free(&p);
        arena_free(m.arena);
    }
}

/* Frozen weights have no master: what is rounded of them as they travel would be what the run has, and saves. */
static void what_is_frozen_is_not_rounded(void **state)
{
    (void)state;
    static const char *const keys[] = {"adapter.kind=lora", "comm.param=int8", "batch.global=4",
                                       "precision.recipe=bf16"};
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    resolve(&c, a, keys, 4);
    verified(&v, &c, 2, VERIFY_DP, 2, "frozen beside a codec", 0, 1);
    verify_free(&v);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_frozen_is_not_rounded),
        cmocka_unit_test(layouts_equal_one_rank_within_the_bound),
        cmocka_unit_test(what_is_planned_is_allocated_and_sent),
        cmocka_unit_test(bytes_fall_to_the_codecs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
