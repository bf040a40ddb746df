/* SPDX-License-Identifier: Apache-2.0 */
/* beam.h: the likeliest of many ways to go on with a text, which are kept side by side (beam search).
 *
 * A hypothesis is the tokens that it adds to the prompt, and the sum of their log-probabilities. In each step every one
 * of the `width` that go on is continued by its likeliest tokens, and of all these candidates, best first, those among
 * the first `width` that are at an end are found, and the first `width` that are not go on. A hypothesis is at an end
 * by its last token, by its text (`end` says), or by its length. What is found is scored by sum / length^penalty,
 * length with the token that ended it, and the best `width` are kept. The search is over when nothing that goes on can
 * still beat the worst of those: sums only fall, so a sum now, by the length that is best for it, bounds what may come
 * of it. With so great a width that no candidate is dropped the best is the best of all texts.
 *
 * Equal candidates: the hypothesis that stood first, then the lower token; of equal scores who was found first. So the
 * outcome is a function of the logits.
 *
 * No model is known here: whoever calls feeds the last token of each hypothesis that goes on, from the cache of the one
 * that it came from. Includes: base. Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_BEAM_H
#define TUTTI_DECODE_BEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { BEAM_MOST = 256 };
enum beam_end { BEAM_GOES_ON, BEAM_END_OF_TEXT, BEAM_STOP, BEAM_LENGTH };

struct beam_config {
    int width;             /* 1 .. BEAM_MOST */
    int n_ends;            /* tokens that end a text: for each, `width` more candidates are looked at (at least once);
                              where texts end in more ways, by `end`, fewer than `width` may go on */
    int64_t vocab, most;   /* tokens of a hypothesis, at least 1 */
    double length_penalty; /* above 0 favours long texts, below 0 short ones; finite */
    enum beam_end (*end)(void *ctx, const int32_t *ids, int64_t n); /* n >= 1; not BEAM_LENGTH */
    void *ctx;
};
struct beam_found {
    const int32_t *ids; /* with the token that ended it */
    int64_t n;
    double logprob, score;
    enum beam_end why;
};

struct beams;
struct beams *beams_new(const struct beam_config *c);
void beams_free(struct beams *b); /* NULL is fine */

/* Hypotheses that go on: at first one, without tokens; 0: the search is over. */
int beams_live(const struct beams *b);
/* A step: logits[beams_live, vocab] of what follows each. ERR_NUMERIC: they are not finite; -inf is legal, never taken.
 */
int beams_step(struct beams *b, const float *logits, struct err *e);
/* Of hypothesis i after a step, best first: which of those before it came from, and its last token. */
int beams_parent(const struct beams *b, int i);
int32_t beams_token(const struct beams *b, int i);

int beams_found(const struct beams *b);                      /* at most width */
struct beam_found beams_best(const struct beams *b, int at); /* 0: the best; valid until the next step */

#endif
