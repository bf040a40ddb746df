/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.h: one row of logits to one token.
 *
 * The token is a function of (logits, spec, position) and of nothing else: the random number comes from a
 * counter, so generating position 7 again, alone, or in another batch gives the same token.
 *
 * The distribution, in this order:
 *   1. softmax(logits / temperature); temperature 0 means the largest logit (lowest id among equals);
 *   2. top_k > 0 keeps the k likeliest tokens;
 *   3. top_p < 1 keeps the fewest of those, likeliest first, whose share of what step 2 kept reaches p;
 *   4. a draw in proportion to what is left.
 * "Likeliest first" breaks ties by the lower id, so the kept set is always one definite set.
 *
 * Includes: base only. Order: Local; a sampler serves one thread at a time.
 */
#ifndef TUTTI_DECODE_SAMPLING_H
#define TUTTI_DECODE_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct sample_spec {
    double temperature; /* >= 0, finite */
    int64_t top_k;      /* 0: all */
    double top_p;       /* (0, 1]; 1: all */
    uint64_t seed;
};
/* ERR_REQUEST with what is wrong and what is legal. */
int sample_check(const struct sample_spec *spec, struct err *e);

/* Scratch for rows of n_vocab logits: 12 bytes each. */
struct sampler;
struct sampler *sampler_new(int64_t n_vocab);
void sampler_free(struct sampler *s); /* NULL is fine */

/* Picks the token that follows `position` tokens, from logits[n_vocab]. -inf is legal and never drawn. NaN, +inf
 * or nothing but -inf is ERR_NUMERIC and names the token. The spec must pass sample_check. O(n_vocab) expected. */
int sample_token(struct sampler *s, const struct sample_spec *spec, const float *logits_V, int64_t position,
                 int64_t *token, struct err *e);

/* The probabilities that sample_token draws by, law[n_vocab]: all of them of one token where it takes the likeliest
 * always. Their sum is 1 but for rounding. Fails as sample_token. */
int sample_law(struct sampler *s, const struct sample_spec *spec, const float *logits_V, double *law_V, struct err *e);

/* What changes logits before, by what came before; all zero: nothing does. */
struct sample_before {
    double repetition; /* > 0: of a token that was there, prompt too, a positive logit is divided by it, a negative one
                          multiplied (Keskar et al. 2019); 0 or 1: off */
    double presence;   /* taken off the logit of a token that was written, once */
    double frequency;  /* and as often as it was */
    double min_p;      /* [0, 1]: then tokens less likely than so many times the likeliest, at the temperature, go */
};
int sample_before_check(const struct sample_before *b, struct err *e); /* as sample_check */
bool sample_before_changes(const struct sample_before *b);
/* Changes logits[n_vocab] by the n tokens before, of which the first n_prompt were given. O(n_vocab). */
void sample_before_apply(struct sampler *s, const struct sample_before *b, double temperature, const int32_t *ids,
                         int64_t n, int64_t n_prompt, float *logits_V);

/* Natural logarithms of probabilities, of the plain softmax: log p(id) = logits[id] - sample_log_sum. NaN where logits
 * are not finite. */
double sample_log_sum(const float *logits_V, int64_t n_vocab);
/* The n likeliest tokens, likeliest first, of equal ones the lower id. */
void sample_top(const float *logits_V, int64_t n_vocab, int n, int32_t *id);

#endif
