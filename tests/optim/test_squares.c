/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of squares without rounding: right, and the same for every partition and order, in both families. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/flat_ops.h"

enum { N = 300007 };

static const struct flat_ops *const family[] = {&flat_ops_ref, &flat_ops_cpu};
enum { FAMILIES = 2 };

static void fill(float *x)
{
    for (int64_t i = 0; i < N; i++) { /* all magnitudes, also below the normal numbers */
        uint32_t u = (uint32_t)rng_u32(5, 1, (uint64_t)i);
        if ((u >> 23 & 255) == 255) u ^= 1u << 30;
        memcpy(&x[i], &u, 4);
        if (i % 3) x[i] = rng_normal(5, 2, (uint64_t)i);
    }
}

static void test_partitions(void **state)
{
    (void)state;
    float *x = xcalloc(N, sizeof *x);
    int64_t whole[FLAT_SQUARES_WORDS] = {0};
    fill(x);
    flat_ops_ref.squares(NULL, x, N, whole);
    double want = squares_total(whole);
    for (int k = 0; k < FAMILIES * 4; k++) {
        const struct flat_ops *f = family[k % FAMILIES];
        int parts = 2 + k / FAMILIES;
        struct team *team = team_new(parts - 1);
        int64_t sum[FLAT_SQUARES_WORDS] = {0};
        for (int p = parts - 1; p >= 0; p--) {
            int64_t one[FLAT_SQUARES_WORDS] = {0}, lo, hi;
            team_split(N, p, parts, &lo, &hi);
            f->squares(team, x + lo, hi - lo, one);
            for (int i = 0; i < FLAT_SQUARES_WORDS; i++) sum[i] += one[i];
        }
        assert_true(squares_total(sum) == want);
        team_free(team);
    }
    long double plain = 0;
    for (int64_t i = 0; i < N; i++) plain += (long double)x[i] * x[i];
    assert_true(fabs((double)(plain / want) - 1) < 1e-14);
    xfree(x);
}

static void exactly(const struct flat_ops *f)
{
    /* A plain sum in fp64 loses the small one, whatever comes first. */
    float x[] = {1e15f, 3.0f, 1e15f, 0, -0.0f, -2.0f};
    int64_t word[FLAT_SQUARES_WORDS] = {0};
    f->squares(NULL, x, 6, word);
    word[2 * 216] = word[2 * 216 + 1] = 0; /* take out what the large ones added: 1e15 has exponent bits 127 + 49 */
    word[2 * 176] = word[2 * 176 + 1] = 0;
    assert_true(squares_total(word) == 13);
    int64_t none[FLAT_SQUARES_WORDS] = {0}, bad[FLAT_SQUARES_WORDS] = {0}, nan_[FLAT_SQUARES_WORDS] = {0},
            tiny[FLAT_SQUARES_WORDS] = {0};
    assert_true(squares_total(none) == 0);
    float inf = INFINITY, not_a_number = NAN, small[2] = {1.4e-45f, -1.4e-45f};
    f->squares(NULL, &inf, 1, bad);
    f->squares(NULL, &not_a_number, 1, nan_);
    f->squares(NULL, small, 2, tiny);
    assert_true(isinf(squares_total(bad)) && isinf(squares_total(nan_)));
    assert_true(squares_total(tiny) == 2 * ldexp(1, -298));
}

static void test_exactly(void **state)
{
    (void)state;
    for (int k = 0; k < FAMILIES; k++) exactly(family[k]);
}

/* Bins are emptied before they overflow: the largest mantissa, many times. */
static void test_no_overflow(void **state)
{
    (void)state;
    enum { M = 1 << 20 };
    float *x = xcalloc(M, sizeof *x);
    for (int64_t i = 0; i < M; i++) x[i] = 16777215.0f;
    for (int k = 0; k < FAMILIES; k++) {
        int64_t word[FLAT_SQUARES_WORDS] = {0};
        family[k]->squares(NULL, x, M, word);
        assert_true(squares_total(word) == 16777215.0 * 16777215.0 * M);
    }
    xfree(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partitions),
        cmocka_unit_test(test_exactly),
        cmocka_unit_test(test_no_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
