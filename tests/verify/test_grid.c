/* SPDX-License-Identifier: Apache-2.0 */
/* The grid: every pair of a family, a layout, what saves memory, an optimizer, a recipe, a codec, a kind of data, an
 * objective and an odd shape, in rows that hold many pairs each (covering.h). A row is trained for three steps in its
 * layout and beside a plain one rank (verify.h), and in the trainer itself where data or objective are not the plain
 * ones; it is equal within its stated bounds, or the pair is refused with words that name a key.
 *
 * Bounds are those of verify/bounds.h. Toys of odd shapes round more than that where anything is rounded to fewer bits
 * than fp32 (a norm of eight numbers, a gradient that nearly cancels), so such a row may be off by three times its
 * bounds: what is wrong altogether is off by more, and in fp32, which every pair of the other factors meets, nothing is
 * added.
 *
 * Each row is a process of its own: one that ends by a signal, or hangs, is told like one that differs.
 *
 * What differs is made smaller before it is told: factors go back to their base while it still differs, so that what is
 * printed is the pair, or the few, that it takes.
 *
 *   TUTTI_GRID   "all": every pair; "2/3": the second third of them, for several processes; otherwise a part that the
 *                commit draws, so that each commit tries another one
 *   TUTTI_GRID_ROW   "0 3 0 0 2 0 0 0 0": this row alone, told in full
 *   TUTTI_GRID_SEED  what draws, instead of the commit
 *   TUTTI_GRID_LOUD  each row is told, and each refused pair with its words */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "base/hash.h"
#include "config/config_codec.h"
#include "config/setup.h"
#include "config/traps.h"
#include "covering.h"
#include "sanitized.h"
#include "verify/grid.h"
#include "verify/verify.h"

enum { MOST_WORDS = 64, STEPS = 3, DRAWN = SANITIZED ? 4 : 24 };

struct tries {
    struct grid g;
    int rows, run, refused, late, differ;
    struct str said; /* what differs */
};

/* ---- a row ---- */
static int load(const struct grid *g, struct arena *a, const int *row, bool one, struct config *c, struct conf **f,
                char **words, int *n, struct err *e)
{
    static const char *const one_rank[] = {"dp_replicate=1", "dp_shard=-1",  "zero=0",    "tp=1",          "cp=1",
                                           "ep=1",           "pp=1",         "servers=0", "schedule=auto", "chunks=0",
                                           "round=0",        "pp_layers=[]", "cp_inner=0"};
    *n = grid_words(g, a, row, words, MOST_WORDS);
    for (size_t i = 0; one && i < sizeof one_rank / sizeof *one_rank; i++)
        words[(*n)++] = arena_printf(a, "parallel.%s", one_rank[i]);
    int rc = config_load(c, f, a, NULL, words, *n, e);
    if (!rc) rc = config_resolve(c, *f, 0, one ? 1 : g->of[GRID_LAYOUT][row[GRID_LAYOUT]].ranks, e);
    return rc;
}

/* Of a row that config_load took for its own layout. */
static bool may_of(const struct grid *g, const int *row, struct err *e)
{
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    char *words[2 * MOST_WORDS];
    int n, rc = load(g, a, row, false, &c, &f, words, &n, e);
    arena_free(a);
    return !rc;
}

static bool may(void *ctx, const int *row)
{
    const struct tries *t = ctx;
    struct err e = {0};
    return may_of(&t->g, row, &e);
}

enum outcome_of_row { EQUAL, DIFFERS, LATE, BROKEN };
enum { MOST_S = SANITIZED ? 1200 : 240 };

