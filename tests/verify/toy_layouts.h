/* SPDX-License-Identifier: Apache-2.0 */
/* toy_layouts.h: a config of odd sizes for one rank, and its layouts beside one rank; shared by the tests that take a
 * part of the variants each, so that none of them takes long. */
#ifndef TUTTI_TESTS_VERIFY_TOY_LAYOUTS_H
#define TUTTI_TESTS_VERIFY_TOY_LAYOUTS_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "verify/verify.h"
#include "sanitized.h"
#include "verify/thinned.h"

/* The words of a small config, and keys behind them; returns how many. all: room for 64. */
static inline int toy_words(char **all, struct arena *a, const char *const *keys, int n)
{
    static const char *const toy[] = {"model.layers=2",       "model.hidden=36",      "model.heads=3",
                                      "model.ffn=52",         "model.vocab=67",       "model.seq_len=20",
                                      "run.threads=1",        "comm.timeout_s=60",    "batch.global=8",
                                      "batch.micro=2",        "parallel.dp_shard=-1", "optimizer.lr=1e-3",
                                      "precision.recipe=fp32"};
    int k = 0;
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; i < n; i++) all[k++] = arena_strdup(a, keys[i]);
    return k;
}

static inline void resolve(struct config *c, struct arena *a, const char *const *keys, int n)
{
    char *all[64];
    struct err e = {0};
    struct conf *f;
    int k = toy_words(all, a, keys, n);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(c, f, 0, 1, &e)) fail_msg("%s", e.text);
}

static inline int n_keys(const char *const *keys)
{
    int n = 0;
    while (n < 4 && keys[n]) n++;
    return n;
}

/* Layouts of `axes` on up to so many ranks, equal to one rank, those of variant i of n (thinned.h); else fails with
 * what tutti verify prints. verify_free it. */
static inline void verified(struct verify *v, const struct config *c, int ranks, unsigned axes, int steps,
                            const char *what, size_t i, size_t n)
{
    struct err e = {0};
    struct str out = {0};
    if (thinned_run(v, c, ranks, axes, steps, (int)i, (int)n, &e)) fail_msg("%s: %s", what, e.text);
    verify_print(v, &out);
    if (!v->ok) fail_msg("%s:\n%s", what, str_text(&out));
    assert_true(v->layout[0].bit_identical); /* one rank twice */
    str_free(&out);
}

/* Layouts of up to four ranks, for every CASE_STRIDE-th variant, of those for the half that a commit draws. A sanitizer
 * has met every path after two steps. */
static inline void check_equal_one_rank(const char *const variants[][4], size_t n)
{
    for (size_t i = 0; i < n; i += CASE_STRIDE) {
        if (!drawn_half(i, CASE_STRIDE)) continue; /* every day half of them */
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        resolve(&c, a, variants[i], n_keys(variants[i]));
        verified(&v, &c, 4, VERIFY_ALL, SANITIZED ? 2 : 3, arena_printf(a, "variant %zu", i), i / 2,
                 (size_t)drawn_number((int64_t)n, 2));
        assert_true(v.n >= (drawn_whole() ? 1 + 5 + 5 + 9 : 12)); /* whole, the data-parallel ones alone */
        verify_free(&v);
        arena_free(a);
    }
}

#endif
