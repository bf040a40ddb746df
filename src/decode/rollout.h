/* SPDX-License-Identifier: Apache-2.0 */
/* rollout.h: a model that is being trained writes answers: a second copy of its weights, whole on every rank, laid out
 * for decoding (decoding.h), which is brought up to date by routes from whatever layout trains.
 *
 * What the copy computes for a token has the bits that the training's forward has for it on a rank that holds whole
 * layers: products and attention sum in the same order whatever rows are beside a row (model.by_token, attrs.h:
 * same_rows), and the loss of a token is the same kernel's. So the log-probability of a token is known when it is
 * written. Which token that is follows from the weights, the prompt and the answer's seed alone, on any rank.
 *
 * Floor 8. Order: as stated.
 */
#ifndef TUTTI_DECODE_ROLLOUT_H
#define TUTTI_DECODE_ROLLOUT_H

#include <stdatomic.h>

#include "config/ranks.h"
#include "engine/engine.h"
#include "decode/decoding.h"

struct rollout_config {
    struct engine *engine; /* borrowed, as the next */
    const struct ranks *ranks;
    int64_t positions, sequences; /* of an answer with its prompt at most; at once */
};
struct rollout;
/* Everything is allocated here, on the engine's device, also on one that only counts. Collective(world) */
int rollout_new(struct rollout **out, const struct rollout_config *c, struct err *e);
void rollout_free(struct rollout *x); /* NULL is fine */

struct rollout_ends {                  /* borrowed, all of it */
    const struct tokenizer *tokenizer; /* whose end of a text ends an answer, as these do: */
    const int64_t *eos;
    int n_eos;
    const char *const *stop; /* texts */
    int n_stop;
};
void rollout_end_at(struct rollout *x, const struct rollout_ends *ends); /* once, before the first answer */

/* The engine's weights as they are now. Collective(world). */
int rollout_take_weights(struct rollout *x, struct err *e);

struct rollout_answer {
    const int32_t *prompt; /* borrowed */
    int64_t n_prompt;
    uint64_t seed;
    int64_t like; /* which answer of the list before it has the same prompt; -1: none */
    int32_t *ids; /* [max_tokens], as the next: the caller's. The token that ends it is one of them */
    double *nats;
    int64_t n;  /* tokens: how many it got */
    bool ended; /* by such a token, or by a text; else by its length */
};
/* ERR_SIGNAL: give_up became other than 0. Local. */
int rollout_write(struct rollout *x, struct rollout_answer *a, int64_t n, int64_t max_tokens, const atomic_int *give_up,
                  struct err *e);

#endif
