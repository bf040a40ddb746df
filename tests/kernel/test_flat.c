/* SPDX-License-Identifier: Apache-2.0 */
/* test_flat.c: the flat operations: ref against the formulas in double, and every build against ref to the bit, for
 * odd lengths and teams of 1 to 3. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/cpu/build.h"
#include "kernel/cpuid.h"
#include "kernel/flat_ops.h"

static const int64_t lengths[] = {0, 1, 15, 16, 17, 63, 64, 65, 1000, 4095, 4096, 4097, 20011};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

/* The family that chooses, then each build; NULL: there are no more that this CPU runs. */
static const struct flat_ops *build(int i)
{
    const struct cpu_build *b = cpu_build_at(i - 1);
    if (i == 0) return &flat_ops_cpu;
    return b && b->needs <= cpu_isa() ? b->flat : NULL;
}

static float *random_new(int64_t n, uint64_t stream, double size, int positive)
{
    float *p = xmalloc((size_t)(n + 1) * 4);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)rng_normal(5, stream, (uint64_t)i) * size;
        p[i] = (float)(positive ? fabs(v) : v);
    }
    return p;
}

/* All that an optimizer step touches. */
struct bench {
    int64_t n;
    float *master, *m, *v, *grad;
    char *param;
};
static struct bench bench_new(int64_t n)
{
    struct bench b = {n,
                      random_new(n, 1, 0.1, 0),
                      random_new(n, 2, 0.01, 0),
                      random_new(n, 3, 1e-4, 1),
                      random_new(n, 4, 1, 0),
                      xcalloc((size_t)n + 1, 4)};
    return b;
}
static void bench_free(struct bench *b)
{
    xfree(b->master);
    xfree(b->m);
    xfree(b->v);
    xfree(b->grad);
    xfree(b->param);
}
static int bench_same(const struct bench *a, const struct bench *b)
{
    size_t bytes = (size_t)a->n * 4;
    return !memcmp(a->master, b->master, bytes) && !memcmp(a->m, b->m, bytes) && !memcmp(a->v, b->v, bytes) &&
           !memcmp(a->param, b->param, bytes);
}
static struct adamw_args adamw_of(struct bench *b, enum dtype t, int step)
{
    return (struct adamw_args){.n = b->n,
                               .master = b->master,
                               .m = b->m,
                               .v = b->v,
                               .grad = b->grad,
                               .param = b->param,
                               .param_dtype = t,
                               .lr = 3e-3f,
                               .beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .eps = 1e-8f,
                               .weight_decay = 0.1f,
                               .grad_scale = 0.37f,
                               .bias1 = (float)(1 - pow(0.9, step)),
                               .bias2 = (float)(1 - pow(0.95, step))};
}

static void adamw_reference_follows_the_formula(void **state)
{
    (void)state;
    struct bench b = bench_new(500);
    for (int step = 1; step <= 5; step++) {
        double want[500];
        struct adamw_args a = adamw_of(&b, DT_F32, step);
        for (int i = 0; i < 500; i++) {
            double g = (double)b.grad[i] * 0.37, m = 0.9 * (double)b.m[i] + 0.1 * g;
            double v = 0.95 * (double)b.v[i] + 0.05 * g * g, p = (double)b.master[i] * (1 - 3e-3 * 0.1);
            want[i] = p - 3e-3 * (m / (1 - pow(0.9, step))) / (sqrt(v / (1 - pow(0.95, step))) + 1e-8);
        }
        flat_ops_ref.adamw(NULL, &a);
        for (int i = 0; i < 500; i++) {
            assert_true(fabs((double)b.master[i] - want[i]) < 1e-7 * fabs(want[i]) + 3e-3 * 1e-5);
            assert_true(((const float *)(void *)b.param)[i] == b.master[i]);
        }
    }
    bench_free(&b);
}

static void adamw_is_the_same_to_the_bit(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    for (int k = 0; k < N_LENGTHS; k++)
        for (int t = 0; t < 3; t++)
            for (int i = 0; build(i); i++)
                for (int threads = 1; threads <= 3; threads++) {
                    struct bench want = bench_new(lengths[k]), got = bench_new(lengths[k]);
                    struct team *team = team_new(threads);
                    for (int step = 1; step <= 2; step++) {
                        struct adamw_args a = adamw_of(&want, types[t], step), b = adamw_of(&got, types[t], step);
                        flat_ops_ref.adamw(team, &a);
                        build(i)->adamw(team, &b);
                    }
                    if (!bench_same(&want, &got)) fail_msg("%s n %lld", build(i)->name, (long long)lengths[k]);
                    team_free(team);
                    bench_free(&want);
                    bench_free(&got);
                }
}

static struct sgd_args sgd_of(struct bench *b, int variant)
{
    return (struct sgd_args){.n = b->n,
                             .master = b->master,
                             .m = variant ? b->m : NULL,
                             .grad = b->grad,
                             .param = b->param,
                             .param_dtype = DT_BF16,
                             .lr = 0.01f,
                             .momentum = variant ? 0.9f : 0,
                             .weight_decay = 0.02f,
                             .grad_scale = 2,
                             .nesterov = variant == 2};
}

