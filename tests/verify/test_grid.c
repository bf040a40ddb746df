/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* The grid: every pair of a family, a layout, what saves memory, an optimizer, a recipe, a codec, a kind of data, an
 * objective and an odd shape, in rows that hold many pairs each (covering.h). A row is trained for three steps in its
 * layout and beside a plain one rank (grid_row.h) and is equal within its stated bounds, or the config refuses the pair
 * before anything starts, with advice that works (test_advice.c).
 *
 * What differs is made smaller before it is told: factors go back to their base while it still differs, so that what is
 * printed is the pair, or the few, that it takes.
 *
 *   TUTTI_GRID   "all": every pair; "2/3": the second third of them, for several processes; otherwise a part that the
 *                commit draws, so that each commit tries another one
 *   TUTTI_GRID_ROW   "0 3 0 0 2 0 0 0 0": this row alone, told in full
 *   TUTTI_GRID_SEED  what draws, instead of the commit
 *   TUTTI_GRID_LOUD  each row is told */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "covering.h"
#include "drawn.h"
#include "verify/grid_row.h"

enum { STEPS = 3, DRAWN = SANITIZED ? 4 : 40 };

struct tries {
    struct grid g;
    int part, rows, run, refused, differ;
    struct str said; /* what differs */
};

/* ---- a row ---- */
static bool may_of(const struct grid *g, const int *row, struct err *e)
{
    struct arena *a = arena_new();
    struct asked q;
    asked_row(&q, g, a, row);
    bool is = asked_may(&q, e);
    arena_free(a);
    return is;
}

static bool may(void *ctx, const int *row)
{
    const struct tries *t = ctx;
    struct err e = {0};
    return may_of(&t->g, row, &e);
}

static enum outcome_of_row try_row(const struct grid *g, const int *row, struct str *out)
{
    struct arena *a = arena_new();
    struct asked q;
    asked_row(&q, g, a, row);
    enum outcome_of_row is = asked_try(&q, STEPS, out);
    arena_free(a);
    return is;
}

/* Factors go back to their base, while what is found stays. */
static void shrink(const struct grid *g, int *row, enum outcome_of_row found)
{
    for (int f = 0; f < GRID_FACTORS; f++) {
        int was = row[f];
        struct err e = {0};
        struct str ignored = {0};
        if (!was) continue;
        row[f] = 0;
        if (!may_of(g, row, &e) || try_row(g, row, &ignored) != found) row[f] = was;
        str_free(&ignored);
    }
}

static void run_row(struct tries *t, int *row, bool told)
{
    struct str out = {0};
    struct arena *a = arena_new();
    enum outcome_of_row is = try_row(&t->g, row, &out);
    t->run++;
    if (is != EQUAL) {
        shrink(&t->g, row, is);
        str_clear(&out);
        try_row(&t->g, row, &out);
        t->differ++;
        str_printf(&t->said, "%s\n  TUTTI_GRID_ROW=\"", grid_say(&t->g, a, row));
        for (int f = 0; f < GRID_FACTORS; f++) str_printf(&t->said, "%s%d", f ? " " : "", row[f]);
        str_printf(&t->said, "\"\n%s\n", str_text(&out));
    }
    if (told)
        fprintf(stderr, "%d\t%s\n%s", (int)is, grid_say(&t->g, a, row), is == EQUAL && t->part ? "" : str_text(&out));
    str_free(&out);
    arena_free(a);
}

/* What it says to do is followed by test_advice. */
static void refused(void *ctx, const int *row, int f, int g)
{
    struct tries *t = ctx;
    (void)row, (void)f, (void)g;
    t->refused++;
}

/* ---- which rows ---- */
static void test_pairs_are_equal_or_refused(void **state)
{
    (void)state;
    struct tries t = {0};
    const char *what = getenv("TUTTI_GRID"), *one = getenv("TUTTI_GRID_ROW");
    int part = 0, parts = 0, row[GRID_FACTORS] = {0};
    if (what && !strcmp(what, "all")) parts = part = 1;
    else if (what && (sscanf(what, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts))
        fail_msg("TUTTI_GRID: wanted all, or a part such as 2/3, got '%s'", what);
    t.part = parts;
    grid_open(&t.g);
    if (one) {
        char *end = (char *)(uintptr_t)one;
        for (int f = 0; f < GRID_FACTORS; f++) row[f] = (int)strtol(end, &end, 10);
        run_row(&t, row, true);
        if (t.differ) fail_msg("it differs");
        grid_close(&t.g);
        return;
    }
    struct covering_factor factor[GRID_FACTORS];
    for (int f = 0; f < GRID_FACTORS; f++) factor[f] = (struct covering_factor){t.g.n[f], 0};
    struct covering c = {.factor = factor,
                         .n = GRID_FACTORS,
                         .seed = parts ? 1 : drawn_seed(),
                         .may = may,
                         .refused = refused,
                         .ctx = &t};
    covering_open(&c);
    for (; (parts || t.rows < DRAWN) && covering_next(&c, row); t.rows++)
        if (!parts || t.rows % parts == part - 1) run_row(&t, row, getenv("TUTTI_GRID_LOUD") != NULL);
    print_message("%d rows of %d pairs, %d run, %d pairs refused, %d differ\n", t.rows, c.n_pairs, t.run, t.refused,
                  t.differ);
    covering_close(&c);
    grid_close(&t.g);
    fputs(str_text(&t.said), stderr);
    if (t.differ) fail_msg("%d of %d rows differ", t.differ, t.run);
    str_free(&t.said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_equal_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
