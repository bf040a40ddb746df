/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds on paper: windows follow each other without a gap or an overlap and hold no more than there is room for; they
 * cut an expert's rows at slices where one fits; all ranks find as many rounds; the last one holds the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "layout/region.h"
#include "parallel/waves.h"

static int32_t *numbers(const struct wave_numbers *x, uint64_t seed, struct depth_rule rule)
{
    int ranks = x->parts * x->copies, n = x->experts + 2;
    int32_t *of = xcalloc(to_size(ranks * n), sizeof *of);
    for (int r = 0; r < ranks; r++) {
        for (int e = 0; e < x->experts; e++) {
            uint32_t dice = rng_u32(seed, 1, (uint64_t)(r * n + e));
            of[r * n + e] = dice % 4 == 0 ? 0 : dice % 5 == 0 ? (int32_t)(dice / 5 % 3000) : (int32_t)(dice / 4 % 40);
        }
        of[r * n + x->experts] = (int32_t)rule.most;
        of[r * n + x->experts + 1] = (int32_t)rule.step;
    }
    return of;
}

/* The expert of row `at` of a part: its first row and how many it has. */
static void expert_at(const struct wave_numbers *x, int part, int64_t at, int64_t *first, int64_t *rows)
{
    int64_t lo, hi;
    region_split(x->experts, part, x->parts, &lo, &hi);
    *first = *rows = 0;
    for (int64_t e = lo; e < hi && at >= *first + *rows; e++) {
        *first += *rows;
        *rows = 0;
        for (int r = 0; r < x->parts * x->copies; r++) *rows += wave_rows(x, r, e);
    }
}

static int64_t total_of(const struct wave_numbers *x, int part)
{
    int64_t lo, hi, n = 0;
    region_split(x->experts, part, x->parts, &lo, &hi);
    for (int64_t e = lo; e < hi; e++)
        for (int r = 0; r < x->parts * x->copies; r++) n += wave_rows(x, r, e);
    return n;
}

static void check(const struct wave_numbers *x, struct depth_rule rule, int64_t room)
{
    int64_t rounds = wave_rounds(x, room), most = 1;
    for (int part = 0; part < x->parts; part++) {
        int64_t at = 0, total = total_of(x, part), used = 0, lo, hi;
        for (int64_t w = 0; w < rounds; w++) {
            wave_window(x, part, room, w, &lo, &hi);
            assert_int_equal(lo, at);
            assert_true(hi >= lo && hi - lo <= room && hi <= total);
            assert_true(hi > lo || at == total); /* no round for nothing */
            if (hi > lo) used = w + 1;
            at = hi;
            int64_t first, rows;
            expert_at(x, part, hi, &first, &rows);
            int64_t slice = depth_slice(rule, rows);
            if (hi < total && slice <= room && hi - first > 0) assert_int_equal((hi - first) % slice, 0);
        }
        assert_int_equal(at, total);
        if (used > most) most = used;
    }
    assert_int_equal(rounds, most);
}

static void test_windows(void **state)
{
    (void)state;
    static const struct depth_rule rules[] = {{0, 0}, {256, 1}, {1024, 32}};
    static const int64_t rooms[] = {150, 300, 1536, 100000};
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct depth_rule rule = rules[seed % 3];
        struct wave_numbers x = {.parts = 1 + (int)(seed % 4),
                                 .copies = 1 + (int)(seed / 4 % 2),
                                 .experts = 4 + (int)(seed % 5)};
        int32_t *of = numbers(&x, seed, rule);
        x.of = of;
        for (size_t r = 0; r < sizeof rooms / sizeof *rooms; r++) check(&x, rule, rooms[r]);
        xfree(of);
    }
}

/* Nobody sends anything; nobody was asked. */
static void test_edges(void **state)
{
    (void)state;
    int32_t none[2 * 5] = {0};
    int64_t lo, hi;
    struct wave_numbers x = {.of = none, .parts = 2, .copies = 1, .experts = 3};
    assert_int_equal(wave_rounds(&x, 4), 1);
    wave_window(&x, 1, 4, 0, &lo, &hi);
    assert_true(lo == 0 && hi == 0);
    struct wave_numbers even = {.even = 12, .parts = 3, .copies = 1, .experts = 6, .rule = {256, 1}};
    assert_int_equal(wave_rows(&even, 2, 5), 2);
    assert_int_equal(wave_rounds(&even, 12), 1);
    assert_int_equal(wave_rounds(&even, 6), 2);
    assert_int_equal(wave_rounds(&even, 5), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
