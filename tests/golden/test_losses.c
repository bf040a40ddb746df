/* SPDX-License-Identifier: Apache-2.0 */
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
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/str.h"
#include "checkpoint/ckpt.h"
#include "golden/layouts.h"
#include "golden/own_math.h"
#include "kernel/cpu/tile_rate.h"
#include "run/runs.h"
#include "sanitized.h"
#include "verify/shelf.h"
#include "verify/trial.h"

enum { STEPS = 20 };
static const char *kernels = "ref";

/* The trainer measures the machine for MFU, for seconds where others use it; nothing here reads MFU. */
double __wrap_tile_rate_registers(const struct tile_ops *o, struct team *team);
double __wrap_tile_rate_registers(const struct tile_ops *o, struct team *team)
{
    (void)o;
    (void)team;
    return 1e9;
}

static void put_hash(struct str *s, const char *what, const void *p, int64_t n, size_t width)
{
    str_printf(s, "%s %016llx\n", what, (unsigned long long)hash64(p, to_size(n) * width));
}

static void put_reals(struct str *s, const char *what, const double *x, int n)
{
    str_puts(s, what);
    for (int i = 0; i < n; i++) str_printf(s, " %a", x[i]);
    str_putc(s, '\n');
}

static void resolve(struct config *c, struct arena *a, const struct row *r)
{
    char *all[64];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    for (size_t i = 0; i < sizeof toy_keys / sizeof *toy_keys; i++) all[k++] = arena_strdup(a, toy_keys[i]);
    all[k++] = arena_printf(a, "run.kernels=%s", kernels);
    for (int i = 0; r->key[i]; i++) all[k++] = arena_strdup(a, r->key[i]);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s: %s", r->name, e.text);
    if (config_resolve(c, f, 0, r->ranks, &e)) fail_msg("%s: %s", r->name, e.text);
}

/* One row, trained; what it leaves behind, in words. A row that hands over makes its last step from a checkpoint. */
static void train_row(const struct row *r, bool hands_over, struct str *s)
{
    struct arena *a = arena_new();
    struct config c;
    struct err e = {0};
    resolve(&c, a, r);
    struct model_config m = c.model;
    struct param_table p = {0};
    struct outcome o;
    struct replay replay;
    struct shelf shelf = {0};
    struct shelf_place *place = NULL;
    struct trial t = {.c = &c, .steps = hands_over ? STEPS - 1 : STEPS, .global = &p, .replay = &replay, .out = &o};
    model_declare(&m, NULL, &p);
    outcome_init(&o, &c, p.numel);
    replay_init(&replay, &c, STEPS + 1);
    int32_t *tokens = trial_tokens(&c, 0), *unseen = trial_tokens(&c, 1);
    t.tokens = tokens;
    t.unseen = unseen;
    if (hands_over && (shelf_open(&shelf, p.numel * 12, &e) || shelf_next(&shelf, t.steps, &place, &e)))
        fail_msg("%s", e.text);
    if (place) t.save_to = place->root, t.load_from = place->path;
    if (trial_run(&t, &e)) fail_msg("%s: %s", r->name, e.text);
    str_printf(s, "row %s\n", r->name);
    put_reals(s, "loss", o.loss, STEPS);
    put_reals(s, "norm", o.norm, STEPS);
    put_reals(s, "evaluation", &o.eval_loss, 1);
    put_hash(s, "gradients", o.grad, p.numel, 4);
    put_hash(s, "values", o.value, p.numel, 4);
    put_hash(s, "moments", o.value + p.numel, p.numel * o.moments, 4);
    put_hash(s, "loaded", o.loaded, hands_over ? p.numel * (1 + o.moments) : 0, 4);
    put_hash(s, "next", o.next, hands_over ? p.numel : 0, 4);
    assert_string_equal(o.replicas, "");
    shelf_close(&shelf);
    replay_free(&replay);
    outcome_fini(&o);
    param_table_free(&p);
    xfree(tokens);
    xfree(unseen);
    arena_free(a);
}

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

/* ---- comparing ---- */
/* The row's lines in a table, to the next "row" or the end; NULL: it has none. */
static const char *find_row(const char *table, const char *name, size_t *n)
{
    char head[160];
    snprintf(head, sizeof head, "row %s\n", name);
    const char *at = strstr(table, head), *end = at ? strstr(at, "\nrow ") : NULL;
    if (at) *n = end ? (size_t)(end + 1 - at) : strlen(at);
    return at;
}

/* Says the first word that differs and where it stands. */
static void tell(const char *name, const char *got, const char *want)
{
    int word = 0;
    const char *line = got;
    size_t i = 0;
    for (; got[i] == want[i]; i++) {
        if (got[i] == '\n') line = got + i + 1, word = 0;
        else if (got[i] == ' ') word++;
    }
    size_t a = i, b = i;
    while (a > 0 && got[a - 1] != ' ' && got[a - 1] != '\n') a--;
    b = a;
    fprintf(stderr, "%s: %.*s of step %d is %.*s, recorded is %.*s\n", name, (int)strcspn(line, " \n"), line, word,
            (int)strcspn(got + a, " \n"), got + a, (int)strcspn(want + b, " \n"), want + b);
}

struct tables {
    struct str all; /* printed, where there is nothing to compare with */
    const char *want;
    bool whole; /* every row must be there */
    int compared, differ;
};

static void judge(struct tables *t, const char *name, struct str *got)
{
    size_t n = 0;
    const char *want = t->want ? find_row(t->want, name, &n) : NULL;
    if (!t->want) {
        str_puts(&t->all, str_text(got));
    } else if (!want) {
        fprintf(stderr, "%s: %s\n", name,
                t->whole ? "not recorded (tests/golden/README.md)" : "only the new program has this row");
        t->differ += t->whole;
    } else {
        t->compared++;
        bool same = n == got->n && !memcmp(want, str_text(got), n);
        if (!same) tell(name, str_text(got), want);
        t->differ += !same;
    }
    str_free(got);
}

static void all_rows(struct tables *t, int stride)
{
    for (int i = 0; i < N_ROWS; i += stride) {
        struct str s = {0};
        train_row(&layout_rows[i], i % 4 == 3, &s);
        judge(t, layout_rows[i].name, &s);
    }
}

static void all_runs(struct tables *t, int stride)
{
    for (int i = 0; i < N_RUNS; i += stride) {
        struct str s = {0};
        train_run(&run_rows[i], &s);
        judge(t, run_rows[i].name, &s);
    }
}

static char *read_table(const char *path)
{
    char *text;
    size_t n;
    struct err e = {0};
    if (fs_read_all(path, (size_t)1 << 24, &text, &n, &e)) fail_msg("%s", e.text);
    return text;
}

static void test_layouts(void **state)
{
    struct tables t = {.want = *state, .whole = true};
    all_rows(&t, CASE_STRIDE);
    if (t.differ) fail_msg("%d of %d layouts are not what they were", t.differ, t.compared);
    assert_true(CASE_STRIDE > 1 || t.compared == N_ROWS);
}

static void test_runs(void **state)
{
    struct tables t = {.want = *state, .whole = true};
    all_runs(&t, CASE_STRIDE);
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
    train_row(&layout_rows[0], false, &s);
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
