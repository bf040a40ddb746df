/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* What the grid of crossings (test_grid.c) is made of: rows in which every pair meets, and levels that name every key
 * which decides about numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "covering.h"
#include "verify/grid.h"

enum { MOST_WORDS = 64 };

/* ---- the generator ---- */
static bool no_ends_meet(void *ctx, const int *row)
{
    (void)ctx;
    return !(row[0] == 3 && row[2] == 2) && !(row[1] == 1 && row[2] == 1 && row[3] == 1);
}
static void count_refused(void *ctx, const int *row, const int *factor)
{
    (void)row, (void)factor;
    ++*(int *)ctx;
}

/* Every pair is in a row, but the one that may not be; three that may not meet cost no pair; and rows are far fewer
 * than all there are. */
static void test_rows_cover_every_pair(void **state)
{
    (void)state;
    static const struct covering_factor factor[] = {{7, 0}, {3, 0}, {4, 0}, {5, 0}, {2, 0}};
    enum { N = 5 };
    for (uint64_t seed = 1; seed <= 5; seed++) {
        int n_refused = 0, rows = 0, row[N];
        bool met[N][8][N][8] = {0};
        struct covering c = {.factor = factor,
                             .n = N,
                             .strength = 2,
                             .seed = seed,
                             .may = no_ends_meet,
                             .refused = count_refused,
                             .ctx = &n_refused};
        covering_open(&c);
        for (; covering_next(&c, row); rows++) {
            assert_true(no_ends_meet(NULL, row));
            for (int f = 0; f < N; f++)
                for (int g = 0; g < N; g++) met[f][row[f]][g][row[g]] = true;
        }
        for (int f = 0; f < N; f++)
            for (int g = 0; g < f; g++)
                for (int a = 0; a < factor[f].levels; a++)
                    for (int b = 0; b < factor[g].levels; b++)
                        assert_int_equal(met[f][a][g][b], !(g == 0 && b == 3 && f == 2 && a == 2));
        assert_int_equal(n_refused, 1);
        assert_in_range(rows, 7 * 5, 60); /* of 840 */
        covering_close(&c);
    }
}

/* The same of three: every triple but those that may not be, alone or since a pair of it may not. */
static void test_rows_cover_every_triple(void **state)
{
    (void)state;
    static const struct covering_factor factor[] = {{7, 0}, {3, 0}, {4, 0}, {5, 0}, {2, 0}};
    enum { N = 5 };
    for (uint64_t seed = 1; seed <= 5; seed++) {
        int n_refused = 0, rows = 0, row[N], at[N];
        static bool met[N][N][N][8][8][8];
        memset(met, 0, sizeof met);
        struct covering c = {.factor = factor,
                             .n = N,
                             .strength = 3,
                             .seed = seed,
                             .may = no_ends_meet,
                             .refused = count_refused,
                             .ctx = &n_refused};
        covering_open(&c);
        assert_int_equal(c.n_tuples,
                         7 * 3 * (4 + 5 + 2) + 7 * 4 * (5 + 2) + 7 * 5 * 2 + 3 * 4 * (5 + 2) + 3 * 5 * 2 + 4 * 5 * 2);
        for (; covering_next(&c, row); rows++) {
            assert_true(no_ends_meet(NULL, row));
            for (int f = 0; f < N; f++)
                for (int g = 0; g < f; g++)
                    for (int h = 0; h < g; h++) met[f][g][h][row[f]][row[g]][row[h]] = true;
        }
        int unmet = 0;
        for (int f = 0; f < N; f++)
            for (int g = 0; g < f; g++)
                for (int h = 0; h < g; h++)
                    for (int a = 0; a < factor[f].levels; a++)
                        for (int b = 0; b < factor[g].levels; b++)
                            for (int k = 0; k < factor[h].levels; k++) {
                                memset(at, 0, sizeof at);
                                at[f] = a, at[g] = b, at[h] = k;
                                assert_int_equal(met[f][g][h][a][b][k], no_ends_meet(NULL, at));
                                unmet += !met[f][g][h][a][b][k];
                            }
        assert_int_equal(n_refused, unmet);
        assert_int_equal(unmet, 3 + 5 + 2 + 1);    /* the pair beside each of the others, and the three */
        assert_in_range(rows, 7 * 5 * 4 - 7, 240); /* of 840; most of 7 x 5 x 4 may be */
        covering_close(&c);
    }
}

/* ---- what is in it ---- */
static bool named(const char *text, const char *path)
{
    size_t n = strlen(path);
    for (const char *at = text; (at = strstr(at, path)); at += n) {
        bool begins = at == text || at[-1] == ' ', ends = !at[n] || at[n] == '=' || at[n] == ' ';
        if (begins && ends) return true;
    }
    return false;
}

/* Every key of the sections that decide about numbers is in a level, or is apart for a reason, and not both. */
static void test_every_key_crosses(void **state)
{
    (void)state;
    static const char *const sections[] = {"optimizer.", "precision.", "parallel.", "comm.",  "memory.",
                                           "moe.",       "numerics.",  "adapter.",  "train.", "batch."};
    struct grid g;
    grid_open(&g);
    int row[GRID_FACTORS] = {0}, n_words;
    char *words[2 * MOST_WORDS];
    for (const struct conf_row *r = config_rows; r->path; r++) {
        bool decides = false, crosses = false, apart = false;
        for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
            decides |= !strncmp(r->path, sections[i], strlen(sections[i]));
        if (!decides) continue;
        for (int f = 0; f < GRID_FACTORS; f++)
            for (int i = 0; i < g.n[f]; i++) crosses |= named(g.of[f][i].keys, r->path);
        for (size_t i = 0; i < sizeof grid_apart / sizeof *grid_apart; i++) apart |= named(grid_apart[i].keys, r->path);
        n_words = grid_words(&g, g.a, row, words, MOST_WORDS);
        for (int i = 0; i < n_words; i++) crosses |= !apart && named(words[i], r->path);
        if (!crosses && !apart)
            fail_msg("%s is in no level of tests/verify/grid.h, nor apart (grid_apart), with the reason", r->path);
        if (crosses && apart) fail_msg("%s is in a level and apart", r->path);
    }
    grid_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_cover_every_pair),
        cmocka_unit_test(test_rows_cover_every_triple),
        cmocka_unit_test(test_every_key_crosses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
