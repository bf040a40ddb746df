/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds on paper: windows follow each other without a gap or an overlap and hold no more than there is room for; they
 * cut an expert's rows at slices where one fits; all ranks find as many rounds; the last one holds the rest. And the
 * order of sources: that of tokens on one rank, whoever holds them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "layout/region.h"
#include "layout/sequence.h"
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

/* Rounds end between pieces, and each takes as many as there is room for. */
static void check_pieces(const struct wave_numbers *x, int64_t room)
{
    const int ranks = x->parts * x->copies;
    for (int part = 0; part < x->parts; part++) {
        int64_t e, hi_e, round = 0, lo, hi, at = 0;
        region_split(x->experts, part, x->parts, &e, &hi_e);
        wave_window(x, part, room, 0, &lo, &hi);
        for (; e < hi_e; e++)
            for (int r = 0; r < ranks; r += x->together) {
                int64_t rows = 0;
                for (int k = 0; k < x->together; k++) rows += wave_rows(x, r + k, e);
                if (at + rows > hi) { /* the next round's: this one had no room for it */
                    assert_true(at == hi && at + rows - lo > room);
                    wave_window(x, part, room, ++round, &lo, &hi);
                    assert_true(lo == at && hi - lo <= room);
                }
                at += rows;
            }
        assert_true(at == hi && round < wave_rounds(x, room));
    }
}

static void test_pieces(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct wave_numbers x = {.parts = 1 + (int)(seed % 4), .copies = 2, .experts = 4 + (int)(seed % 5)};
        int32_t *of = numbers(&x, seed, (struct depth_rule){256, 1});
        int64_t most = 0;
        x.of = of;
        x.together = seed % 3 ? 2 : 1;
        for (int e = 0; e < x.experts; e++)
            for (int r = 0; r < x.parts * x.copies; r++) most = wave_rows(&x, r, e) > most ? wave_rows(&x, r, e) : most;
        for (int64_t room = x.together * most + 1; room < 20000; room *= 2) check_pieces(&x, room);
        xfree(of);
    }
    struct wave_numbers even = {.even = 12, .parts = 3, .copies = 1, .experts = 6, .together = 1};
    assert_int_equal(wave_rounds(&even, 6), 2); /* 3 pieces of 2 rows, twice */
    assert_int_equal(wave_rounds(&even, 5), 3);
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

/* Tokens of a microbatch in the order of one rank: each source's are those behind the source before, as the ranks that
 * share them out hold them, and a rank's stretches come as they lie on it. */
static void check_order(const struct source_order *o, int64_t seq, int64_t group)
{
    int64_t at = 0, k = 2 * group * o->parts * o->each * o->sequences;
    int last[64];
    memset(last, -1, sizeof last);
    for (int64_t n = 0; n < 2 * o->parts * o->each * o->sequences; n++) {
        const struct source_at s = source_at(o, k + n);
        const int here = s.rank - to_int(group) * o->parts * o->each, part = here / o->each;
        assert_true(here >= 0 && here < o->parts * o->each && s.stretch >= 0 && s.stretch < source_stretches(o));
        assert_true(s.stretch > last[here]);
        last[here] = s.stretch;
        int64_t rows = context_rows(seq, o->parts, part, 1), lo, hi, head_lo, head_hi;
        region_split(o->sequences * rows, here % o->each, o->each, &lo, &hi);
        context_chunk(seq, o->parts, part, false, &head_lo, &head_hi);
        for (int64_t row = lo; row < hi; row++) /* of the part's, those of this stretch */
            if (2 * (row / rows) + (row % rows >= head_hi - head_lo) == s.stretch)
                assert_int_equal(row / rows * seq + context_place(seq, o->parts, part, row % rows), at++);
    }
    assert_int_equal(at, o->sequences * seq);
    for (int r = 0; r < o->parts * o->each; r++) assert_int_equal(last[r], source_stretches(o) - 1);
}

static void test_order(void **state)
{
    (void)state;
    for (int sequences = 1; sequences <= 3; sequences++)
        for (int parts = 2; parts <= 4; parts++)
            for (int each = 1; each <= 3; each++)
                for (int64_t seq = 1; seq < 19; seq += 4)
                    check_order(&(struct source_order){sequences, parts, each}, seq, seq % 3);
    const struct source_at by_rank = source_at(&(struct source_order){.sequences = 0}, 5);
    assert_true(by_rank.rank == 5 && by_rank.stretch == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
