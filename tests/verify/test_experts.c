/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Models with experts in every layout of up to three ranks, and some of four: experts over ep, whole or by columns over
 * tp, with every zero level, sequence parallelism, pipelines, recomputation, a capacity, odd numbers of everything, and
 * a rank without a sequence. Planned memory is what is allocated; planned traffic is what is sent, where the router
 * does not decide it. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "verify/layouts.h"
#include "verify/verify.h"
#include "sanitized.h"
#include "verify/thinned.h"

static void resolve(struct config *c, struct arena *a, const char *const *keys)
{
    static const char *const toy[] = {"model.layers=2",     "model.hidden=36",      "model.heads=3",
                                      "model.ffn=26",       "model.vocab=67",       "model.seq_len=10",
                                      "run.threads=1",      "comm.timeout_s=60",    "batch.global=5",
                                      "batch.micro=2",      "parallel.dp_shard=-1", "optimizer.lr=1e-3",
                                      "optimizer.eps=1e-5", "precision.recipe=fp32"};
    char *all[64];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; keys[i]; i++) all[k++] = arena_strdup(a, keys[i]);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(c, f, 0, 1, &e)) fail_msg("%s", e.text);
}

#define MIXTRAL "model.family=mixtral", "model.kv_heads=1", "model.moe.experts=5"
#define DEEPSEEK                                                                                                       \
    "model.family=deepseek", "model.moe.experts=6", "model.moe.top_k=3", "model.moe.ffn=14", "model.moe.shared=1",     \
        "model.moe.first_dense=1", "model.moe.score=sigmoid", "model.moe.groups=3", "model.moe.top_groups=2",          \
        "model.moe.group_pairs=true", "model.moe.bias=true", "model.mla.q_rank=14", "model.mla.kv_rank=10",            \
        "model.mla.nope_dim=7", "model.mla.rope_dim=6", "model.mla.value_dim=9"

static const char *const variants[][24] = {
    {MIXTRAL, "model.moe.z=0.01"},
    {MIXTRAL, "model.moe.capacity=0.8", "batch.global=2", "model.moe.aux_scope=microbatch", "batch.micro=1"},
    {DEEPSEEK, "model.moe.capacity=0.6"},
    {DEEPSEEK, "memory.recompute=full", "model.moe.bias_speed=0.05"},
};

static void test_equal_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += SANITIZED ? 2 : 1) { /* one of each family */
        if (!drawn_half(i, SANITIZED ? 2 : 1)) continue;                                 /* every day half of them */
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        resolve(&c, a, variants[i]);
        if (thinned_run(&v, &c, 3, VERIFY_ALL, 2, (int)i / 2, (int)drawn_number(sizeof variants / sizeof *variants, 2),
                        &e))
            fail_msg("variant %zu: %s", i, e.text);
        struct str out = {0};
        verify_print(&v, &out);
        if (!v.ok) {
            fputs(str_text(&out), stderr);
            fail_msg("variant %zu", i);
        }
        static const char *const wanted[] = {"zero3",       "ep3", "tp3+seq", "cp3:", "zero3 ep3", "tp3+seq ep3 etp1",
                                             "ep3 cp3:ring"};
        for (int k = 0; k < (drawn_whole() ? 7 : 4); k++) assert_non_null(strstr(str_text(&out), wanted[k]));
        str_free(&out);
        verify_free(&v);
        arena_free(a);
    }
}

static void planned_is_counted(const char *const *keys, int ranks)
{
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    struct layouts all;
    struct err e = {0};
    resolve(&c, a, keys);
    if (thinned_run(&v, &c, ranks, VERIFY_ALL, 1, 0, 1, &e)) fail_msg("%s", e.text);
    assert_true(v.ok);
    thinned_layouts(&all, &c, ranks, VERIFY_ALL, 0, 1);
    assert_int_equal(all.n, v.n);
    int sent_alike = 0;
    for (int i = 0; i < v.n; i++) {
        struct plan p;
        int64_t sent = 0;
        layouts_apply(&all.at[i], &c);
        if (plan_make(&p, &c, &e)) fail_msg("%s: %s", v.layout[i].layout, e.text);
        const struct plan_rank *first = p.role;
        while (first->rank != 0) first++;
        for (int x = 0; x < AXIS_N; x++) sent += first->comm[x].bytes;
        sent += first->serve_bytes;
        if (v.layout[i].peak_bytes != (int64_t)first->peak_bytes)
            fail_msg("%s: %" PRId64 " bytes allocated, %zu planned", v.layout[i].layout, v.layout[i].peak_bytes,
                     first->peak_bytes);
        double off = (double)sent / (double)(v.layout[i].comm_bytes + (v.layout[i].comm_bytes == 0));
        bool routed = c.parallel.ep > 1 ||
                      (c.parallel.etp > 1 && c.parallel.etp < c.parallel.tp); /* the plan counts an even choice */
        if (routed ? off < 0.5 || off > 2 : v.layout[i].comm_bytes != sent)
            fail_msg("%s: %" PRId64 " sent, %" PRId64 " planned", v.layout[i].layout, v.layout[i].comm_bytes, sent);
        sent_alike += !routed;
        plan_free(&p);
    }
    assert_true(sent_alike > 10 && sent_alike < v.n);
    layouts_free(&all);
    verify_free(&v);
    arena_free(a);
}

static void test_planned_is_counted(void **state)
{
    (void)state;
    if (CASE_STRIDE > 2) return; /* plans are made by one thread; what they are compared with ran above */
    if (!SANITIZED)
        planned_is_counted(variants[2], 4); /* up to tp 4 etp 2, which is a rank more than there are heads */
    planned_is_counted(variants[1], 3);     /* with a capacity picks travel too */
}

static void refused(const char *const *keys, int n_ranks, const char *key, const char *remedy)
{
    char *all[32];
    int k = 0;
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct err e = {0};
    for (int i = 0; keys[i]; i++) all[k++] = arena_strdup(a, keys[i]);
    if (config_load(&c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    assert_int_equal(config_resolve(&c, f, 257, n_ranks, &e), ERR_REQUEST);
    if (!strstr(e.text, key) || !strstr(e.text, remedy)) fail_msg("'%s' names no %s, %s", e.text, key, remedy);
    arena_free(a);
}

static void test_refusals(void **state)
{
    (void)state;
    refused((const char *const[]){MIXTRAL, "parallel.ep=3", NULL}, 4, "parallel.ep", "nearest that does is 2");
    refused((const char *const[]){MIXTRAL, "parallel.ep=8", NULL}, 8, "parallel.ep", "5 experts");
    refused((const char *const[]){"parallel.ep=2", NULL}, 2, "parallel.ep", "no experts");
    refused((const char *const[]){MIXTRAL, "parallel.tp=4", "parallel.etp=3", NULL}, 4, "parallel.etp",
            "parallel.tp = 4");
    refused((const char *const[]){MIXTRAL, "model.moe.top_k=6", NULL}, 1, "model.moe.top_k",
            "1 to model.moe.experts = 5");
    refused((const char *const[]){MIXTRAL, "model.moe.bias=true", NULL}, 1, "model.moe", "deepseek");
    refused((const char *const[]){DEEPSEEK, "model.moe.groups=4", NULL}, 1, "model.moe.groups",
            "nearest that does is 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_one_rank),
        cmocka_unit_test(test_planned_is_counted),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
