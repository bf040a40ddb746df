/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* Sampling against closed forms: supports of top-k and top-p, frequencies by chi-square, and every draw against a
 * plain sort and inverse distribution function written here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "decode/sampling.h"

static int64_t sample(struct sampler *s, struct sample_spec spec, const float *logits, int64_t position)
{
    int64_t token = -1;
    struct err e = {0};
    if (sample_token(s, &spec, logits, position, &token, &e) != OK) fail_msg("%s", e.text);
    return token;
}

static float normal(uint64_t seed, int64_t i) { return rng_normal(seed, rng_stream("test/sample"), (uint64_t)i); }

/* ---- the specification, by sorting ---- */

struct candidate {
    float logit;
    int64_t id;
};

static int by_likelihood(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    if (a->logit != b->logit) return a->logit < b->logit ? 1 : -1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Probabilities after temperature, top-k and top-p; 0 for what is cut. */
static void specify(const struct sample_spec *spec, const float *logits, int64_t V, double *prob)
{
    struct candidate *c = xcalloc((size_t)V, sizeof *c);
    for (int64_t v = 0; v < V; v++) c[v] = (struct candidate){logits[v], v}, prob[v] = 0;
    qsort(c, (size_t)V, sizeof *c, by_likelihood);
    int64_t n = spec->top_k > 0 && spec->top_k < V ? spec->top_k : V, kept = 0;
    double sum = 0, front = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(((double)c[i].logit - c[0].logit) / spec->temperature);
    while (kept < n && (kept == 0 || front < spec->top_p * sum))
        front += exp(((double)c[kept++].logit - c[0].logit) / spec->temperature);
    for (int64_t i = 0; i < kept; i++)
        prob[c[i].id] = exp(((double)c[i].logit - c[0].logit) / spec->temperature) / front;
    xfree(c);
}

/* Every draw equals the inverse of the specified distribution function at the counter's number; a draw that
 * falls within rounding of a step may land on either side of it. */
static void check_draws(int64_t V, const float *logits, struct sample_spec spec, int64_t n_draws)
{
    struct sampler *s = sampler_new(V);
    double *prob = xcalloc((size_t)V, sizeof *prob);
    specify(&spec, logits, V, prob);
    for (int64_t i = 0; i < n_draws; i++) {
        int64_t got = sample(s, spec, logits, i);
        assert_in_range(got, 0, V - 1);
        double u = rng_uniform(spec.seed, rng_stream("sample"), (uint64_t)i), before = 0;
        for (int64_t v = 0; v < got; v++) before += prob[v];
        assert_true(prob[got] > 0);
        assert_true(u > before - 1e-12 && u < before + prob[got] + 1e-12);
    }
    xfree(prob);
    sampler_free(s);
}

static void test_draws_match_specification(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 7, 50, 1009};
    static const double temperatures[] = {0.1, 1, 1.7}, ps[] = {1e-9, 0.3, 0.9, 0.999, 1};
    static const int64_t ks[] = {0, 2, 5, 40, 1 << 20};
    float logits[1009];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t t = 0; t < 3; t++)
            for (size_t p = 0; p < 5; p++)
                for (size_t k = 0; k < 5; k++) {
                    uint64_t seed = i * 1000 + t * 100 + p * 10 + k;
                    for (int64_t v = 0; v < sizes[i]; v++) logits[v] = 3 * normal(seed, v);
                    struct sample_spec spec = {temperatures[t], ks[k], ps[p], seed};
                    check_draws(sizes[i], logits, spec, 20);
                }
}

static void test_ties_and_orders(void **state)
{
    (void)state;
    float logits[300];
    for (int shape = 0; shape < 4; shape++) {
        for (int v = 0; v < 300; v++) /* few distinct values, ascending, descending, all equal */
            logits[v] = shape == 0 ? roundf(normal(9, v)) : shape == 1 ? v * 0.01f : shape == 2 ? v * -0.01f : 4.5f;
        for (int64_t k = 1; k < 300; k += 37) {
            check_draws(300, logits, (struct sample_spec){1, k, 1, 5}, 50);
            check_draws(300, logits, (struct sample_spec){1, 0, (double)k / 300, 5}, 50);
            check_draws(300, logits, (struct sample_spec){2, k, 0.5, 5}, 50);
        }
    }
}

