/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Planned bytes and traffic of every layout are what the ranks then allocate and send. */
#include "verify/toy_layouts.h"

#include "plan/plan.h"
#include "verify/layouts.h"

/* Planned peak and traffic of rank 0 are those of the run, in every layout. */
static void check_planned(struct config *c, size_t i, size_t n)
{
    struct verify v;
    struct layouts all;
    struct err e = {0};
    const int most = SANITIZED ? 3 : 4; /* a sanitizer: every axis is there with three ranks */
    if (thinned_run(&v, c, most, VERIFY_ALL, 1, (int)i, (int)n, &e)) fail_msg("%s", e.text);
    thinned_layouts(&all, c, most, VERIFY_ALL, (int)i, (int)n);
    assert_int_equal(all.n, v.n);
    for (int k = 0; k < v.n; k++) {
        struct plan p;
        int64_t sent = 0;
        layouts_apply(&all.at[k], c);
        if (plan_make(&p, c, &e)) fail_msg("%s: %s", v.layout[k].layout, e.text);
        const struct plan_rank *first = p.role;
        while (first->rank != 0) first++;
        for (int a = 0; a < AXIS_N; a++) sent += first->comm[a].bytes;
        sent += first->serve_bytes;
        if (v.layout[k].peak_bytes != (int64_t)first->peak_bytes || v.layout[k].comm_bytes != sent)
            fail_msg("%s: %" PRId64 " bytes allocated, %zu planned; %" PRId64 " sent, %" PRId64 " planned",
                     v.layout[k].layout, v.layout[k].peak_bytes, first->peak_bytes, v.layout[k].comm_bytes, sent);
        plan_free(&p);
    }
    layouts_free(&all);
    verify_free(&v);
}

static void test_planned_is_counted(void **state)
{
    (void)state;
    static const char *const keys[][2] = {{"batch.global=7", "model.family=llama"},
                                          {"model.family=gpt2", "precision.recipe=bf16"},
                                          {"comm.ranks_per_host=2", "model.family=llama"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i += CASE_STRIDE) {
        struct arena *a = arena_new();
        struct config c;
        resolve(&c, a, keys[i], 2);
        check_planned(&c, i, sizeof keys / sizeof *keys);
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
        resolve(&c, a,
                (const char *const[]){"precision.recipe=bf16", "model.hidden=64", "model.heads=4", "model.ffn=128",
                                      "model.vocab=256"},
                5);
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
        cmocka_unit_test(test_planned_is_counted),
        cmocka_unit_test(test_state_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
