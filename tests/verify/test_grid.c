/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* The grid: every pair of a family, a layout, what saves memory, an optimizer, a recipe, a codec, a kind of data, an
 * objective and an odd shape, in rows that hold many pairs each (covering.h). A row is trained for three steps in its
 * layout and beside a plain one rank (grid_row.h) and is equal within its stated bounds, or the config refuses the pair
 * before anything starts, with advice that works (test_advice.c).
 *
 *   TUTTI_GRID   "all": every pair; "2/3": the second third of them, for several processes; otherwise a part that the
 *                commit draws, so that each commit tries another one: of the rows that "all" has, which passed; with
 *                TUTTI_WHOLE or TUTTI_GRID_SEED of rows that the draw makes, and that nobody may have tried
 *   TUTTI_GRID_ROW   "0 3 0 0 2 0 0 0 0": this row alone, told in full
 *   TUTTI_GRID_SEED  what draws, instead of the commit
 *   TUTTI_GRID_LOUD  each row is told */
#include <limits.h>

#include "verify/tries.h"

/* How many rows are tried, of those that a draw makes; one of how many, of all. */
enum { MADE = SANITIZED ? 4 : 24, ONE_OF = SANITIZED ? 204 : 34 };

static void test_pairs_are_equal_or_refused(void **state)
{
    (void)state;
    struct tries t = {.name = "TUTTI_GRID_ROW", .steps = 3};
    const char *what = getenv("TUTTI_GRID");
    int part = 0, parts = 0;
    if (what && !strcmp(what, "all")) parts = part = 1;
    else if (what && (sscanf(what, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts))
        fail_msg("TUTTI_GRID: wanted all, or a part such as 2/3, got '%s'", what);
    t.part = parts;
    grid_open(&t.g);
    bool made = !parts && (drawn_whole() || getenv("TUTTI_GRID_SEED"));
    bool one = tries_one(&t);
    if (!one && made) tries_rows(&t, 2, drawn_seed(), MADE, 1, 1, 0);
    if (!one && !made) tries_rows(&t, 2, 1, INT_MAX, part, parts, parts ? 0 : ONE_OF);
    if (!parts) assert_true(t.run > 0);
    tries_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_equal_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
