/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps tile_rate_registers exp expf log logf pow tanh sin cos sincos */
/* suite: long sanitizers */
/* Golden losses by a GPU's kernels, simulated (run.device=cuda-sim), in an order of threads that the row's number
 * draws: near to what plain loops recorded in losses.txt, the more so the wider the row's numbers are, and to the bit
 * the same when the order is another one. What was measured is 1e-7 of a loss in fp32, 2e-3 in 16 bits. */
#include "golden/rows.h"
#include "kernel/cuda/sim_run.h"

/* The k-th number of a row's line, such as "loss". */
static double number(const char *row, const char *line, int k)
{
    char head[16];
    snprintf(head, sizeof head, "\n%s ", line);
    const char *at = strstr(row, head);
    if (!at) fail_msg("a row without its %s", line);
    at += strlen(head);
    for (; k; k--) at = strchr(at, ' ') + 1;
    return strtod(at, NULL);
}

static double worst(const char *got, const char *want, const char *line)
{
    double most = 0;
    for (int k = 0; k < STEPS; k++) {
        double a = number(got, line, k), b = number(want, line, k), d = fabs(a - b) / fabs(b);
        if (!(d <= most)) most = d;
    }
    return most;
}

static void in_order(const struct row *r, enum sim_way way, struct str *s)
{
    char word[32];
    snprintf(word, sizeof word, "%s:%d", sim_way_names[way], (int)way + 3);
    setenv("TUTTI_SIM_ORDER", word, 1);
    train_row(r, "run.device=cuda-sim", false, s);
    unsetenv("TUTTI_SIM_ORDER");
}

static void test_near(void **state)
{
    char path[] = TEST_DIR "/golden/losses.txt";
    char *table = read_table(path);
    int compared = 0, far = 0;
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        if (!drawn_here(i, 16)) continue;
        struct str one = {0}, two = {0};
        size_t n;
        const struct row *r = &layout_rows[i];
        const char *want = find_row(table, r->name, &n);
        assert_non_null(want);
        in_order(r, (enum sim_way)(i % SIM_WAYS), &one);
        in_order(r, (enum sim_way)((i + 1) % SIM_WAYS), &two);
        if (strcmp(str_text(&one), str_text(&two)) != 0) {
            tell(r->name, str_text(&one), str_text(&two));
            fail_msg("%s: other bits in another order of threads", r->name);
        }
        double loss = worst(str_text(&one), want, "loss"), norm = worst(str_text(&one), want, "norm");
        bool narrow = strstr(r->name, "bf16") || strstr(r->name, "fp8") || strstr(r->name, "fp16") ||
                      strstr(r->name, "fp4") || strstr(r->name, "int8") || strstr(r->name, "muon"); /* in bf16 */
        print_message("  %-40s loss %.2g, norm %.2g\n", r->name, loss, norm);
        far += !(loss <= (narrow ? 2e-2 : 1e-5)) || !(norm <= (narrow ? 1e-1 : 1e-3));
        compared++;
        str_free(&one);
        str_free(&two);
    }
    xfree(table);
    if (far) fail_msg("%d of %d rows are far from plain loops", far, compared);
    assert_true(compared > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_near)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
