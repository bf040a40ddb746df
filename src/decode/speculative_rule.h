/* SPDX-License-Identifier: Apache-2.0 */
/* speculative_rule.h: which of the tokens that somebody guessed a model takes for its own, and what it says instead of
 * the first that it does not (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding").
 *
 * A guess x was drawn by the law q, and the model's own law at that place is p. It is taken with probability
 * min(1, p(x) / q(x)); where it is not, the token is drawn by max(p - q, 0) over its sum. Then the token's law is p:
 *
 *     q(x) min(1, p(x) / q(x)) + (1 - sum_y min(p(y), q(y))) max(p(x) - q(x), 0) / sum_y max(p(y) - q(y), 0)
 *         = min(p(x), q(x)) + max(p(x) - q(x), 0) = p(x),
 *
 * since the sum of max(p - q, 0) is 1 less the sum of min(p, q). Where p is one token for sure (temperature 0) a guess
 * is taken when it is that one, and that one is said instead, whatever the random numbers are.
 *
 * Includes: base only. Order: Local.
 */
#ifndef TUTTI_DECODE_SPECULATIVE_RULE_H
#define TUTTI_DECODE_SPECULATIVE_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* p, q: of the guess; u: uniform in [0, 1), and of nothing else. */
bool speculate_takes(double p, double q, double u);
/* The token in place of a guess that was not taken; u: another number. q_V NULL: the guess was no draw, all of q is at
 * `guess`. Where rounding has left nothing of max(p - q, 0), p and q are equal, and it is a draw by p. */
int64_t speculate_instead(const double *p_V, const double *q_V, int64_t n, int64_t guess, double u);

/* A guess at what comes after the n tokens without any model (Saxena 2023, "Prompt Lookup Decoding"): what came after
 * the latest earlier place where the last three tokens stood, or the last two, or the last one. How many were guessed,
 * at most `most`; O(n). */
int64_t speculate_lookup(const int32_t *ids, int64_t n, int32_t *guess, int64_t most);

#endif
