/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices late running bare */
/* suite: wraps tile_rate_registers exp expf log logf pow tanh sin cos sincos */
/* suite: long late running bare */
/* Golden losses: 20 steps of each row of layouts.h leave exactly the numbers of losses.txt: every loss and gradient
 * norm, the first step's gradients, values and moments at the end, an evaluation, and in every fourth row what a
 * checkpoint brings back. Plain loops (run.kernels=ref) and functions of our own instead of libm's (own_math.h) make
 * them the same on every machine and compiler, so a change of code that changes no number changes nothing here.
 *
 *   no argument          compare (the test)
 *   print ref            print losses.txt anew, when numbers are meant to change (README.md)
 *   print auto           the same rows with this machine's kernels, for scripts/golden.sh
 *   against auto FILE    compare with such a print; a row that it does not have is named, not compared
 */
#include "golden/rows.h"

/* ---- through the trainer ---- */
/* The learning rate is constant: its schedule would go by run.steps, which grows. */
static void train_part(const struct folder *f, const struct run_row *r, bool again)
{
    static const char *const usual[] = {"model.seq_len=16",      "optimizer.schedule.name=constant",
                                        "precision.recipe=fp32", "optimizer.clip=0.5",
                                        "run.eval_every=10",     "run.eval_batches=2",
                                        "checkpoint.every=10",   "run.tensorboard=false"};
    char steps[32], with[32], valid[160];
    const char *all[MAX_KEYS];
    struct trainer_result result;
    struct err e;
    int n = 0;
    snprintf(steps, sizeof steps, "run.steps=%d", again ? STEPS : STEPS / 2);
    snprintf(with, sizeof with, "run.kernels=%s", kernels);
    snprintf(valid, sizeof valid, "data.valid=%s", f->text);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) all[n++] = usual[i];
    all[n++] = valid;
    all[n++] = with;
    all[n++] = steps;
    for (int i = 0; r->key[i]; i++) all[n++] = r->key[i];
    for (int i = 0; again && r->again[i]; i++) all[n++] = r->again[i];
    all[n] = NULL;
    if (train_ranks(f, "run", again ? r->ranks_again : r->ranks, all, &result, &e)) fail_msg("%s: %s", r->name, e.text);
}

static void put_checkpoint(struct str *s, const struct folder *f, int step)
{
    struct ckpt *c;
    struct err e = {0};
    struct hash64 h;
    char path[160];
    hash64_init(&h);
    snprintf(path, sizeof path, "%s/run/checkpoints/step-%08d", f->dir, step);
    if (ckpt_open(&c, path, &e)) fail_msg("%s", e.text);
    for (int64_t i = 0; i < ckpt_count(c); i++) {
        struct ckpt_entry x = ckpt_at(c, i);
        struct region all = region_whole(&x.shape);
        float *v = xcalloc(to_size(shape_numel(&x.shape)) + 1, sizeof *v);
        if (ckpt_read(c, i, &all, DT_F32, v, &e)) fail_msg("%s", e.text);
        hash64_add(&h, x.group, strlen(x.group));
        hash64_add(&h, x.name, strlen(x.name));
        hash64_add(&h, v, to_size(shape_numel(&x.shape)) * sizeof *v);
        xfree(v);
    }
    ckpt_close(c);
    str_printf(s, "checkpoint %016llx\n", (unsigned long long)hash64_value(&h));
}

static void put_metric(struct str *s, struct json *const *line, int n, const char *name)
{
    str_puts(s, name);
    for (int i = 0; i < n; i++) {
        const struct json *x = json_get(line[i], name);
        if (x) str_printf(s, " %.9g", json_real(x, 0));
    }
    str_putc(s, '\n');
}

static void train_run(const struct run_row *r, struct str *s)
{
    struct folder f;
    struct json *line[2 * STEPS];
    folder_open(&f);
    train_part(&f, r, false);
    train_part(&f, r, true);
    int n = read_metrics(&f, "run", line, 2 * STEPS);
    str_printf(s, "row %s\n", r->name);
    put_metric(s, line, n, "loss");
    put_metric(s, line, n, "grad_norm");
    put_metric(s, line, n, "valid_loss");
    put_checkpoint(s, &f, STEPS / 2);
    put_checkpoint(s, &f, STEPS);
    for (int i = 0; i < n; i++) json_free(line[i]);
    folder_close(&f);
}

/* On a device that faults where the host touches it every second row is trained: its numbers are those of the test
 * beside it, which trains all, and under sanitizers all are trained there. */
