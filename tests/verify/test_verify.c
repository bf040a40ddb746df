/* Every data-parallel layout of up to four ranks against one rank: gradients, values, norm, loss. Zero 0 to 3 of one size
 * have the same bits when gradients are reduced once; planned bytes and traffic are what the ranks then allocate and
 * send. */
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

static void resolve(struct config *c, struct arena *a, const char *const *keys, int n)
{
    static const char *const toy[] = {"model.layers=2",  "model.hidden=36",   "model.heads=3",         "model.ffn=52",
                                      "model.vocab=67",  "model.seq_len=20",  "run.threads=1",         "comm.timeout_s=60",
                                      "batch.global=8",  "batch.micro=2",     "parallel.dp_shard=-1",  "optimizer.lr=1e-3",
                                      "precision.recipe=fp32"};
    char *all[64];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; i < n; i++) all[k++] = arena_strdup(a, keys[i]);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(c, f, 0, 1, &e)) fail_msg("%s", e.text);
}

static const char *const variants[][4] = {
    {"model.family=llama", "model.kv_heads=1"},
    {"model.family=gpt2", "model.tie_embeddings=true", "model.dropout=0.2"},
    {"model.family=llama", "model.tie_embeddings=true", "batch.global=7"}, /* uneven parts */
    {"model.family=gpt2", "batch.global=3", "memory.recompute=full"},     /* a rank with nothing to do */
    {"model.family=llama", "precision.recipe=bf16", "model.document_mask=true"},
    {"model.family=llama", "optimizer.name=sgd", "memory.loss_chunk=7"},
};

static int n_keys(const char *const *keys)
{
    int n = 0;
    while (n < 4 && keys[n]) n++;
    return n;
}

static void test_layouts_equal_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += CASE_STRIDE) {
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        resolve(&c, a, variants[i], n_keys(variants[i]));
        if (verify_run(&v, &c, 4, VERIFY_ALL, 3, &e)) fail_msg("variant %zu: %s", i, e.text);
        struct str out = {0};
        verify_print(&v, &out);
        if (!v.ok) fail_msg("variant %zu:\n%s", i, str_text(&out));
        assert_true(v.n >= 1 + 5 + 5 + 9); /* the data-parallel ones alone */
        assert_true(v.layout[0].bit_identical); /* one rank twice */
        str_free(&out);
        verify_free(&v);
        arena_free(a);
    }
}

static void test_zero_levels_have_the_same_bits(void **state)
{
    (void)state;
    static const char *const keys[] = {"batch.global=4", "batch.micro=2", "model.family=llama"}; /* one microbatch each */
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    struct err e = {0};
    resolve(&c, a, keys, 3);
    if (verify_run(&v, &c, 4, VERIFY_DP | VERIFY_TP | VERIFY_PP, 3, &e)) fail_msg("%s", e.text);
    int compared = 0;
    for (int i = 1; i < v.n; i++) {
        if (v.layout[i].n_ranks < 2 || strstr(v.layout[i].layout, "replicate")) continue;
        if (strstr(v.layout[i].layout, "zero0") || strstr(v.layout[i].layout, " cp")) continue; /* cp: other algorithms too */
        if (v.layout[i].bits != v.layout[i - 1].bits)
            fail_msg("%s and %s have other bits", v.layout[i - 1].layout, v.layout[i].layout);
        compared++;
    }
    assert_true(compared >= 9);
    verify_free(&v);
    arena_free(a);
}

/* Planned peak and traffic of rank 0 are those of the run, in every layout. */
static void check_planned(struct config *c)
{
    struct verify v;
    struct layouts all;
    struct err e = {0};
    if (verify_run(&v, c, 4, VERIFY_ALL, 1, &e)) fail_msg("%s", e.text);
    layouts_enumerate(&all, c, 4);
    assert_int_equal(all.n, v.n);
    for (int i = 0; i < v.n; i++) {
        struct plan p;
        int64_t sent = 0;
        layouts_apply(&all.at[i], c);
        if (plan_make(&p, c, &e)) fail_msg("%s: %s", v.layout[i].layout, e.text);
        const struct plan_rank *first = p.role;
        while (first->rank != 0) first++;
        for (int a = 0; a < AXIS_N; a++) sent += first->comm[a].bytes;
        sent += first->serve_bytes;
        if (v.layout[i].peak_bytes != (int64_t)first->peak_bytes || v.layout[i].comm_bytes != sent)
            fail_msg("%s: %" PRId64 " bytes allocated, %zu planned; %" PRId64 " sent, %" PRId64 " planned", v.layout[i].layout,
                     v.layout[i].peak_bytes, first->peak_bytes, v.layout[i].comm_bytes, sent);
        plan_free(&p);
    }
    layouts_free(&all);
    verify_free(&v);
}

static void test_planned_is_counted(void **state)
{
    (void)state;
    static const char *const keys[][2] = {{"batch.global=7", "model.family=llama"}, {"model.family=gpt2", "precision.recipe=bf16"},
                                         {"comm.ranks_per_host=2", "model.family=llama"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i += CASE_STRIDE) {
        struct arena *a = arena_new();
        struct config c;
        resolve(&c, a, keys[i], 2);
        check_planned(&c);
        arena_free(a);
    }
}

/* The bytes of the papers, per parameter and rank, with fp32 gradients: 18; 6 + 12/N; 2 + 16/N; 18/N. */
static void test_state_bytes(void **state)
{
    (void)state;
    enum { N = 4 };
    static const double wanted[4] = {18, 6 + 12.0 / N, 2 + 16.0 / N, 18.0 / N};
    for (int zero = 0; zero <= 3; zero++) {
        struct arena *a = arena_new();
        struct config c;
        struct plan p;
        struct err e = {0};
        resolve(&c, a, (const char *const[]){"precision.recipe=bf16", "model.hidden=64", "model.heads=4", "model.ffn=128",
                                             "model.vocab=256"}, 5);
        c.parallel.dp_shard = N;
        c.parallel.zero = zero;
        if (plan_make(&p, &c, &e)) fail_msg("%s", e.text);
        const size_t *b = p.role[0].bytes;
        double got = (double)(b[MEM_PARAM] + b[MEM_MASTER] + b[MEM_GRAD] + b[MEM_OPTIMIZER]) / (double)p.params;
        if (got != wanted[zero]) fail_msg("zero %d: %g bytes per parameter, wanted %g", zero, got, wanted[zero]);
        plan_free(&p);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_equal_one_rank),
        cmocka_unit_test(test_zero_levels_have_the_same_bits),
        cmocka_unit_test(test_planned_is_counted),
        cmocka_unit_test(test_state_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
