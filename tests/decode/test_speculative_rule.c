/* SPDX-License-Identifier: Apache-2.0 */
/* The law of a token that was guessed, taken or replaced is the model's: by computing it. Each choice is a step
 * function of a number in [0, 1), so the width of its steps, found by bisection, is the probability of each outcome,
 * and what comes of all guesses together is compared with the law that it has to be, for laws of every kind: equal
 * ones, ones without a common token, tokens for sure, nearly equal ones. Then draws, by chi-square. */
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
#include "decode/sampling.h"
#include "decode/speculative_rule.h"

enum { MOST = 6 };

/* Where a choice that is made below some number and not above it changes. */
struct choice {
    const double *p, *q; /* q NULL: no draw */
    int64_t n, guess, most;
    bool take;
};

static bool below(const struct choice *c, double u)
{
    if (!c->take) return speculate_instead(c->p, c->q, c->n, c->guess, u) <= c->most;
    return speculate_takes(c->p[c->guess], c->q ? c->q[c->guess] : 1, u);
}

/* The share of [0, 1) below the change. */
static double share(const struct choice *c)
{
    double lo = 0, hi = 1;
    if (!below(c, 0)) return 0;
    if (below(c, nextafter(1, 0))) return 1;
    for (int i = 0; i < 60; i++) {
        double mid = lo + (hi - lo) / 2;
        if (below(c, mid)) lo = mid;
        else hi = mid;
    }
    return hi;
}

/* What the token is, over all guesses and numbers. */
static void outcome(const double *p, const double *q, int64_t n, int64_t sure, double *law)
{
    memset(law, 0, (size_t)n * sizeof *law);
    for (int64_t x = 0; x < n; x++) {
        double weight = q ? q[x] : x == sure, before = 0;
        if (weight == 0) continue;
        struct choice c = {.p = p, .q = q, .n = n, .guess = x, .take = true};
        double taken = share(&c);
        law[x] += weight * taken;
        c.take = false;
        for (c.most = 0; taken < 1 && c.most < n; c.most++) {
            double up_to = share(&c);
            law[c.most] += weight * (1 - taken) * (up_to - before);
            before = up_to;
        }
        if (taken < 1) assert_true(fabs(before - 1) < 1e-12);
    }
}

static void expect_law(const double *p, const double *q, int64_t n, int64_t sure)
{
    double law[MOST];
    outcome(p, q, n, sure, law);
    for (int64_t v = 0; v < n; v++)
        if (!(fabs(law[v] - p[v]) < 1e-12))
            fail_msg("token %d of %d: %.17g, wanted %.17g", (int)v, (int)n, law[v], p[v]);
}

/* Of n tokens, by number i; some of them are 0 where `holes`. */
static void law_of(uint64_t i, int64_t n, bool holes, double *p)
{
    double sum = 0;
    for (int64_t v = 0; v < n; v++) {
        p[v] = rng_uniform(2, i, (uint64_t)v);
        if (holes && rng_u32(3, i, (uint64_t)v) % 2) p[v] = 0;
        if (v == n - 1 && sum + p[v] == 0) p[v] = 1;
        sum += p[v];
    }
    for (int64_t v = 0; v < n; v++) p[v] /= sum;
}

static void test_laws(void **state)
{
    (void)state;
    double p[MOST], q[MOST];
    for (uint64_t i = 0; i < 60; i++)
        for (int64_t n = 1; n <= MOST; n++) {
            law_of(2 * i, n, i % 3 == 1, p);
            law_of(2 * i + 1, n, i % 2 == 1, q);
            expect_law(p, q, n, -1);
            expect_law(p, p, n, -1);
            for (int64_t sure = 0; sure < n; sure++) {
                expect_law(p, NULL, n, sure);
                for (int64_t v = 0; v < n; v++) q[v] = v == sure;
                expect_law(q, p, n, -1); /* the model is sure */
                expect_law(p, q, n, -1); /* the draft is */
            }
        }
}

/* Nearly equal laws: what is left of p is rounding, and something that p has is said all the same. */
static void test_nothing_left(void **state)
{
    (void)state;
    const double p[3] = {0, 0.25, 0.75}, q[3] = {0, 0.25, 0.75}, more[3] = {0.5, 0.25, 0.75};
    for (int i = 0; i <= 100; i++) {
        double u = i == 100 ? nextafter(1, 0) : i / 100.0;
        int64_t a = speculate_instead(p, q, 3, 1, u), b = speculate_instead(p, more, 3, 0, u);
        assert_true(a == (u < 0.25 ? 1 : 2) && b == a);
        assert_false(speculate_takes(0, 0.1, u));
        assert_true(speculate_takes(0.3, 0.3, u) && speculate_takes(0.4, 0.3, u));
    }
}