/* ---- closed forms ---- */

/* The set of tokens seen in many draws, as a bit mask. */
static uint64_t support(struct sample_spec spec, const float *logits, int64_t V)
{
    struct sampler *s = sampler_new(V);
    uint64_t seen = 0;
    for (int64_t i = 0; i < 4000; i++) seen |= (uint64_t)1 << sample(s, spec, logits, i);
    sampler_free(s);
    return seen;
}

static void test_supports(void **state)
{
    (void)state;
    /* probabilities 1/2, 1/4, 1/8, 1/16, 1/16 at ids 3, 0, 4, 1, 2 */
    const float logits[] = {logf(4), 0, 0, logf(8), logf(2)};
    const struct sample_spec all = {1, 0, 1, 3};
    struct sample_spec spec = all;
    assert_int_equal(support(spec, logits, 5), 0x1f);
    spec.top_k = 2;
    assert_int_equal(support(spec, logits, 5), 1 << 3 | 1 << 0);
    spec.top_k = 4; /* the tie at 1/16 goes to the lower id */
    assert_int_equal(support(spec, logits, 5), 1 << 3 | 1 << 0 | 1 << 4 | 1 << 1);
    spec = all, spec.top_p = 0.49;
    assert_int_equal(support(spec, logits, 5), 1 << 3);
    spec.top_p = 0.51; /* the token that crosses p is kept */
    assert_int_equal(support(spec, logits, 5), 1 << 3 | 1 << 0);
    spec.top_p = 0.76;
    assert_int_equal(support(spec, logits, 5), 1 << 3 | 1 << 0 | 1 << 4);
    spec.top_k = 2; /* p is a share of what top-k kept: 2/3 and 1/3 */
    spec.top_p = 0.66;
    assert_int_equal(support(spec, logits, 5), 1 << 3);
    spec.top_p = 0.67;
    assert_int_equal(support(spec, logits, 5), 1 << 3 | 1 << 0);
    const float equal[10] = {0};
    spec = all, spec.top_p = 0.75;
    assert_int_equal(support(spec, equal, 10), 0xff);
}

static double chi_square(struct sample_spec spec, const float *logits, int64_t V, int64_t n, int *freedom)
{
    struct sampler *s = sampler_new(V);
    double *prob = xcalloc((size_t)V, sizeof *prob), *count = xcalloc((size_t)V, sizeof *count), sum = 0;
    specify(&spec, logits, V, prob);
    for (int64_t i = 0; i < n; i++) count[sample(s, spec, logits, i)]++;
    *freedom = -1;
    for (int64_t v = 0; v < V; v++) {
        double want = prob[v] * (double)n;
        if (want == 0) {
            assert_true(count[v] == 0);
            continue;
        }
        assert_true(want > 5);
        sum += (count[v] - want) * (count[v] - want) / want;
        ++*freedom;
    }
    xfree(prob), xfree(count);
    sampler_free(s);
    return sum;
}

static void test_frequencies(void **state)
{
    (void)state;
    float logits[24];
    for (int v = 0; v < 24; v++) logits[v] = normal(77, v);
    static const struct sample_spec specs[] = {{1, 0, 1, 1}, {1, 0, 1, 2},   {0.5, 0, 1, 3},   {3, 0, 1, 4},
                                               {1, 6, 1, 5}, {1, 0, 0.8, 6}, {0.7, 10, 0.9, 7}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        int freedom;
        double chi = chi_square(specs[i], logits, 24, 100000, &freedom);
        /* mean k, variance 2k: within 3.7 deviations on both sides; too even a result would be wrong as well */
        assert_true(freedom > 1);
        assert_true(fabs(chi - freedom) < 3.7 * sqrt(2.0 * freedom));
    }
}

