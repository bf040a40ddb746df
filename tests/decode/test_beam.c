/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search over made-up models, whose logits are a function of the tokens before. So wide that nothing is dropped it
 * finds the best of all texts, in their order; narrower ones find what a plain search finds that keeps lists of
 * everything and never ends early. With logits of few different values most candidates are equal, and the order among
 * equal ones is the one that is promised. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "decode/beam.h"
#include "decode/sampling.h"
#include "sanitized.h"

enum { LONGEST = 9, TEXTS = 3000 };

struct world {
    uint64_t seed;
    int vocab, most, levels; /* levels: different logits; 0: as many as there are */
    bool stops;              /* a text also stops behind tokens 1, 0 */
    double penalty;
};

static void logits_after(const struct world *w, const int32_t *ids, int64_t n, float *logits)
{
    uint64_t at = (uint64_t)n + 1;
    for (int64_t i = 0; i < n; i++) at = at * 31 + (uint64_t)ids[i];
    for (int v = 0; v < w->vocab; v++) {
        double u = rng_uniform(w->seed, at, (uint64_t)v);
        logits[v] = (float)(w->levels ? floor(u * w->levels) : 4 * u);
        if (w->vocab > 3 && rng_u32(w->seed + 1, at, (uint64_t)v) % 9 == 0) logits[v] = -INFINITY;
    }
    logits[0] = logits[0] == -INFINITY ? 0 : logits[0];
}

static enum beam_end end_of(void *ctx, const int32_t *ids, int64_t n)
{
    const struct world *w = ctx;
    if (ids[n - 1] == w->vocab - 1) return BEAM_END_OF_TEXT;
    return w->stops && n > 1 && ids[n - 2] == 1 && ids[n - 1] == 0 ? BEAM_STOP : BEAM_GOES_ON;
}

struct text {
    int32_t ids[LONGEST];
    int n;
    double sum, score;
    enum beam_end why;
};

/* ---- what is to be found ---- */

struct texts {
    struct text t[TEXTS];
    int n;
};

/* All texts that are at an end, by going through all tokens. */
static void all_texts(const struct world *w, const struct text *before, struct texts *out)
{
    float logits[16];
    logits_after(w, before->ids, before->n, logits);
    double total = sample_log_sum(logits, w->vocab);
    for (int v = 0; v < w->vocab; v++) {
        struct text x = *before;
        if (logits[v] == -INFINITY) continue;
        x.ids[x.n++] = v;
        x.sum += (double)logits[v] - total;
        x.why = end_of((void *)(uintptr_t)w, x.ids, x.n);
        if (x.why == BEAM_GOES_ON && x.n == w->most) x.why = BEAM_LENGTH;
        if (x.why == BEAM_GOES_ON) {
            all_texts(w, &x, out);
            continue;
        }
        x.score = x.sum / pow(x.n, w->penalty);
        assert_true(out->n < TEXTS);
        out->t[out->n++] = x;
    }
}

/* Best first; equal ones stay in the order in which they came. */
static void sort_by(struct text *t, int n, bool score)
{
    for (int i = 1; i < n; i++) {
        struct text x = t[i];
        int k = i;
        for (; k > 0 && (score ? t[k - 1].score < x.score : t[k - 1].sum < x.sum); k--) t[k] = t[k - 1];
        t[k] = x;
    }
}

/* The same search with everything kept, to the greatest length. */
static void plain_search(const struct world *w, int width, struct texts *found)
{
    static const struct text none;
    struct text *live = xcalloc((size_t)width, sizeof *live), *next = xcalloc((size_t)width * 16, sizeof *next);
    int n = 1;
    live[0] = none;
    found->n = 0;
    for (int length = 1; length <= w->most && n; length++) {
        int m = 0, goes_on = 0;
        for (int i = 0; i < n; i++) {
            float logits[16];
            logits_after(w, live[i].ids, live[i].n, logits);
            double total = sample_log_sum(logits, w->vocab);
            for (int v = 0; v < w->vocab; v++) {
                if (logits[v] == -INFINITY) continue;
                struct text x = live[i];
                x.ids[x.n++] = v;
                x.sum += (double)logits[v] - total;
                x.why = end_of((void *)(uintptr_t)w, x.ids, x.n);
                if (x.why == BEAM_GOES_ON && x.n == w->most) x.why = BEAM_LENGTH;
                next[m++] = x;
            }
        }
        sort_by(next, m, false);
        for (int i = 0; i < m && i < 3 * width && goes_on < width; i++) {
            if (next[i].why == BEAM_GOES_ON) live[goes_on++] = next[i];
            else if (i < width) {
                next[i].score = next[i].sum / pow(next[i].n, w->penalty);
                found->t[found->n++] = next[i];
            }
        }
        n = goes_on;
    }
    sort_by(found->t, found->n, true);
    xfree(live);
    xfree(next);
}

/* ---- what is found ---- */

