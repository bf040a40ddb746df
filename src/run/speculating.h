/* SPDX-License-Identifier: Apache-2.0 */
/* speculating.h: one text written several tokens a step: a draft guesses the next ones, and the model looks at all of
 * them at once (run/speculate.h says which it takes).
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
#ifndef TUTTI_RUN_SPECULATING_H
#define TUTTI_RUN_SPECULATING_H

#include "run/decoding.h"
#include "run/sample.h"
#include "token/tokens.h"

enum { SPECULATING_MOST = 64 }; /* guesses of a step */

struct speculating_options {
    struct decoding *draft; /* NULL: the text itself; borrowed, with a sequence that is free */
    int64_t guesses;        /* of a step at most, 1 .. SPECULATING_MOST */
    struct sample_spec sample;
};
struct speculating_counts {
    int64_t guessed, taken;
};

struct speculating;
/* sequence: of the model `d`; borrowed.
 *   fails   ERR_REQUEST: a model keeps states of a whole text, which do not go back; or the vocabularies differ */
int speculating_new(struct speculating **out, struct decoding *d, int sequence, const struct speculating_options *o,
                    struct err *e);
void speculating_free(struct speculating *s); /* NULL is fine */

/* text: all tokens up to now, of which the model was fed all but the last. The next ones into next[], at most `most`
 * (>= 1), room for SPECULATING_MOST + 1; *n of them, at least one. */
int speculating_next(struct speculating *s, const struct tokens *text, int64_t most, int32_t *next, int64_t *n,
                     struct err *e);
struct speculating_counts speculating_counts(const struct speculating *s);

#endif
