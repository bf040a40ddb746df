/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h: training a row of layouts.h and comparing what it leaves behind with losses.txt; for the tests that do, each
 * linked with the functions that own_math.h wraps. */
#ifndef TUTTI_TESTS_GOLDEN_ROWS_H
#define TUTTI_TESTS_GOLDEN_ROWS_H

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
#include "drawn.h"
#include "golden/layouts.h"
#include "golden/own_math.h"
#include "runs.h"
#include "told_rate.h"
#include "site/site.h"
#include "sanitized.h"
#include "verify/shelf.h"
#include "verify/trial.h"

enum { STEPS = 20 };
static const char *kernels = "ref";

static inline void put_hash(struct str *s, const char *what, const void *p, int64_t n, size_t width)
{
    str_printf(s, "%s %016llx\n", what, (unsigned long long)hash64(p, to_size(n) * width));
}

static inline void put_reals(struct str *s, const char *what, const double *x, int n)
{
    str_puts(s, what);
    for (int i = 0; i < n; i++) str_printf(s, " %a", x[i]);
    str_putc(s, '\n');
}

/* more: keys over the row's, a semicolon between two, or NULL. */
static inline void resolve(struct config *c, struct arena *a, const struct row *r, const char *more)
{
    char *all[64];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    for (size_t i = 0; i < sizeof toy_keys / sizeof *toy_keys; i++) all[k++] = arena_strdup(a, toy_keys[i]);
    all[k++] = arena_printf(a, "run.kernels=%s", kernels);
    for (int i = 0; r->key[i]; i++) all[k++] = arena_strdup(a, r->key[i]);
    char *rest, *word = more ? strtok_r(arena_strdup(a, more), ";", &rest) : NULL;
    for (; word; word = strtok_r(NULL, ";", &rest)) all[k++] = word;
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s: %s", r->name, e.text);
    if (config_resolve(c, f, 0, r->ranks, &e)) fail_msg("%s: %s", r->name, e.text);
}

/* A row that is being trained. */
struct row_run {
    struct arena *arena;
    struct config c;
    struct param_table p;
    struct outcome o;
    struct replay replay;
    struct trial t;
    int32_t *tokens, *unseen;
};

/* more: keys over the row's, or NULL. */
static inline void row_begin(struct row_run *x, const struct row *r, const char *more, int steps)
{
    *x = (struct row_run){.arena = arena_new()};
    resolve(&x->c, x->arena, r, more);
    struct model_config m = x->c.model;
    model_declare(&m, NULL, &x->p);
    outcome_init(&x->o, &x->c, x->p.numel);
    replay_init(&x->replay, &x->c, STEPS + 1);
    x->tokens = trial_tokens(&x->c, 0);
    x->unseen = trial_tokens(&x->c, 1);
    x->t = (struct trial){.c = &x->c,
                          .steps = steps,
                          .global = &x->p,
                          .replay = &x->replay,
                          .out = &x->o,
                          .tokens = x->tokens,
                          .unseen = x->unseen};
}

static inline void row_run(struct row_run *x, const char *name)
{
    struct err e = {0};
    if (trial_run(&x->t, &e)) fail_msg("%s: %s", name, e.text);
}

static inline void row_end(struct row_run *x)
{
    replay_free(&x->replay);
    outcome_fini(&x->o);
    param_table_free(&x->p);
    xfree(x->tokens);
    xfree(x->unseen);
    arena_free(x->arena);
}

/* One row, trained; what it leaves behind, in words. A row that hands over makes its last step from a checkpoint. */
static inline void train_row(const struct row *r, const char *more, bool hands_over, struct str *s)
{
    struct row_run x;
    struct err e = {0};
    struct shelf shelf = {0};
    struct shelf_place *place = NULL;
    row_begin(&x, r, more, hands_over ? STEPS - 1 : STEPS);
    int64_t numel = x.p.numel;
    if (hands_over && (shelf_open(&shelf, numel * 12, &e) || shelf_next(&shelf, x.t.steps, &place, &e)))
        fail_msg("%s", e.text);
    if (place) x.t.save_to = place->root, x.t.load_from = place->path;
    row_run(&x, r->name);
    str_printf(s, "row %s\n", r->name);
    put_reals(s, "loss", x.o.loss, STEPS);
    put_reals(s, "norm", x.o.norm, STEPS);
    put_reals(s, "evaluation", &x.o.eval_loss, 1);
    put_hash(s, "gradients", x.o.grad, numel, 4);
    put_hash(s, "values", x.o.value, numel, 4);
    put_hash(s, "moments", x.o.value + numel, numel * x.o.moments, 4);
    put_hash(s, "loaded", x.o.loaded, hands_over ? numel * (1 + x.o.moments) : 0, 4);
    put_hash(s, "next", x.o.next, hands_over ? numel : 0, 4);
    assert_string_equal(x.o.replicas, "");
    shelf_close(&shelf);
    row_end(&x);
}

/* ---- comparing ---- */
/* The row's lines in a table, to the next "row" or the end; NULL: it has none. */
static inline const char *find_row(const char *table, const char *name, size_t *n)
{
    char head[160];
    snprintf(head, sizeof head, "row %s\n", name);
    const char *at = strstr(table, head), *end = at ? strstr(at, "\nrow ") : NULL;
    if (at) *n = end ? (size_t)(end + 1 - at) : strlen(at);
    return at;
}

/* Says the first word that differs and where it stands. */
static inline void tell(const char *name, const char *got, const char *want)
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

static inline void judge(struct tables *t, const char *name, struct str *got)
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

static inline char *read_table(const char *path)
{
    char *text;
    size_t n;
    struct err e = {0};
    if (fs_read_all(path, (size_t)1 << 24, &text, &n, &e)) fail_msg("%s", e.text);
    return text;
}

#endif