/* Follows parents and tokens with texts of its own, as a cache would; how many steps. */
static int run(const struct world *w, struct beams *b)
{
    struct text *live = xcalloc(BEAM_MOST, sizeof *live), *next = xcalloc(BEAM_MOST, sizeof *next);
    float *logits = xcalloc(BEAM_MOST * 16, sizeof *logits);
    struct err e = {0};
    int steps = 0;
    for (; beams_live(b); steps++) {
        for (int i = 0; i < beams_live(b); i++)
            logits_after(w, live[i].ids, live[i].n, logits + (ptrdiff_t)i * w->vocab);
        if (beams_step(b, logits, &e)) fail_msg("%s", e.text);
        for (int i = 0; i < beams_live(b); i++) {
            next[i] = live[beams_parent(b, i)];
            next[i].ids[next[i].n++] = beams_token(b, i);
        }
        memcpy(live, next, BEAM_MOST * sizeof *live);
        assert_true(steps < LONGEST);
    }
    xfree(live);
    xfree(next);
    xfree(logits);
    return steps;
}

static struct beams *search(struct world *w, int width, int n_ends, int *steps)
{
    struct beams *b = beams_new(&(struct beam_config){.width = width,
                                                      .n_ends = n_ends,
                                                      .vocab = w->vocab,
                                                      .most = w->most,
                                                      .length_penalty = w->penalty,
                                                      .end = end_of,
                                                      .ctx = w});
    *steps = run(w, b);
    return b;
}

static void expect_found(const struct beams *b, const struct texts *want, int width, bool order, const char *what)
{
    int n = want->n < width ? want->n : width;
    assert_int_equal(beams_found(b), n);
    for (int i = 0; i < n; i++) {
        struct beam_found f = beams_best(b, i);
        const struct text *x = &want->t[i];
        bool same = f.n == x->n && f.why == x->why && !memcmp(f.ids, x->ids, (size_t)x->n * sizeof *f.ids);
        if (f.score != x->score || (order && (!same || f.logprob != x->sum)))
            fail_msg("%s: text %d of %d tokens, score %.17g, wanted %d, %.17g", what, i, (int)f.n, f.score, x->n,
                     x->score);
    }
}

static const double penalty[] = {1, 0, -1, 0.5, 2};

/* Sums are added in the same order there and here, so scores are equal to the bit. */
static void test_all_texts(void **state)
{
    (void)state;
    static const struct text none;
    static const struct {
        int vocab, most, width;
    } size[] = {{3, 5, 81}, {2, 8, 128}, {5, 4, 256}, {4, 1, 4}, {1, 4, 3}};
    struct texts *want = xcalloc(1, sizeof *want);
    for (int i = 0; i < 150; i += CASE_STRIDE) {
        int k = i % 5, steps;
        struct world w = {.seed = (uint64_t)i + 1,
                          .vocab = size[k].vocab,
                          .most = size[k].most,
                          .levels = i % 2 ? 2 : 0,
                          .stops = i % 3 == 0,
                          .penalty = penalty[i / 5 % 5]};
        want->n = 0;
        all_texts(&w, &none, want);
        sort_by(want->t, want->n, true);
        struct beams *b = search(&w, size[k].width, 1, &steps);
        expect_found(b, want, size[k].width, !w.levels, "all texts"); /* among equal ones another may come first */
        beams_free(b);
    }
    xfree(want);
}

static void test_narrow(void **state)
{
    (void)state;
    struct texts *want = xcalloc(1, sizeof *want);
    int early = 0;
    for (int i = 0; i < 1500; i += CASE_STRIDE) {
        int steps, width = 1 + i % 7;
        struct world w = {.seed = (uint64_t)i + 1000,
                          .vocab = 2 + i % 11,
                          .most = LONGEST - i % 4,
                          .levels = i % 3 ? 3 : 0,
                          .stops = i % 5 == 0,
                          .penalty = penalty[i % 5]};
        plain_search(&w, width, want);
        struct beams *b = search(&w, width, 2, &steps);
        expect_found(b, want, width, true, "narrow");
        early += steps < w.most;
        beams_free(b);
    }
    assert_true(early > 100 / CASE_STRIDE); /* else nothing is known of ends before the greatest length */
    xfree(want);
}

static void test_wrong_logits(void **state)
{
    (void)state;
    struct world w = {.vocab = 4, .most = 3, .penalty = 1};
    const float wrong[][4] = {{0, NAN, 0, 0}, {0, 0, INFINITY, 0}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    for (size_t i = 0; i < 3; i++) {
        struct err e = {0};
        struct beams *b = beams_new(
            &(struct beam_config){.width = 2, .vocab = 4, .most = 3, .length_penalty = 1, .end = end_of, .ctx = &w});
        assert_int_equal(beams_step(b, wrong[i], &e), ERR_NUMERIC);
        assert_non_null(strstr(e.text, "logits"));
        assert_int_equal(beams_found(b), 0);
        beams_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_texts), cmocka_unit_test(test_narrow),
                                       cmocka_unit_test(test_wrong_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
