/* SPDX-License-Identifier: Apache-2.0 */
/* What waits in the host's memory comes back as it was: rows of layouts.h with memory.offload leave the numbers of
 * losses.txt, which were recorded without. With what is computed again, too. */
#include "golden/rows.h"

static void test_rows(void **state)
{
    static const char *const words[] = {
        "memory.offload=activations;memory.offload_least=0",
        "memory.offload=activations;memory.offload_least=1200",
        "memory.offload=[activations];memory.offload_least=0;memory.recompute=selective",
    };
    enum { WORDS = sizeof words / sizeof *words };
    struct tables t = {.want = *state, .whole = true};
    for (int i = 0; i < N_ROWS; i += 2 * CASE_STRIDE) {
        struct str s = {0};
        train_row(&layout_rows[i], words[i / 2 / CASE_STRIDE % WORDS], i % 4 == 3, &s);
        judge(&t, layout_rows[i].name, &s);
    }
    if (t.differ) fail_msg("%d of %d layouts differ when activations are offloaded", t.differ, t.compared);
    assert_true(t.compared > 0);
}

int main(void)
{
    char *table = read_table(TEST_DIR "/golden/losses.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_rows, table)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    xfree(table);
    return failed;
}
