/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* numerics.exact_order: 1, 2, 4 and 8 data-parallel ranks, every zero level, replicas: the bits of one rank, in
 * gradients, values, losses and norms. What cannot be exact is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "verify/verify.h"
#include "sanitized.h"
#include "verify/thinned.h"

enum { MAX_KEYS = 8 };

static int load(struct config *c, struct arena *a, int n_ranks, const char *const *keys, struct err *e)
{
    static const char *const toy[] = {"model.layers=2",           "model.hidden=24",    "model.heads=2",
                                      "model.kv_heads=1",         "model.ffn=40",       "model.vocab=67",
                                      "model.seq_len=12",         "run.threads=1",      "batch.micro=1",
                                      "optimizer.lr=1e-2",        "optimizer.clip=0.1", "comm.timeout_s=60",
                                      "numerics.exact_order=true"};
    char *all[32];
    int k = 0;
    struct conf *f;
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; i < MAX_KEYS && keys[i]; i++) all[k++] = arena_strdup(a, keys[i]);
    int rc = config_load(c, &f, a, NULL, all, k, e);
    return rc ? rc : config_resolve(c, f, 0, n_ranks, e);
}

static const char *const variants[][MAX_KEYS] = {
    {"batch.global=16", "precision.recipe=fp32"},                     /* up to 16 microbatches each, down to 2 */
    {"batch.global=48", "batch.micro=2", "precision.recipe=fp32"},    /* 24 = 8 x 3: runs of three */
    {"batch.global=8", "precision.recipe=bf16", "model.dropout=0.1"}, /* one each at 8 ranks */
    {"batch.global=16", "precision.recipe=bf16", "model.tie_embeddings=true", "optimizer.name=sgd"},
    {"batch.global=24", "precision.recipe=fp32", "memory.recompute=full", "model.document_mask=true"},
};

static void test_bits_of_one_rank(void **state)
{
    (void)state;
    /* eight ranks and the other variants have no path of their own: no business of a sanitizer */
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += SANITIZED ? 2 : 1) {
        if (!drawn_half(i, SANITIZED ? 2 : 1)) continue; /* every day half of them */
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        int most = i < 3 && !SANITIZED && drawn_here((int64_t)i, 3) ? 8 : 4;
        if (load(&c, a, 1, variants[i], &e)) fail_msg("%s", e.text);
        if (verify_run(&v, &c, most, VERIFY_DP, 2, &e)) fail_msg("%s", e.text);
        for (int k = 0; k < v.n; k++) {
            const struct verify_layout *l = &v.layout[k];
            if (!l->bit_identical || l->norm_rel_error != 0 || !l->ok)
                fail_msg("variant %zu: %s is not one rank: %g in %s, norm %g", i, l->layout, l->max_rel_error,
                         l->tensor, l->norm_rel_error);
        }
        assert_int_equal(v.n, 1 + 5 + 9 + (most == 8 ? 13 : 0)); /* ranks x replicas x zero */
        verify_free(&v);
        arena_free(a);
    }
}

/* Without it four ranks add up in another order than one: the test above can fail. */
static void test_it_matters(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    struct err e = {0};
    int differ = 0;
    if (SANITIZED) { /* about sums, which a sanitizer does not change */
        arena_free(a);
        return;
    }
    if (load(&c, a, 1, variants[0], &e)) fail_msg("%s", e.text);
    c.numerics.exact_order = false;
    if (thinned_run(&v, &c, 4, VERIFY_ALL, 1, 0, 1, &e)) fail_msg("%s", e.text);
    for (int k = 0; k < v.n; k++) differ += !v.layout[k].bit_identical;
    assert_true(differ > 5);
    assert_true(v.ok); /* but within the bound */
    verify_free(&v);
    arena_free(a);
}

static void refused(int n_ranks, const char *why, const char *const *keys)
{
    struct arena *a = arena_new();
    struct config c;
    struct err e = {0};
    if (load(&c, a, n_ranks, keys, &e) == OK) fail_msg("not refused: %s", why);
    if (!strstr(e.text, why)) fail_msg("'%s' is not in '%s'", why, e.text);
    arena_free(a);
}

static void test_refused(void **state)
{
    (void)state;
    refused(3, "choose parallel.dp_shard: 2 (-n 2), or", (const char *const[MAX_KEYS]){"batch.global=12"});
    refused(6, "choose parallel.dp_shard: 2 (-n 4), or",
            (const char *const[MAX_KEYS]){"batch.global=12", "parallel.dp_replicate=2"});
    refused(2, "nearest that fits is 2", (const char *const[MAX_KEYS]){"batch.global=8", "batch.micro=3"});
    refused(1, "nearest that fits is 3", (const char *const[MAX_KEYS]){"batch.global=9", "batch.micro=4"});
    refused(4, "choose 8 or 12", (const char *const[MAX_KEYS]){"batch.global=10"});
    refused(8, "choose 8 or 16", (const char *const[MAX_KEYS]){"batch.global=4"});
    refused(2, "choose fp32", (const char *const[MAX_KEYS]){"batch.global=8", "precision.grad=bf16"});
    refused(2, "choose 1 (-n 1), or batch.global", (const char *const[MAX_KEYS]){"batch.global=8", "parallel.pp=2"});
}

/* What it costs is in the plan: gradients that wait for their neighbours, and as many bytes as one reduction a step. */
static void test_cost_is_planned(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 8; dp *= 2)
        for (int zero = 0; zero <= 3; zero++) {
            struct arena *a = arena_new();
            struct config c;
            struct plan p;
            struct err e = {0};
            if (load(&c, a, 1, variants[0], &e)) fail_msg("%s", e.text);
            c.parallel.dp_shard = dp;
            c.parallel.zero = zero;
            if (plan_make(&p, &c, &e)) fail_msg("%s", e.text);
            int levels = 4;
            for (int n = dp; n > 1; n /= 2) levels--; /* 16/dp runs */
            assert_int_equal(p.role[0].bytes[MEM_GRAD], (1 + levels) * 4 * p.params);
            plan_free(&p);
            arena_free(a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_one_rank),
        cmocka_unit_test(test_it_matters),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cost_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