static int rows_apart(void)
{
    const char *device = getenv("TUTTI_DEVICE");
    return CASE_STRIDE == 1 && device && !strcmp(device, "untouchable") ? 2 : CASE_STRIDE;
}

/* On the late device, the one that runs by itself and the one without kernels a third, which the commit draws: they are
 * about the order of what touches bytes, and who does. */
static bool is_late(void)
{
    const char *device = getenv("TUTTI_DEVICE");
    return device && (!strcmp(device, "late") || !strcmp(device, "running") || !strcmp(device, "bare"));
}

static void all_rows(struct tables *t, int stride)
{
    for (int i = 0; i < N_ROWS; i += stride) {
        if (is_late() && !drawn_here(i / stride, 3)) continue;
        struct str s = {0};
        train_row(&layout_rows[i], NULL, i % 4 == 3, &s);
        judge(t, layout_rows[i].name, &s);
    }
}

static void all_runs(struct tables *t, int stride)
{
    for (int i = 0; i < N_RUNS; i += stride) {
        if (is_late() && !drawn_here(i / stride, 3)) continue;
        struct str s = {0};
        train_run(&run_rows[i], &s);
        judge(t, run_rows[i].name, &s);
    }
}

static void test_layouts(void **state)
{
    struct tables t = {.want = *state, .whole = true};
    all_rows(&t, rows_apart());
    if (t.differ) fail_msg("%d of %d layouts are not what they were", t.differ, t.compared);
    assert_true(CASE_STRIDE > 1 || is_late() || t.compared == (N_ROWS + rows_apart() - 1) / rows_apart());
}

static void test_runs(void **state)
{
    struct tables t = {.want = *state, .whole = true};
    all_runs(&t, rows_apart());
    if (t.differ) fail_msg("%d of %d runs are not what they were", t.differ, t.compared);
}

/* One bit of one number of the table is seen, and named. */
static void test_a_bit_is_seen(void **state)
{
    struct tables t = {.whole = true};
    struct str s = {0}, again = {0};
    size_t n = 0;
    char *table = xmalloc(strlen(*state) + 1);
    strcpy(table, *state);
    train_row(&layout_rows[0], NULL, false, &s);
    str_puts(&again, str_text(&s));
    char *at = strstr(table, "\nvalues ");
    assert_non_null(find_row(table, layout_rows[0].name, &n));
    at[9] = at[9] == '0' ? '1' : '0';
    t.want = table;
    judge(&t, layout_rows[0].name, &s);
    assert_int_equal(t.differ, 1);
    t.want = *state;
    judge(&t, layout_rows[0].name, &again);
    assert_int_equal(t.differ, 1);
    assert_int_equal(t.compared, 2);
    xfree(table);
}

static void test_own_math(void **state)
{
    (void)state;
    for (int i = -400; i <= 400; i++) {
        double x = i / 17.0, s, c;
        __wrap_sincos(x, &s, &c);
        assert_true(fabs(s * s + c * c - 1) < 1e-15);
        assert_true(fabs(__wrap_log(__wrap_exp(x)) - x) < 1e-14);
        assert_true(fabs(__wrap_tanh(x) - (__wrap_exp(2 * x) - 1) / (__wrap_exp(2 * x) + 1)) < 1e-15);
    }
    assert_true(fabs(__wrap_exp(1) - 2.718281828459045) < 1e-15 && fabs(__wrap_sin(1) - 0.8414709848078965) < 1e-15);
    assert_true(fabs(__wrap_pow(0.95, 7) - 0.6983372960937501) < 1e-14);
}

/* print KERNELS, against KERNELS FILE */
static int by_hand(int argc, char **argv)
{
    struct tables t = {0};
    kernels = argv[2];
    char *table = argc > 3 ? read_table(argv[3]) : NULL;
    t.want = table;
    all_rows(&t, 1);
    all_runs(&t, 1);
    if (table) printf("%d rows compared, %d differ\n", t.compared, t.differ);
    else printf("%s", str_text(&t.all));
    str_free(&t.all);
    xfree(table);
    return t.differ ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc > 2) return by_hand(argc, argv);
    char *table = read_table(TEST_DIR "/golden/losses.txt");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_layouts, table),
        cmocka_unit_test_prestate(test_runs, table),
        cmocka_unit_test_prestate(test_a_bit_is_seen, table),
        cmocka_unit_test(test_own_math),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    xfree(table);
    return failed;
}