static void test_greedy(void **state)
{
    (void)state;
    const float logits[] = {1, 7, -3, 7, 2};
    struct sampler *s = sampler_new(5);
    for (int64_t i = 0; i < 100; i++) {
        assert_int_equal(sample(s, (struct sample_spec){0, 0, 1, 1}, logits, i), 1); /* the lower of two equals */
        assert_int_equal(sample(s, (struct sample_spec){5, 1, 1, 1}, logits, i), 1);
        assert_int_equal(sample(s, (struct sample_spec){5, 0, 1e-300, 1}, logits, i), 1);
        int64_t cold = sample(s, (struct sample_spec){1e-310, 0, 1, 1}, logits, i); /* nothing overflows */
        assert_true(cold == 1 || cold == 3);
    }
    sampler_free(s);
}

/* The token depends on the counter only: not on earlier calls, other samplers, or a common shift of the logits. */
static void test_same_token_again(void **state)
{
    (void)state;
    enum { V = 500, N = 64 };
    float logits[V], shifted[V];
    int64_t first[N];
    for (int v = 0; v < V; v++) logits[v] = roundf(64 * normal(4, v)) / 64, shifted[v] = logits[v] + 128;
    const struct sample_spec spec = {0.9, 60, 0.95, 11};
    struct sampler *s = sampler_new(V), *other = sampler_new(V);
    int distinct = 0;
    for (int i = 0; i < N; i++) first[i] = sample(s, spec, logits, i);
    for (int i = N - 1; i >= 0; i--) {
        assert_int_equal(sample(other, spec, shifted, i), first[i]);
        distinct += first[i] != first[0];
    }
    assert_true(distinct > N / 2);
    int changed = 0;
    for (int i = 0; i < N; i++) changed += sample(s, (struct sample_spec){0.9, 60, 0.95, 12}, logits, i) != first[i];
    assert_true(changed > N / 2);
    sampler_free(s);
    sampler_free(other);
}

static void test_bad_logits(void **state)
{
    (void)state;
    struct sampler *s = sampler_new(4);
    const struct sample_spec warm = {1, 0, 1, 1}, greedy = {0, 0, 1, 1};
    int64_t token = -7;
    struct err e = {0};
    const float not_a_number[] = {0, 1, NAN, 2}, infinite[] = {0, INFINITY, 1, 2};
    const float nothing[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const float one[] = {-INFINITY, -5, -INFINITY, -INFINITY};
    assert_int_equal(sample_token(s, &warm, not_a_number, 0, &token, &e), ERR_NUMERIC);
    assert_non_null(strstr(e.text, "token 2"));
    assert_int_equal(sample_token(s, &greedy, not_a_number, 0, &token, &e), ERR_NUMERIC);
    assert_int_equal(sample_token(s, &warm, infinite, 0, &token, &e), ERR_NUMERIC);
    assert_non_null(strstr(e.text, "token 1"));
    assert_int_equal(sample_token(s, &warm, nothing, 0, &token, &e), ERR_NUMERIC);
    assert_int_equal(token, -7);
    for (int64_t i = 0; i < 50; i++) {
        assert_int_equal(sample(s, warm, one, i), 1);
        assert_int_equal(sample(s, (struct sample_spec){2, 3, 0.9, 1}, one, i), 1);
    }
    sampler_free(s);
}

static void test_spec_check(void **state)
{
    (void)state;
    static const struct sample_spec bad[] = {
        {-0.1, 0, 1, 0}, {NAN, 0, 1, 0},      {INFINITY, 0, 1, 0}, {1, -1, 1, 0},
        {1, 0, 0, 0},    {1, 0, 1.000001, 0}, {1, 0, NAN, 0},      {1, 0, -0.5, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e = {0};
        assert_int_equal(sample_check(&bad[i], &e), ERR_REQUEST);
        assert_true(strlen(e.text) > 0);
    }
    const struct sample_spec good[] = {{0, 0, 1, 0}, {1, 50, 0.9, 1}, {100, 1, 1e-9, 2}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_int_equal(sample_check(&good[i], NULL), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_match_specification),
        cmocka_unit_test(test_ties_and_orders),
        cmocka_unit_test(test_supports),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_same_token_again),
        cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_spec_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