static bool within(const struct config *c, const struct verify *v)
{
    const struct verify_layout *l = &v->layout[0];
    const double times = 3;
    bool rounds = c->precision.recipe != RECIPE_FP32 || c->precision.grad != GRAD_FP32 || c->precision.layers.n ||
                  config_comm_grad(c) != CODEC_KEPT || config_comm_param(c) != CODEC_KEPT;
    if (v->ok || !rounds) return v->ok;
    return l->complete && l->max_rel_error <= times * l->bound &&
           l->step_rel_error <= fmin(1, times * l->bound_steps) && l->loss_rel_error <= times * l->bound_totals &&
           l->norm_rel_error <= times * l->bound_totals && l->eval_rel_error <= times * l->bound_totals &&
           l->resume_rel_error <= times * l->bound && l->trained_rel_error <= times * l->bound_steps;
}

static enum outcome_of_row try_here(const struct grid *g, const int *row, struct str *out)
{
    struct arena *a = arena_new();
    struct config one, own;
    struct conf *f;
    struct verify v = {0};
    struct err e = {0};
    char *words[2 * MOST_WORDS];
    int n;
    enum outcome_of_row is = EQUAL;
    int rc = load(g, a, row, false, &own, &f, words, &n, &e);
    if (!rc) rc = load(g, a, row, true, &one, &f, words, &n, &e);
    bool trains = !rc && (row[GRID_DATA] || one.train.objective != OBJECTIVE_NEXT);
    const struct trained_asked asked = {.keys = words, .n_keys = n};
    if (!rc)
        rc = verify_all(&v,
                        &(struct verify_asked){.config = &one,
                                               .own = &own,
                                               .trains = trains ? &asked : NULL,
                                               .max_ranks = 0,
                                               .axes = VERIFY_ALL,
                                               .steps = STEPS},
                        &e);
    if (rc) {
        is = rc == ERR_REQUEST && strchr(e.text, '.') ? LATE : BROKEN;
        str_printf(out, "%s: %d, %s\n", is == LATE ? "refused when it began" : "ended", rc, e.text);
    } else {
        is = within(&own, &v) ? EQUAL : DIFFERS;
        verify_print(&v, out);
    }
    verify_free(&v);
    arena_free(a);
    return is;
}

/* In a process of its own, whose words come through a file. */
static enum outcome_of_row try_row(const struct grid *g, const int *row, struct str *out)
{
    FILE *words = tmpfile();
    char line[4096];
    int status = 0;
    assert_non_null(words);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct str said = {0};
        static const int faults[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS};
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) signal(faults[i], SIG_DFL); /* they are cmocka's */
        alarm(MOST_S);
        enum outcome_of_row is = try_here(g, row, &said);
        fputs(str_text(&said), words);
        fflush(words);
        _exit((int)is);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    rewind(words);
    while (fgets(line, sizeof line, words)) str_puts(out, line);
    fclose(words);
    if (WIFEXITED(status) && WEXITSTATUS(status) <= BROKEN) return (enum outcome_of_row)WEXITSTATUS(status);
    if (WIFSIGNALED(status)) str_printf(out, "ended by signal %d\n", WTERMSIG(status));
    else str_printf(out, "ended with %d\n", WEXITSTATUS(status));
    return BROKEN;
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

static void run_row(struct tries *t, struct covering *c, int *row)
{
    struct str out = {0};
    struct arena *a = arena_new();
    enum outcome_of_row is = try_row(&t->g, row, &out);
    int whole[GRID_FACTORS], n = 0, at[GRID_FACTORS] = {0};
    t->run++;
    memcpy(whole, row, sizeof whole);
    if (is != EQUAL) {
        shrink(&t->g, row, is);
        str_clear(&out);
        try_row(&t->g, row, &out);
        for (int f = 0; f < GRID_FACTORS; f++)
            if (row[f]) at[n++] = f;
    }
    if (is == LATE) { /* as if the config had refused it; what else the row had is tried in others */
        t->late++;
        if (c && (n == 1 || n == 2)) covering_refuse(c, whole, at[0], n == 2 ? at[1] : at[0] ? 0 : 1);
    }
    if (is == DIFFERS || is == BROKEN) {
        t->differ++;
        str_printf(&t->said, "%s\n  TUTTI_GRID_ROW=\"", grid_say(&t->g, a, row));
        for (int f = 0; f < GRID_FACTORS; f++) str_printf(&t->said, "%s%d", f ? " " : "", row[f]);
        str_printf(&t->said, "\"\n%s\n", str_text(&out));
    }
    if (getenv("TUTTI_GRID_LOUD") || !c)
        fprintf(stderr, "%d\t%d\t%s\n%s", (int)is, n, grid_say(&t->g, a, row), is == EQUAL && c ? "" : str_text(&out));
    str_free(&out);
    arena_free(a);
}

