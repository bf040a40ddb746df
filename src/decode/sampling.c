/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.c: temperature, top-k, top-p and a draw, without sorting the vocabulary.
 *
 * Weights are exp((logit - largest) / temperature) in double: the largest is exactly 1, nothing overflows, and
 * shares of 1e-300 still count. No division by their sum is needed; every comparison is made against a fraction
 * of it.
 *
 * Both cuts ask for a prefix of the tokens in the order (logit down, id up), which is total: no two are equal.
 * One quickselect finds the last token of that prefix; its budget is a number of tokens for top-k and an amount
 * of weight for top-p. Each round partitions around a pivot, adds up the front, and goes on in the half where the
 * budget runs out: O(V) expected, against O(V log V) for a sort (and a heap's O(V log k), which degrades when
 * top-p keeps most of the vocabulary).
 *
 * The draw then walks the tokens in id order and takes those at or before the last one. So a token does not
 * depend on how quickselect left its array, and with no cut no array is needed.
 *
 * Cost: V exponentials dominate, about 1 ms for 128k tokens.
 */
#include "decode/sampling.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>

#include "base/mem.h"
#include "base/rng.h"

struct sampler {
    int64_t n_vocab;
    double *weight_V;
    int32_t *id_V; /* a permutation of the tokens while a cut is being found */
};

/* A prefix of the order above, named by its last token. */
struct prefix {
    int64_t n; /* tokens in it */
    int32_t last;
};

int sample_check(const struct sample_spec *spec, struct err *e)
{
    if (!(spec->temperature >= 0 && spec->temperature <= DBL_MAX))
        return err_set(e, ERR_REQUEST, "temperature %g: choose a number >= 0 (0 always takes the likeliest token)",
                       spec->temperature);
    if (spec->top_k < 0)
        return err_set(e, ERR_REQUEST, "top_k %lld: choose a count >= 1, or 0 for all tokens", (long long)spec->top_k);
    if (!(spec->top_p > 0 && spec->top_p <= 1))
        return err_set(e, ERR_REQUEST, "top_p %g: choose a share above 0 and up to 1 (1 keeps all tokens)",
                       spec->top_p);
    return OK;
}

struct sampler *sampler_new(int64_t n_vocab)
{
    CHECK(n_vocab > 0 && n_vocab <= INT32_MAX, "a vocabulary of %lld tokens", (long long)n_vocab);
    struct sampler *s = xmalloc(sizeof *s);
    s->n_vocab = n_vocab;
    s->weight_V = xcalloc(to_size(n_vocab), sizeof *s->weight_V);
    s->id_V = xcalloc(to_size(n_vocab), sizeof *s->id_V);
    return s;
}

void sampler_free(struct sampler *s)
{
    if (!s) return;
    xfree(s->weight_V);
    xfree(s->id_V);
    xfree(s);
}

static bool comes_before(const float *logits_V, int32_t a, int32_t b)
{
    return logits_V[a] > logits_V[b] || (logits_V[a] == logits_V[b] && a < b);
}

static int find_largest(const float *logits_V, int64_t n, int64_t *at, struct err *e)
{
    int64_t best = 0;
    for (int64_t v = 0; v < n; v++) {
        if (isnan(logits_V[v]) || logits_V[v] == INFINITY)
            return err_set(e, ERR_NUMERIC,
                           "the logit of token %lld is %g: the weights or activations hold NaN or Inf; use an earlier "
                           "checkpoint or fp32",
                           (long long)v, (double)logits_V[v]);
        if (logits_V[v] > logits_V[best]) best = v;
    }
    if (logits_V[best] == -INFINITY) return err_set(e, ERR_NUMERIC, "all %lld logits are -inf", (long long)n);
    *at = best;
    return OK;
}

/* ---- cuts ---- */

static void swap_ids(int32_t *a, int32_t *b)
{
    int32_t t = *a;
    *a = *b;
    *b = t;
}

/* Puts the median of the first, middle and last at id[0], so that sorted rows do not cost O(V^2). */
static void choose_pivot(const float *logits_V, int32_t *id, int64_t n)
{
    int32_t *a = &id[0], *b = &id[n / 2], *c = &id[n - 1];
    if (comes_before(logits_V, *b, *a)) swap_ids(a, b);
    if (comes_before(logits_V, *c, *b)) swap_ids(b, c);
    if (comes_before(logits_V, *b, *a)) swap_ids(a, b);
    swap_ids(a, b);
}

