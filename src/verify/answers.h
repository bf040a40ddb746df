/* SPDX-License-Identifier: Apache-2.0 */
/* answers.h: whether what writes answers in a run of rewards (decode/rollout.h) and what learns from them are one
 * model: every rank writes answers to the beginnings of a batch's sequences, and the training's forward of this layout
 * is asked for the log-probabilities of the same tokens.
 *
 * Where a rank holds whole layers (dp, zero, pp) they are the same bits. Over tp and cp the training adds in another
 * order than the rank that writes, and the two differ by rounding (answers_bound). With the same weights a rank of any
 * layout writes what one rank writes, to the bit, and so with initial values, which are a function of their place.
 *
 * Floor 11; may use run/. Order: as stated.
 */
#ifndef TUTTI_VERIFY_ANSWERS_H
#define TUTTI_VERIFY_ANSWERS_H

#include "config/config.h"
#include "site/site.h"

struct answers_found { /* over all ranks and all times they were compared */
    int64_t tokens;    /* compared by each; 0: nothing was */
    int64_t unlike;    /* of a rank at most: whose bits are others in training */
    double most;       /* by how many nats at most */
    uint64_t written;  /* hash of the tokens and their nats, as rank 0 wrote them with the initial weights */
    bool apart;        /* a rank wrote something else than rank 0 */
};
/* How far apart they may be, in nats; 0: not at all. */
double answers_bound(const struct config *c);

struct answers;
/* tokens: [global][seq], whose beginnings are the prompts; borrowed, as all else. */
int answers_new(struct answers **out, const struct config *c, struct site *at, const int32_t *tokens, struct err *e);
void answers_free(struct answers *x); /* NULL is fine */
/* With the weights as they are. Collective(world) */
int answers_compare(struct answers *x, struct answers_found *f, struct err *e);

#endif
