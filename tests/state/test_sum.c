/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over gradients: elementwise, rounded once, in the tree's order, for every number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "state/sum.h"

enum { N = 5003 };

static float value(uint64_t stream, int64_t i)
{
    return rng_normal(3, stream, (uint64_t)i) * (i % 7 ? 1.0f : 1e6f);
}

static float tree(const float *x, int parts, int64_t i)
{
    if (parts == 1) return x[i];
    return tree(x, parts / 2, i) + tree(x + parts / 2 * N, parts / 2, i);
}

static void test_tree(void **state)
{
    (void)state;
    float *x = xcalloc(16 * N, sizeof *x), *want = xcalloc(N, sizeof *want);
    for (int parts = 1; parts <= 16; parts *= 2)
        for (int threads = 1; threads <= 3; threads++) {
            struct team *team = team_new(threads);
            for (int64_t i = 0; i < (int64_t)parts * N; i++) x[i] = value(1, i);
            for (int64_t i = 0; i < N; i++) want[i] = tree(x, parts, i);
            sum_tree(team, x + (parts / 2) * N, x, parts, N); /* in place of one of them */
            assert_memory_equal(x + (parts / 2) * N, want, N * sizeof *x);
            team_free(team);
        }
    xfree(x);
    xfree(want);
}

static void test_into(void **state)
{
    (void)state;
    float a[N], b[N];
    bf16 c[N], d[N];
    struct team *team = team_new(3);
    for (int64_t i = 0; i < N; i++) a[i] = value(2, i), b[i] = value(3, i);
    sum_into(team, c, DT_BF16, a, DT_F32, N, false);
    for (int64_t i = 0; i < N; i++) assert_int_equal(c[i], bf16_from_f32(a[i]));
    memcpy(d, c, sizeof d);
    sum_into(team, d, DT_BF16, b, DT_F32, N, true); /* one rounding, of the sum in fp32 */
    for (int64_t i = 0; i < N; i++) assert_int_equal(d[i], bf16_from_f32(bf16_to_f32(c[i]) + b[i]));
    bf16 e[N];
    memcpy(e, c, sizeof e);
    sum_into(team, e, DT_BF16, d, DT_BF16, N, true);
    for (int64_t i = 0; i < N; i++) assert_int_equal(e[i], bf16_from_f32(bf16_to_f32(c[i]) + bf16_to_f32(d[i])));
    sum_into(team, e, DT_BF16, d, DT_BF16, N, false);
    assert_memory_equal(e, d, sizeof e);
    sum_into(team, a, DT_F32, b, DT_F32, N, true);
    for (int64_t i = 0; i < N; i++) assert_true(a[i] == value(2, i) + b[i]);
    sum_into(team, a, DT_F32, b, DT_F32, 0, true);
    team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_into),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