/* id[0..n) around a pivot: returns its final place p, with all before it in id[0..p). */
static int64_t partition(const float *logits_V, int32_t *id, int64_t n)
{
    if (n > 2) choose_pivot(logits_V, id, n);
    int32_t pivot = id[0];
    int64_t lo = 1, hi = n - 1;
    for (;;) {
        while (lo <= hi && comes_before(logits_V, id[lo], pivot)) lo++;
        while (lo <= hi && comes_before(logits_V, pivot, id[hi])) hi--;
        if (lo > hi) break;
        swap_ids(&id[lo++], &id[hi--]);
    }
    swap_ids(&id[0], &id[hi]);
    return hi;
}

/* The shortest prefix of the n tokens in s->id_V whose cost reaches the budget > 0, where a token costs its
 * weight, or 1 if by_count; all n when none does. Leaves the prefix in s->id_V[0 .. result.n). */
static struct prefix find_prefix(struct sampler *s, const float *logits_V, int64_t n, double budget, bool by_count)
{
    int64_t lo = 0, hi = n; /* the last token of the prefix is in id_V[lo, hi) */
    while (hi - lo > 1) {
        int64_t p = lo + partition(logits_V, s->id_V + lo, hi - lo);
        double front = 0;
        for (int64_t i = lo; i < p; i++) front += by_count ? 1 : s->weight_V[s->id_V[i]];
        double pivot = by_count ? 1 : s->weight_V[s->id_V[p]];
        if (front >= budget) {
            hi = p;
        } else if (front + pivot >= budget || p + 1 == hi) {
            lo = p, hi = p + 1;
        } else {
            budget -= front + pivot;
            lo = p + 1;
        }
    }
    return (struct prefix){.n = hi, .last = s->id_V[lo]};
}

static struct prefix cut(struct sampler *s, const struct sample_spec *spec, const float *logits_V)
{
    for (int64_t v = 0; v < s->n_vocab; v++) s->id_V[v] = (int32_t)v;
    struct prefix kept = {.n = s->n_vocab};
    if (spec->top_k > 0 && spec->top_k < s->n_vocab)
        kept = find_prefix(s, logits_V, s->n_vocab, (double)spec->top_k, true);
    if (spec->top_p < 1) {
        double sum = 0;
        for (int64_t i = 0; i < kept.n; i++) sum += s->weight_V[s->id_V[i]];
        kept = find_prefix(s, logits_V, kept.n, spec->top_p * sum, false);
    }
    return kept;
}

/* ---- the draw ---- */

/* The first token, in id order, where the running sum of kept weights passes u times their total. */
static int64_t draw(const struct sampler *s, const float *logits_V, const struct prefix *kept, double u)
{
    double total = 0, passed = 0;
    for (int64_t v = 0; v < s->n_vocab; v++)
        if (!kept || !comes_before(logits_V, kept->last, (int32_t)v)) total += s->weight_V[v];
    for (int64_t v = 0; v < s->n_vocab; v++) {
        if (kept && comes_before(logits_V, kept->last, (int32_t)v)) continue;
        passed += s->weight_V[v];
        if (passed > u * total) return v;
    }
    CHECK(false, "u = %.17g of %.17g was not reached", u, total); /* the sums are the same sum, and u < 1 */
    return -1;
}

/* Weights of all tokens, and what is kept of them. true: all is. */
static bool weigh(struct sampler *s, const struct sample_spec *spec, const float *logits_V, int64_t largest,
                  struct prefix *kept)
{
    for (int64_t v = 0; v < s->n_vocab; v++)
        s->weight_V[v] = exp(((double)logits_V[v] - logits_V[largest]) / spec->temperature);
    bool whole = spec->top_p >= 1 && (spec->top_k == 0 || spec->top_k >= s->n_vocab);
    if (!whole) *kept = cut(s, spec, logits_V);
    return whole;
}

static bool takes_likeliest(const struct sample_spec *spec) { return spec->temperature == 0 || spec->top_k == 1; }

int sample_token(struct sampler *s, const struct sample_spec *spec, const float *logits_V, int64_t position,
                 int64_t *token, struct err *e)
{
    CHECK(sample_check(spec, NULL) == OK, "an unchecked sample_spec");
    int64_t largest = 0;
    int rc = find_largest(logits_V, s->n_vocab, &largest, e);
    if (rc != OK) return rc;
    if (takes_likeliest(spec)) {
        *token = largest;
        return OK;
    }
    struct prefix kept;
    bool whole = weigh(s, spec, logits_V, largest, &kept);
    double u = rng_uniform(spec->seed, rng_stream("sample"), (uint64_t)position);
    *token = draw(s, logits_V, whole ? NULL : &kept, u);
    return OK;
}

