/* SPDX-License-Identifier: Apache-2.0 */
/* thinned.h: the layouts that a test of several variants of a config runs beside one rank: all of them with TUTTI_WHOLE
 * in the environment (scripts/test.sh --all); else few enough for every day.
 *
 * A layout is a choice for each of a few questions (thinned_values: how many shards, which zero level, which schedule,
 * ...). Each variant meets every answer of each, and the variants of a test together every two answers that any layout
 * of them has together: which variant meets which two is drawn by a number that every commit has another one of, so
 * that the three (these two in that variant) are met by and by. Layouts are taken greedily, the one first that has most
 * of what is still to be met. test_thinned.c shows that all of it is met. */
#ifndef TUTTI_TESTS_VERIFY_THINNED_H
#define TUTTI_TESTS_VERIFY_THINNED_H

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "drawn.h"
#include "verify/layouts.h"
#include "verify/verify.h"

enum { THINNED_QUESTIONS = 12, THINNED_APART = 3 /* two answers are met by every third variant at least */ };

static inline void thinned_values(const struct layout_try *t, int64_t *answer)
{
    const int64_t values[THINNED_QUESTIONS] = {t->dp_replicate,
                                               t->dp_shard,
                                               t->zero,
                                               t->tp * 2 + t->sequence,
                                               t->cp,
                                               t->cp_algorithm,
                                               t->pp,
                                               t->schedule ? (int32_t)hash64(t->schedule, strlen(t->schedule)) : 0,
                                               t->chunks * 100 + t->round,
                                               t->n_layers,
                                               t->ep * 100 + t->etp,
                                               t->servers};
    memcpy(answer, values, sizeof values);
}

/* Whether variant i of n is asked to meet answers a of question f and b of g; f == g: a alone. */
static inline bool thinned_asked(uint64_t seed, int i, int n, int f, int64_t a, int g, int64_t b)
{
    const int64_t two[5] = {f, a, g, b, (int64_t)seed};
    if (n > THINNED_APART) n = THINNED_APART;
    return f == g || hash64(two, sizeof two) % (uint64_t)n == (uint64_t)(i % n);
}

/* How much of what is asked for layout k has that none of those taken has; takes it as well. */
static inline int thinned_new(bool *met, int64_t (*answer)[THINNED_QUESTIONS], int n, int k, bool take)
{
    int fresh = 0;
    for (int f = 0; f < THINNED_QUESTIONS; f++)
        for (int g = f; g < THINNED_QUESTIONS; g++) {
            bool *of = &met[(f * THINNED_QUESTIONS + g) * n];
            fresh += !of[k];
            for (int j = 0; take && j < n; j++) of[j] |= answer[j][f] == answer[k][f] && answer[j][g] == answer[k][g];
        }
    return fresh;
}

/* Of the layouts in l those that variant i of n runs; the first, one rank, among them. */
static inline void thinned_take(struct layouts *l, uint64_t seed, int i, int n)
{
    enum { Q = THINNED_QUESTIONS };
    int64_t(*answer)[Q] = xcalloc((size_t)l->n + 1, sizeof *answer);
    bool *met = xcalloc((size_t)l->n * Q * Q + 1, sizeof *met), *taken = xcalloc((size_t)l->n + 1, sizeof *taken);
    for (int k = 0; k < l->n; k++) thinned_values(&l->at[k], answer[k]);
    for (int f = 0; f < Q; f++)
        for (int g = f; g < Q; g++)
            for (int k = 0; k < l->n; k++)
                met[(f * Q + g) * l->n + k] = !thinned_asked(seed, i, n, f, answer[k][f], g, answer[k][g]);
    for (int best = 0; best >= 0;) {
        taken[best] = true;
        thinned_new(met, answer, l->n, best, true);
        int most = 0;
        best = -1;
        for (int k = 0; k < l->n; k++) {
            int fresh = taken[k] ? 0 : thinned_new(met, answer, l->n, k, false);
            if (fresh > most) best = k, most = fresh;
        }
    }
    int kept = 0;
    for (int k = 0; k < l->n; k++)
        if (taken[k]) l->at[kept++] = l->at[k];
    l->n = kept;
    xfree(answer);
    xfree(met);
    xfree(taken);
}

/* layouts_enumerate of those that use no other axes. layouts_free it. */
static inline void thinned_layouts(struct layouts *l, const struct config *c, int ranks, unsigned axes, int i, int n)
{
    layouts_enumerate(l, c, ranks);
    int kept = 0;
    for (int k = 0; k < l->n; k++)
        if (!(layout_axes(&l->at[k]) & ~axes)) l->at[kept++] = l->at[k];
    l->n = kept;
    if (!drawn_whole() && l->n) thinned_take(l, drawn_seed(), i, n);
}

/* verify_run of variant i of n. */
static inline int thinned_run(struct verify *v, const struct config *c, int ranks, unsigned axes, int steps, int i,
                              int n, struct err *e)
{
    struct layouts l;
    thinned_layouts(&l, c, ranks, axes, i, n);
    const struct verify_asked q = {.config = c, .max_ranks = ranks, .axes = axes, .steps = steps, .only = &l};
    int rc = verify_all(v, &q, e);
    layouts_free(&l);
    return rc;
}

#endif
