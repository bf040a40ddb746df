/* SPDX-License-Identifier: Apache-2.0 */
/* speculative.h: one text written several tokens a step: a draft guesses the next ones, and the model looks at all of
 * them at once (decode/speculative_rule.h says which it takes).
 *
 * The draft is a smaller model with the same tokens, or the text itself (speculate_lookup). Whatever it guesses, the
 * law of the text is the model's: the guesses only say how many steps it takes. The token at a place is drawn by
 * numbers that hang on the seed and the place, so a text comes again, and a draft that is the model guesses what the
 * model would have drawn alone. At temperature 0 the text is that without a draft, but where two logits are so near
 * that the rounding of products with more rows tells them apart.
 *
 * Invariants
 *   1. Between two calls the model's sequence has all tokens of the text but the last one, and the draft's a beginning
 *      of them: keys and values of guesses that were not taken are given back.
 *   2. Only the first rank of several calls this; a draft is alone on that rank.
 * Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_SPECULATIVE_H
#define TUTTI_DECODE_SPECULATIVE_H

#include "decode/decoding.h"
#include "decode/sampling.h"
#include "token/tokens.h"

enum { SPECULATIVE_MOST = 64 }; /* guesses of a step */

struct speculative_options {
    struct decoding *draft; /* NULL: the text itself; borrowed, with a sequence that is free */
    int64_t guesses;        /* of a step at most, 1 .. SPECULATIVE_MOST */
    struct sample_spec sample;
};
struct speculative_counts {
    int64_t guessed, taken;
};

struct speculative;
/* sequence: of the model `d`; borrowed.
 *   fails   ERR_REQUEST: a model keeps states of a whole text, which do not go back; or the vocabularies differ */
int speculative_new(struct speculative **out, struct decoding *d, int sequence, const struct speculative_options *o,
                    struct err *e);
void speculative_free(struct speculative *s); /* NULL is fine */

/* text: all tokens up to now, of which the model was fed all but the last. The next ones into next[], at most `most`
 * (>= 1), room for SPECULATIVE_MOST + 1; *n of them, at least one. */
int speculative_next(struct speculative *s, const struct tokens *text, int64_t most, int32_t *next, int64_t *n,
                     struct err *e);
struct speculative_counts speculative_counts(const struct speculative *s);

#endif