int sample_law(struct sampler *s, const struct sample_spec *spec, const float *logits_V, double *law_V, struct err *e)
{
    CHECK(sample_check(spec, NULL) == OK, "an unchecked sample_spec");
    int64_t largest = 0;
    int rc = find_largest(logits_V, s->n_vocab, &largest, e);
    if (rc != OK) return rc;
    if (takes_likeliest(spec)) {
        for (int64_t v = 0; v < s->n_vocab; v++) law_V[v] = v == largest;
        return OK;
    }
    struct prefix kept;
    bool whole = weigh(s, spec, logits_V, largest, &kept);
    double total = 0;
    for (int64_t v = 0; v < s->n_vocab; v++) {
        bool goes = !whole && comes_before(logits_V, kept.last, (int32_t)v);
        total += law_V[v] = goes ? 0 : s->weight_V[v];
    }
    for (int64_t v = 0; v < s->n_vocab; v++) law_V[v] /= total;
    return OK;
}

/* ---- what came before ---- */

int sample_before_check(const struct sample_before *b, struct err *e)
{
    if (!(b->min_p >= 0 && b->min_p <= 1))
        return err_set(e, ERR_REQUEST, "min_p %g: choose a share from 0 (off) to 1", b->min_p);
    if (!(b->repetition >= 0 && b->repetition <= 1e6))
        return err_set(e, ERR_REQUEST, "repetition penalty %g: choose a factor above 0, such as 1.1 (1 is off)",
                       b->repetition);
    if (!(fabs(b->presence) <= 1e6 && fabs(b->frequency) <= 1e6))
        return err_set(e, ERR_REQUEST, "presence penalty %g, frequency penalty %g: choose numbers, 0 is off",
                       b->presence, b->frequency);
    return OK;
}

bool sample_before_changes(const struct sample_before *b)
{
    return (b->repetition > 0 && b->repetition != 1) || b->presence != 0 || b->frequency != 0 || b->min_p > 0;
}

/* Each token once: id_V counts how often it was written, and is -1 when it is done. */
void sample_before_apply(struct sampler *s, const struct sample_before *b, double temperature, const int32_t *ids,
                         int64_t n, int64_t n_prompt, float *logits_V)
{
    int32_t *written_V = s->id_V;
    for (int64_t i = 0; i < n; i++) written_V[ids[i]] = 0;
    for (int64_t i = n_prompt; i < n; i++) written_V[ids[i]]++;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = ids[i], written = written_V[id];
        if (written < 0) continue;
        double x = (double)logits_V[id];
        if (b->repetition > 0) x = x > 0 ? x / b->repetition : x * b->repetition;
        if (written) x -= b->presence + b->frequency * written;
        logits_V[id] = (float)x;
        written_V[id] = -1;
    }
    if (!(b->min_p > 0)) return;
    float max = logits_V[0];
    for (int64_t v = 1; v < s->n_vocab; v++)
        if (logits_V[v] > max) max = logits_V[v];
    double least = (double)max + temperature * log(b->min_p);
    for (int64_t v = 0; v < s->n_vocab; v++)
        if ((double)logits_V[v] < least) logits_V[v] = -INFINITY;
}

double sample_log_sum(const float *logits_V, int64_t n_vocab)
{
    float max = logits_V[0];
    double sum = 0;
    for (int64_t v = 1; v < n_vocab; v++)
        if (logits_V[v] > max) max = logits_V[v];
    for (int64_t v = 0; v < n_vocab; v++) sum += exp((double)logits_V[v] - (double)max);
    return (double)max + log(sum);
}

/* Insertion into the n best: O(V) while few of them change. */
void sample_top(const float *logits_V, int64_t n_vocab, int n, int32_t *id)
{
    int have = 0;
    for (int64_t v = 0; v < n_vocab; v++) {
        if (have == n && (!n || logits_V[v] <= logits_V[id[n - 1]])) continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && logits_V[v] > logits_V[id[at - 1]]; at--) id[at] = id[at - 1];
        id[at] = (int32_t)v;
    }
}
