/* SPDX-License-Identifier: Apache-2.0 */
/* tries.h: rows of a grid (grid.h, triples.h) are run one after the other (grid_row.h), those of a covering array, or
 * the one that is asked for; what differs is made smaller before it is told: factors go back to their base while it
 * still differs, so that what is printed is the pair, or the few, that it takes. */
#ifndef TUTTI_TESTS_VERIFY_TRIES_H
#define TUTTI_TESTS_VERIFY_TRIES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "covering.h"
#include "drawn.h"
#include "verify/grid_row.h"

struct tries {
    struct grid g;
    const char *name; /* of the environment's variable that asks for one row */
    int steps, part, rows, run, refused, differ;
    struct str said; /* what differs */
};

/* ---- a row ---- */
static inline bool may_of(const struct grid *g, const int *row, struct err *e)
{
    struct arena *a = arena_new();
    struct asked q;
    asked_row(&q, g, a, row);
    bool is = asked_may(&q, e);
    arena_free(a);
    return is;
}

static inline bool may(void *ctx, const int *row)
{
    const struct tries *t = ctx;
    struct err e = {0};
    return may_of(&t->g, row, &e);
}

static inline enum outcome_of_row try_row(const struct tries *t, const int *row, struct str *out)
{
    struct arena *a = arena_new();
    struct asked q;
    asked_row(&q, &t->g, a, row);
    enum outcome_of_row is = asked_try(&q, t->steps, out);
    arena_free(a);
    return is;
}

/* Factors go back to their base, while what is found stays. */
static inline void shrink(const struct tries *t, int *row, enum outcome_of_row found)
{
    const struct grid *g = &t->g;
    for (int f = 0; f < g->factors; f++) {
        int was = row[f];
        struct err e = {0};
        struct str ignored = {0};
        if (!was) continue;
        row[f] = 0;
        if (!may_of(g, row, &e) || try_row(t, row, &ignored) != found) row[f] = was;
        str_free(&ignored);
    }
}

static inline void run_row(struct tries *t, int *row, bool told)
{
    struct str out = {0};
    struct arena *a = arena_new();
    enum outcome_of_row is = try_row(t, row, &out);
    t->run++;
    if (is != EQUAL) {
        shrink(t, row, is);
        str_clear(&out);
        try_row(t, row, &out);
        t->differ++;
        str_printf(&t->said, "%s\n  %s=\"", grid_say(&t->g, a, row), t->name);
        for (int f = 0; f < t->g.factors; f++) str_printf(&t->said, "%s%d", f ? " " : "", row[f]);
        str_printf(&t->said, "\"\n%s\n", str_text(&out));
    }
    if (told)
        fprintf(stderr, "%d\t%s\n%s", (int)is, grid_say(&t->g, a, row), is == EQUAL && t->part ? "" : str_text(&out));
    str_free(&out);
    arena_free(a);
}

/* What it says to do is followed by test_advice. */
static inline void refused(void *ctx, const int *row, const int *factor)
{
    struct tries *t = ctx;
    (void)row, (void)factor;
    t->refused++;
}

/* ---- which rows ---- */
/* The row in the environment, if there is one. */
static inline bool tries_one(struct tries *t)
{
    const char *one = getenv(t->name);
    int row[GRID_MOST] = {0};
    if (!one) return false;
    char *end = (char *)(uintptr_t)one;
    for (int f = 0; f < t->g.factors; f++) {
        row[f] = (int)strtol(end, &end, 10);
        if (row[f] < 0 || row[f] >= t->g.n[f]) fail_msg("%s: %s has %d levels", t->name, t->g.names[f], t->g.n[f]);
    }
    run_row(t, row, true);
    return true;
}

/* Rows of an array of that strength, `most` at most; every parts-th of them, from part - 1 on; with `drawn` every so
 * manieth, from where the commit says. */
static inline void tries_rows(struct tries *t, int strength, uint64_t seed, int most, int part, int parts, int drawn)
{
    struct covering_factor factor[GRID_MOST];
    int row[GRID_MOST] = {0};
    for (int f = 0; f < t->g.factors; f++) factor[f] = (struct covering_factor){t->g.n[f], 0};
    struct covering c = {.factor = factor,
                         .n = t->g.factors,
                         .strength = strength,
                         .seed = seed,
                         .may = may,
                         .refused = refused,
                         .ctx = t};
    covering_open(&c);
    for (; t->rows < most && covering_next(&c, row); t->rows++)
        if (drawn ? drawn_here(t->rows, drawn) : t->rows % parts == part - 1)
            run_row(t, row, getenv("TUTTI_GRID_LOUD") != NULL);
    print_message("%d rows of %d %s, %d run, %d %s refused, %d differ\n", t->rows, c.n_tuples,
                  strength == 2 ? "pairs" : "triples", t->run, t->refused, strength == 2 ? "pairs" : "triples",
                  t->differ);
    covering_close(&c);
}

/* Fails if any differed, and says what. */
static inline void tries_end(struct tries *t)
{
    grid_close(&t->g);
    fputs(str_text(&t->said), stderr);
    if (t->differ) fail_msg("%d of %d rows differ", t->differ, t->run);
    str_free(&t->said);
}

#endif