static void refused(void *ctx, const int *row, int f, int g)
{
    struct tries *t = ctx;
    struct err e = {0};
    (void)f, (void)g;
    t->refused++;
    assert_false(may_of(&t->g, row, &e));
    if (!strchr(e.text, '.')) {
        struct arena *a = arena_new();
        str_printf(&t->said, "refused without a key: %s: %s\n", grid_say(&t->g, a, row), e.text);
        arena_free(a);
    }
    if (getenv("TUTTI_GRID_LOUD")) {
        struct arena *a = arena_new();
        fprintf(stderr, "REFUSED\t%s\t%s\n", grid_say(&t->g, a, row), e.text);
        arena_free(a);
    }
}

/* ---- which rows ---- */
static uint64_t seed_of_commit(void)
{
    char line[64] = "";
    const char *given = getenv("TUTTI_GRID_SEED");
    FILE *p = given ? NULL : popen("git -C '" TEST_DIR "' rev-parse HEAD 2>/dev/null", "r");
    if (given) snprintf(line, sizeof line, "%.60s", given);
    else if (p && !fgets(line, sizeof line, p)) line[0] = 0;
    if (p) pclose(p);
    line[strcspn(line, "\n")] = 0;
    fprintf(stderr, "grid: drawn by '%s'\n", line);
    return hash64(line, strlen(line));
}

static void test_pairs_are_equal_or_refused(void **state)
{
    (void)state;
    struct tries t = {0};
    const char *what = getenv("TUTTI_GRID"), *one = getenv("TUTTI_GRID_ROW");
    int part = 0, parts = 0, row[GRID_FACTORS] = {0};
    if (what && !strcmp(what, "all")) parts = part = 1;
    else if (what && (sscanf(what, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts))
        fail_msg("TUTTI_GRID: wanted all, or a part such as 2/3, got '%s'", what);
    grid_open(&t.g);
    if (one) {
        char *end = (char *)(uintptr_t)one;
        for (int f = 0; f < GRID_FACTORS; f++) row[f] = (int)strtol(end, &end, 10);
        run_row(&t, NULL, row);
        if (t.differ) fail_msg("it differs");
        grid_close(&t.g);
        return;
    }
    struct covering_factor factor[GRID_FACTORS];
    for (int f = 0; f < GRID_FACTORS; f++) factor[f] = (struct covering_factor){t.g.n[f], 0};
    struct covering c = {.factor = factor,
                         .n = GRID_FACTORS,
                         .seed = parts ? 1 : seed_of_commit(),
                         .may = may,
                         .refused = refused,
                         .ctx = &t};
    covering_open(&c);
    for (; (parts || t.rows < DRAWN) && covering_next(&c, row); t.rows++)
        if (!parts || t.rows % parts == part - 1) run_row(&t, &c, row);
    print_message("%d rows of %d pairs, %d run, %d pairs refused, %d refused when they began, %d differ\n", t.rows,
                  c.n_pairs, t.run, t.refused, t.late, t.differ);
    covering_close(&c);
    grid_close(&t.g);
    if (t.differ || t.said.n) fail_msg("%d of %d rows differ\n%s", t.differ, t.run, str_text(&t.said));
    str_free(&t.said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_equal_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
