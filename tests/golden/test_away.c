/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* suite: wraps tile_rate_registers exp expf log logf pow tanh sin cos sincos */
/* What waits in the host's memory, or on disk, comes back as it was: rows of layouts.h with memory.offload leave the
 * numbers of losses.txt, which were recorded without. With what is computed again, too. Every day it is a third of the
 * rows, which the commit draws. */
#include "golden/rows.h"

static void test_rows(void **state)
{
    static const char *const words[] = {
        "memory.offload=activations;memory.offload_least=0",
        "memory.offload=activations;memory.offload_least=1200",
        "memory.offload=[activations];memory.offload_least=0;memory.recompute=selective",
        "memory.offload=[activations];memory.offload_least=0;memory.offload_to=.",
        "memory.offload=[activations];memory.offload_least=1200;memory.offload_to=.;memory.recompute=selective",
    };
    enum { WORDS = sizeof words / sizeof *words };
    struct tables t = {.want = *state, .whole = true};
    for (int i = 0; i < N_ROWS; i += 2 * CASE_STRIDE) {
        if (!drawn_here(i / 2 / CASE_STRIDE, 3)) continue;
        struct str s = {0};
        train_row(&layout_rows[i], words[i / 2 / CASE_STRIDE % WORDS], i % 4 == 3, &s);
        judge(&t, layout_rows[i].name, &s);
    }
    if (t.differ) fail_msg("%d of %d layouts differ when activations are offloaded", t.differ, t.compared);
    assert_true(t.compared > 0);
}

static bool has_key(const struct row *r, const char *key)
{
    for (int i = 0; r->key[i]; i++)
        if (!strncmp(r->key[i], key, strlen(key))) return true;
    return false;
}

/* What is stepped waits elsewhere: the same losses, moments and checkpoints, in every layout that has no servers. */
static void test_state(void **state)
{
    struct tables t = {.want = *state, .whole = true};
    for (int i = 0, k = 0; i < N_ROWS; i += CASE_STRIDE) {
        const struct row *r = &layout_rows[i];
        struct str s = {0};
        if (has_key(r, "parallel.servers") || has_key(r, "optimizer.name=muon")) continue;
        if (!drawn_here(i / CASE_STRIDE, 3)) continue;
        bool wide = !has_key(r, "precision.recipe=bf16");
        if (wide && k++ % 2) continue; /* a third of the rows has masters, and all of those are here */
        train_row(r,
                  wide ? k % 4 == 1 ? "memory.offload=[optimizer];memory.offload_to=." : "memory.offload=[optimizer]"
                  : i % 3 == 0 ? "memory.offload=[master];memory.offload_to=."
                               : "memory.offload=[optimizer,master,activations];memory.offload_to=.",
                  i % 4 == 3, &s);
        judge(&t, r->name, &s);
    }
    if (t.differ) fail_msg("%d of %d layouts differ when what is stepped waits elsewhere", t.differ, t.compared);
    assert_true(t.compared > 5);
}

/* The weights wait elsewhere, too: every zero level, whole and shared out, with what is stepped here or there. */
static void test_params(void **state)
{
    static const char *const words[] = {
        "memory.offload=[params];memory.offload_to=.",
        "memory.offload=[params]",
        "memory.offload=[params,optimizer];memory.offload_to=.",
        "memory.offload=[params,activations];memory.offload_to=.;memory.offload_least=0;memory.recompute=selective",
    };
    enum { WORDS = sizeof words / sizeof *words };
    struct tables t = {.want = *state, .whole = true};
    for (int i = 0, k = 0; i < N_ROWS; i += CASE_STRIDE) {
        const struct row *r = &layout_rows[i];
        struct str s = {0};
        if (has_key(r, "parallel.servers") || has_key(r, "optimizer.name=muon") || has_key(r, "comm.param")) continue;
        if (!drawn_here(i / CASE_STRIDE, 3)) continue;
        bool masters = has_key(r, "precision.recipe=bf16") && k % 2;
        train_row(r, masters ? "memory.offload=[optimizer,master,params];memory.offload_to=." : words[k % WORDS],
                  i % 4 == 3, &s);
        k++;
        judge(&t, r->name, &s);
    }
    if (t.differ) fail_msg("%d of %d layouts differ when weights wait elsewhere", t.differ, t.compared);
    assert_true(t.compared > 5);
}

int main(void)
{
    char *table = read_table(TEST_DIR "/golden/losses.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_rows, table),
                                       cmocka_unit_test_prestate(test_state, table),
                                       cmocka_unit_test_prestate(test_params, table)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    xfree(table);
    return failed;
}
