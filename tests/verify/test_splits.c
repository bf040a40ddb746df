/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Batches that no number of ranks divides, microbatches that do not fill up, sequences of which nothing is trained:
 * every split of them gives the loss, the gradients and the values of one rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "verify/verify.h"
#include "sanitized.h"
#include "verify/thinned.h"

enum { N_SIZES = 6, N_CHECKS = N_SIZES + 3 };

static void check(int i, int64_t global, int64_t micro, const char *key)
{
    if (!drawn_here(i, 2)) return; /* every day half of them */
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct verify v;
    struct err e = {0};
    struct str out = {0};
    char *keys[] = {arena_strdup(a, "model.layers=2"),
                    arena_strdup(a, "model.hidden=24"),
                    arena_strdup(a, "model.heads=2"),
                    arena_strdup(a, "model.kv_heads=1"),
                    arena_strdup(a, "model.ffn=40"),
                    arena_strdup(a, "model.vocab=67"),
                    arena_strdup(a, "model.seq_len=12"),
                    arena_strdup(a, "run.threads=1"),
                    arena_strdup(a, "comm.timeout_s=60"),
                    arena_strdup(a, "precision.recipe=fp32"),
                    arena_printf(a, "batch.global=%lld", (long long)global),
                    arena_printf(a, "batch.micro=%lld", (long long)micro),
                    arena_strdup(a, key)};
    if (config_load(&c, &f, a, NULL, keys, (int)(sizeof keys / sizeof *keys), &e)) fail_msg("%s", e.text);
    if (config_resolve(&c, f, 0, 1, &e)) fail_msg("%s", e.text);
    /* three ranks meet every path; five only make the parts more uneven, which each commit does with other ones */
    int most = SANITIZED ? 3 : drawn_here(i, 3) ? 5 : 4;
    if (thinned_run(&v, &c, most, CASE_STRIDE < 3 ? VERIFY_ALL : VERIFY_DP | VERIFY_PP, 2, i / 2,
                    (int)drawn_number(N_CHECKS, 2), &e))
        fail_msg("global %lld micro %lld: %s", (long long)global, (long long)micro, e.text);
    verify_print(&v, &out);
    if (!v.ok) fail_msg("global %lld micro %lld %s:\n%s", (long long)global, (long long)micro, key, str_text(&out));
    str_free(&out);
    verify_free(&v);
    arena_free(a);
}

static void test_uneven(void **state)
{
    (void)state;
    static const int64_t sizes[N_SIZES][2] = {{1, 1}, {2, 1}, {5, 2}, {7, 3}, {11, 4}, {13, 1}};
    for (int i = 0; i < N_SIZES; i += CASE_STRIDE) check(i, sizes[i][0], sizes[i][1], "parallel.reduce=microbatch");
    check(N_SIZES, 11, 2, "parallel.reduce=step");
    check(N_SIZES + 1, 6, 1, "numerics.exact_order=true");
    check(N_SIZES + 2, 7, 2, "precision.grad=bf16");
}

/* Splitting a batch into microbatches of any size changes rounding only. */
static void test_microbatches(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    double loss[6];
    for (int micro = 1; micro <= 6; micro++) {
        struct config c;
        struct conf *f;
        struct verify v;
        struct err e = {0};
        char *keys[] = {arena_strdup(a, "model.layers=2"),        arena_strdup(a, "model.hidden=24"),
                        arena_strdup(a, "model.heads=2"),         arena_strdup(a, "model.vocab=67"),
                        arena_strdup(a, "model.seq_len=12"),      arena_strdup(a, "run.threads=1"),
                        arena_strdup(a, "precision.recipe=fp32"), arena_strdup(a, "batch.global=11"),
                        arena_printf(a, "batch.micro=%d", micro)};
        if (config_load(&c, &f, a, NULL, keys, (int)(sizeof keys / sizeof *keys), &e)) fail_msg("%s", e.text);
        if (config_resolve(&c, f, 0, 1, &e)) fail_msg("%s", e.text);
        if (verify_run(&v, &c, 1, VERIFY_ALL, 3, &e)) fail_msg("%s", e.text);
        loss[micro - 1] = v.loss;
        if (!(loss[micro - 1] / loss[0] - 1 < 1e-6 && loss[0] / loss[micro - 1] - 1 < 1e-6))
            fail_msg("microbatches of %d: loss %.9g, of 1: %.9g", micro, loss[micro - 1], loss[0]);
        verify_free(&v);
    }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_microbatches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
