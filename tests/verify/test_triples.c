/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Every three of a degree, a zero level, a schedule, a recipe, a family, an optimizer and an objective (triples.h) are
 * in a row that is trained for two steps beside a plain one rank and is equal to it within its stated bounds, or the
 * config refuses the three before anything starts: rows of a covering array (covering.h; test_covering.c shows that
 * such an array has every triple). Every day it is the array of the first levels of each, in the whole of
 * all.
 *
 *   TUTTI_TRIPLES      "all": all levels; "2/3": the second third of the rows of that, for several processes
 *   TUTTI_TRIPLES_ROW  "0 3 0 0 2 0 0": this row alone, told in full
 *   TUTTI_GRID_LOUD    each row is told */
#include <limits.h>

#include "verify/tries.h"
#include "verify/triples.h"

static void test_triples_are_equal_or_refused(void **state)
{
    (void)state;
    struct tries t = {.name = "TUTTI_TRIPLES_ROW", .steps = 2};
    const char *what = getenv("TUTTI_TRIPLES");
    int part = 1, parts = 1;
    if (what && strcmp(what, "all") != 0 && (sscanf(what, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts))
        fail_msg("TUTTI_TRIPLES: wanted all, or a part such as 2/3, got '%s'", what);
    triples_open(&t.g, what != NULL);
    if (!tries_one(&t)) tries_rows(&t, 3, 1, INT_MAX, part, parts, 0);
    tries_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_triples_are_equal_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
