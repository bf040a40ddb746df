/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: the published known answers, bijections, moments. */
#include <math.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

/* Known answers of philox4x32-10 from the Random123 distribution (kat_vectors). */
static void known_answers(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, stream, block;
        uint32_t want[4];
    } rows[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t got[4];
        rng_block(rows[i].seed, rows[i].stream, rows[i].block, got);
        assert_memory_equal(got, rows[i].want, sizeof got);
    }
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(rng_u32(0, 0, i), rows[0].want[i]);
}

static void a_shuffle_is_a_bijection(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 3000; n = n < 70 ? n + 1 : n * 5 / 3) {
        unsigned char *seen = xcalloc(n, 1);
        uint64_t fixed = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t j = rng_permute(n, 9, n, i);
            assert_true(j < n);
            assert_int_equal(seen[j]++, 0);
            fixed += i == j;
        }
        assert_true(n < 64 || fixed < 12); /* one fixed point is expected, whatever n */
        xfree(seen);
    }
    uint64_t n = ((uint64_t)1 << 62) + 12345; /* large ones stay inside and apart */
    assert_true(rng_permute(1, 1, n, 0) < n && rng_permute(1, 1, n, 0) != rng_permute(1, 1, n, 1));
    assert_int_not_equal(rng_permute(1, 1, n, 0), rng_permute(2, 1, n, 0));
    assert_int_not_equal(rng_permute(1, 1, n, 0), rng_permute(1, 2, n, 0));
}

/* Positions of element 0 over many seeds are uniform: chi-square with 6 degrees of freedom, p = 1e-4 at 27.9. */
static void shuffles_of_seven_are_even(void **state)
{
    (void)state;
    double counts[7] = {0}, chi = 0, want = 7000 / 7.0;
    for (uint64_t seed = 0; seed < 7000; seed++) counts[rng_permute(seed, 3, 7, 0)]++;
    for (int i = 0; i < 7; i++) chi += (counts[i] - want) * (counts[i] - want) / want;
    assert_true(chi < 27.9);
}

static void normals_have_normal_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    double m[5] = {0};
    int beyond_two = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = rng_normal(1, 2, i), p = 1;
        assert_true(isfinite(x));
        for (int k = 1; k <= 4; k++) m[k] += (p *= x) / N;
        beyond_two += fabs(x) > 2;
    }
    double s = 1 / sqrt(N); /* bounds: five standard errors */
    assert_true(fabs(m[1]) < 5 * s);
    assert_true(fabs(m[2] - 1) < 5 * s * sqrt(2));
    assert_true(fabs(m[3]) < 5 * s * sqrt(15));
    assert_true(fabs(m[4] - 3) < 5 * s * sqrt(96));
    assert_true(fabs((double)beyond_two / N - 0.0455) < 0.0025);
}

/* The logarithm and cosine written out in rng.c against libm's, through the whole formula. */
static void normals_follow_box_muller(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        uint32_t w[4];
        rng_block(5, 6, i, w);
        double u = ((double)(((uint64_t)w[1] << 32 | w[0]) >> 11) + 1) * 0x1p-53;
        double v = (double)(((uint64_t)w[3] << 32 | w[2]) >> 11) * 0x1p-53;
        double want = sqrt(-2 * log(u)) * cos(2 * M_PI * v), got = rng_normal(5, 6, i);
        assert_true(fabs(got - want) <= 1e-7 * fabs(want) + 1e-10);
    }
}

static void uniforms_fill_the_unit_interval(void **state)
{
    (void)state;
    int counts[16] = {0};
    for (uint64_t i = 0; i < 160000; i++) {
        double x = rng_uniform(3, 4, i);
        assert_true(x >= 0 && x < 1);
        counts[(int)(x * 16)]++;
    }
    for (int i = 0; i < 16; i++) assert_in_range(counts[i], 9500, 10500);
}

static void streams_have_names(void **state)
{
    (void)state;
    assert_true(rng_stream("") == 0xCBF29CE484222325u);
    assert_true(rng_stream("a") == 0xAF63DC4C8601EC8Cu); /* FNV-1a's published value */
    assert_true(rng_stream("init/wte") != rng_stream("init/wpe"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(a_shuffle_is_a_bijection),
        cmocka_unit_test(shuffles_of_seven_are_even),
        cmocka_unit_test(normals_have_normal_moments),
        cmocka_unit_test(normals_follow_box_muller),
        cmocka_unit_test(uniforms_fill_the_unit_interval),
        cmocka_unit_test(streams_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