static void sgd_follows_the_formula_and_is_the_same_to_the_bit(void **state)
{
    (void)state;
    for (int k = 0; k < N_LENGTHS; k++)
        for (int variant = 0; variant < 3; variant++)
            for (int i = 0; build(i); i++) {
                struct bench start = bench_new(lengths[k]), want = bench_new(lengths[k]), got = bench_new(lengths[k]);
                struct team *team = team_new(2);
                struct sgd_args a = sgd_of(&want, variant), b = sgd_of(&got, variant);
                flat_ops_ref.sgd(team, &a);
                build(i)->sgd(team, &b);
                assert_true(bench_same(&want, &got));
                for (int64_t j = 0; j < start.n; j++) {
                    double g = 2.0 * (double)start.grad[j] + 0.02 * (double)start.master[j];
                    double m = 0.9 * (double)start.m[j] + g, d = variant == 0 ? g : variant == 1 ? m : g + 0.9 * m;
                    assert_true(fabs((double)want.master[j] - ((double)start.master[j] - 0.01 * d)) < 1e-7);
                }
                team_free(team);
                bench_free(&start);
                bench_free(&want);
                bench_free(&got);
            }
}

static void sum_of_squares_is_the_same_to_the_bit(void **state)
{
    (void)state;
    for (int k = 0; k <= N_LENGTHS; k++) {
        int64_t n = k < N_LENGTHS ? lengths[k] : (int64_t)2048 * FLAT_BLOCK + 4099; /* more than one round */
        float *x = random_new(n < 30000 ? n : 0, 6, 3, 0);
        if (n >= 30000) {
            x = xrealloc(x, (size_t)n * 4);
            for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 2654435761u) % 1009) * 0.001f - 0.5f;
        }
        double want = 0, plain = 0;
        flat_ops_ref.sum_squares(NULL, x, n, &want);
        for (int64_t i = 0; i < n; i++) plain += (double)x[i] * (double)x[i];
        assert_true(fabs(want - plain) <= 1e-10 * plain);
        for (int threads = 1; threads <= 3; threads++)
            for (int i = 0; build(i); i++) {
                struct team *team = team_new(threads);
                double got = 0;
                build(i)->sum_squares(team, x, n, &got);
                team_free(team);
                assert_memory_equal(&got, &want, sizeof want);
                got = 0.5;
                build(i)->sum_squares(NULL, x, n, &got); /* adds */
                assert_true(got == 0.5 + want);
            }
        xfree(x);
    }
}

static void first_nonfinite_is_found(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    static const uint32_t inf[] = {0xff800000u, 0x7f80u, 0xfc00u}, nan[] = {0x7f800001u, 0xffc0u, 0x7c01u};
    static const uint32_t largest[] = {0x7f7fffffu, 0x7f7fu, 0x7bffu};
    int64_t n = 5003;
    for (int t = 0; t < 3; t++)
        for (int64_t at = -1; at < n; at += 1 + at / 7)
            for (int i = 0; build(i); i++) {
                char *x = xcalloc((size_t)n, 4);
                size_t each = dtype_bytes(types[t]);
                for (int64_t j = 0; j < n; j++) memcpy(x + (size_t)j * each, &largest[t], each);
                if (at >= 0) memcpy(x + (size_t)at * each, at % 2 ? &inf[t] : &nan[t], each);
                if (at >= 0 && at + 900 < n) memcpy(x + (size_t)(at + 900) * each, &inf[t], each);
                struct team *team = team_new(1 + (int)(at + 1) % 3);
                assert_int_equal(build(i)->find_nonfinite(team, x, types[t], n), at);
                assert_int_equal(flat_ops_ref.find_nonfinite(team, x, types[t], n), at);
                team_free(team);
                xfree(x);
            }
}

static void casts_are_the_same_to_the_bit(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16, DT_F64};
    for (int f = 0; f < 4; f++)
        for (int to = 0; to < 4; to++)
            for (int i = 0; build(i); i++) {
                int64_t n = 3 * 1021;
                float *x = random_new(n, 8, 1, 0);
                x[0] = INFINITY, x[1] = -INFINITY, x[2] = 1e-41f, x[3] = 65519, x[4] = 3.4e38f, x[5] = 0x1.01p0f;
                double *src = xcalloc((size_t)n, 8), *want = xcalloc((size_t)n, 8), *got = xcalloc((size_t)n, 8);
                flat_ops_ref.cast(NULL, src, types[f], x, DT_F32, n);
                struct team *team = team_new(3);
                flat_ops_ref.cast(team, want, types[to], src, types[f], n);
                build(i)->cast(team, got, types[to], src, types[f], n);
                assert_memory_equal(got, want, (size_t)n * 8);
                team_free(team);
                xfree(x);
                xfree(src);
                xfree(want);
                xfree(got);
            }
}

static void fp64_is_rounded_once(void **state)
{
    (void)state;
    const double x[2] = {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40}; /* as floats they are ties */
    for (int i = 0; build(i); i++) {
        uint16_t half[2], brain[2];
        build(i)->cast(NULL, half, DT_F16, x, DT_F64, 2);
        build(i)->cast(NULL, brain, DT_BF16, x, DT_F64, 2);
        assert_int_equal(half[0], 0x3c01);
        assert_int_equal(brain[1], 0x3f81);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_reference_follows_the_formula),
        cmocka_unit_test(adamw_is_the_same_to_the_bit),
        cmocka_unit_test(sgd_follows_the_formula_and_is_the_same_to_the_bit),
        cmocka_unit_test(sum_of_squares_is_the_same_to_the_bit),
        cmocka_unit_test(first_nonfinite_is_found),
        cmocka_unit_test(casts_are_the_same_to_the_bit),
        cmocka_unit_test(fp64_is_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
