/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_trace FILE RANKS ARROWS: the rules of trace_rules.h for a file that other processes wrote, with so many arrows
 * at least. */
#include "watch/trace_rules.h"

static void test_file(void **state)
{
    char **argv = *state;
    struct rules r;
    rules_check(&r, argv[1], atoi(argv[2]));
    if (r.arrows < atoi(argv[3])) fail_msg("%d arrows", r.arrows);
    print_message("%d boxes, %d arrows, %d steps\n", r.n, r.arrows, r.n_steps);
    rules_free(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_file, argv)};
    return argc == 4 ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
}