/* A sampler's law is what it draws by, and speculating with it draws by it too: 30,000 tokens, four laws of the model
 * by two of the draft. Six standard deviations of chi-square are above every value that these seeds give by far. */
static void test_draws(void **state)
{
    (void)state;
    enum { V = 6, N = 30000 };
    static const struct sample_spec spec[] = {{.temperature = 1, .top_p = 1},
                                              {.temperature = 0.5, .top_p = 1, .top_k = 3},
                                              {.temperature = 1.5, .top_p = 0.7},
                                              {.temperature = 0, .top_p = 1}};
    struct sampler *s = sampler_new(V);
    struct err e = {0};
    float model[V], draft[V];
    double p[V], q[V];
    for (int v = 0; v < V; v++) model[v] = rng_normal(5, 1, (uint64_t)v), draft[v] = rng_normal(5, 2, (uint64_t)v);
    for (int k = 0; k < 8; k++) {
        const struct sample_spec *of = &spec[k / 2];
        struct sample_spec draws = {.temperature = 1, .top_p = 1, .top_k = k % 2 ? 4 : 0, .seed = 17};
        long drawn[V] = {0}, said[V] = {0};
        assert_int_equal(sample_law(s, of, model, p, &e), OK);
        assert_int_equal(sample_law(s, &draws, draft, q, &e), OK);
        for (int64_t i = 0; i < N; i++) {
            int64_t x, y;
            assert_int_equal(sample_token(s, of, model, i, &y, &e), OK);
            drawn[y]++;
            assert_int_equal(sample_token(s, &draws, draft, i, &x, &e), OK);
            if (!speculate_takes(p[x], q[x], rng_uniform(18, (uint64_t)k, (uint64_t)i)))
                x = speculate_instead(p, q, V, x, rng_uniform(19, (uint64_t)k, (uint64_t)i));
            said[x]++;
        }
        double chi[2] = {0}, sum = 0;
        int kinds = 0;
        for (int v = 0; v < V; v++) {
            sum += p[v];
            if (p[v] == 0) assert_true(!drawn[v] && !said[v]);
            if (p[v] == 0) continue;
            double want = p[v] * N;
            kinds++;
            chi[0] += ((double)drawn[v] - want) * ((double)drawn[v] - want) / want;
            chi[1] += ((double)said[v] - want) * ((double)said[v] - want) / want;
        }
        assert_true(fabs(sum - 1) < 1e-12);
        double most = kinds - 1 + 6 * sqrt(2 * (kinds - 1));
        for (int j = 0; j < 2; j++)
            if (!(chi[j] <= most)) fail_msg("case %d, %s: chi-square %g of %g", k, j ? "said" : "drawn", chi[j], most);
    }
    model[2] = NAN;
    assert_int_equal(sample_law(s, &spec[0], model, p, &e), ERR_NUMERIC);
    sampler_free(s);
}

static void test_lookup(void **state)
{
    (void)state;
    static const struct {
        int32_t ids[10];
        int64_t n, most;
        int32_t want[6];
        int64_t found;
    } row[] = {
        {{1, 2, 3, 4, 1, 2, 3}, 7, 2, {4, 1}, 2},           /* three tokens again */
        {{1, 2, 3, 4, 1, 2, 3}, 7, 6, {4, 1, 2, 3}, 4},     /* no more than there is */
        {{7, 2, 3, 5, 9, 2, 3, 6, 2, 3}, 10, 1, {6}, 1},    /* two: the latest place */
        {{1, 2, 3, 8, 2, 3, 9, 1, 2, 3}, 10, 2, {8, 2}, 2}, /* three before two, which stand later */
        {{5, 6, 5, 7, 5}, 5, 3, {7, 5}, 2},                 /* one */
        {{4, 4, 4, 4}, 4, 3, {4}, 1},                       /* places may overlap */
        {{1, 2, 3, 4, 5}, 5, 3, {0}, 0},                    /* nothing was there */
        {{9}, 1, 3, {0}, 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int32_t got[6];
        int64_t n = speculate_lookup(row[i].ids, row[i].n, got, row[i].most);
        if (n != row[i].found || memcmp(got, row[i].want, (size_t)n * sizeof *got))
            fail_msg("row %zu: %d guesses, the first %d", i, (int)n, n ? got[0] : -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_laws), cmocka_unit_test(test_nothing_left),
                                       cmocka_unit_test(test_draws), cmocka_unit_test(test_lookup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
