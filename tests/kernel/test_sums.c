/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of gradients in every family and build: elementwise, rounded once, in the tree's order or the parts', for every
 * number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/cpu/build.h"
#include "kernel/flat_ops.h"

enum { N = 5003 };

/* ref, the family that chooses, then each build that this CPU runs; NULL: no more. */
static const struct flat_ops *build(int i)
{
    const struct cpu_build *b = cpu_build_at(i - 2);
    if (i < 2) return i ? &flat_ops_cpu : &flat_ops_ref;
    return b && b->needs <= cpu_isa() ? b->flat : NULL;
}

static float value(uint64_t stream, int64_t i) { return rng_normal(3, stream, (uint64_t)i) * (i % 7 ? 1.0f : 1e6f); }

static float tree(const float *x, int parts, int64_t i)
{
    if (parts == 1) return x[i];
    return tree(x, parts / 2, i) + tree(x + parts / 2 * N, parts / 2, i);
}

static void test_tree(void **state)
{
    (void)state;
    float *x = xcalloc(16 * N, sizeof *x), *want = xcalloc(N, sizeof *want);
    for (int k = 0; build(k); k++)
        for (int parts = 1; parts <= 16; parts *= 2)
            for (int threads = 1; threads <= 3; threads++) {
                struct team *team = team_new(threads);
                for (int64_t i = 0; i < (int64_t)parts * N; i++) x[i] = value(1, i);
                for (int64_t i = 0; i < N; i++) want[i] = tree(x, parts, i);
                build(k)->sum_tree(team, x + (parts / 2) * N, x, parts, N); /* in place of one of them */
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
    bf16 c[N], d[N], e[N];
    struct team *team = team_new(3);
    for (int k = 0; build(k); k++) {
        const struct flat_ops *f = build(k);
        for (int64_t i = 0; i < N; i++) a[i] = value(2, i), b[i] = value(3, i);
        f->sum_into(team, c, DT_BF16, a, DT_F32, N, false);
        for (int64_t i = 0; i < N; i++) assert_int_equal(c[i], bf16_from_f32(a[i]));
        memcpy(d, c, sizeof d);
        f->sum_into(team, d, DT_BF16, b, DT_F32, N, true); /* one rounding, of the sum in fp32 */
        for (int64_t i = 0; i < N; i++) assert_int_equal(d[i], bf16_from_f32(bf16_to_f32(c[i]) + b[i]));
        memcpy(e, c, sizeof e);
        f->sum_into(team, e, DT_BF16, d, DT_BF16, N, true);
        for (int64_t i = 0; i < N; i++) assert_int_equal(e[i], bf16_from_f32(bf16_to_f32(c[i]) + bf16_to_f32(d[i])));
        f->sum_into(team, e, DT_BF16, d, DT_BF16, N, false);
        assert_memory_equal(e, d, sizeof e);
        f->sum_into(team, a, DT_F32, b, DT_F32, N, true);
        for (int64_t i = 0; i < N; i++) assert_true(a[i] == value(2, i) + b[i]);
        f->sum_into(team, a, DT_F32, b, DT_F32, 0, true);
        f->sum_into(team, a, DT_F32, b, DT_F32, N, false);
        assert_memory_equal(a, b, sizeof a);
    }
    team_free(team);
}

static void test_parts(void **state)
{
    (void)state;
    enum { PARTS = 5 };
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    float *x = xcalloc(PARTS * N, sizeof *x), *wide = xcalloc(PARTS * N, sizeof *wide), *sum = xcalloc(N, sizeof *sum);
    char *part = xcalloc(PARTS * N, sizeof *x), *want = xcalloc(N, sizeof *x), *got = xcalloc(N, sizeof *x);
    for (int64_t i = 0; i < PARTS * N; i++) x[i] = rng_normal(3, 4, (uint64_t)i);
    for (int t = 0; t < 3; t++) {
        flat_ops_ref.cast(NULL, part, types[t], x, DT_F32, PARTS * N);
        flat_ops_ref.cast(NULL, wide, DT_F32, part, types[t], PARTS * N);
        for (int64_t i = 0; i < N; i++) {
            sum[i] = wide[i];
            for (int p = 1; p < PARTS; p++) sum[i] += wide[p * N + i];
        }
        flat_ops_ref.cast(NULL, want, types[t], sum, DT_F32, N);
        for (int k = 0; build(k); k++)
            for (int threads = 1; threads <= 3; threads++) {
                struct team *team = team_new(threads);
                memset(got, 0, N * sizeof *x);
                build(k)->sum_parts(team, got, types[t], part, PARTS, N);
                assert_memory_equal(got, want, N * dtype_bytes(types[t]));
                team_free(team);
            }
    }
    xfree(x);
    xfree(wide);
    xfree(sum);
    xfree(part);
    xfree(want);
    xfree(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_into),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
