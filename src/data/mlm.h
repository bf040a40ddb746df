/* SPDX-License-Identifier: Apache-2.0 */
/* mlm.h: tokens of a sample are hidden, and what they were is what a model has to tell (Devlin et al. 2019, *BERT*): of
 * the tokens of its documents a share is chosen; of those most become the mask token, some another token by chance, and
 * the rest stay what they are.
 *
 * Which ones, and what they become, is a pure function of (seed, sample of the order, place in the sample): another in
 * every epoch (Liu et al. 2019, *RoBERTa*), the same in every layout and after a stop. What the tokenizer puts
 * before a text, ends of text, padding and what a loss mask leaves out are never chosen.
 * Includes: base, tokenizer.h. Order: Local; read-only and shared.
 */
#ifndef TUTTI_DATA_MLM_H
#define TUTTI_DATA_MLM_H

#include <stdint.h>

#include "base/err.h"
#include "token/tokenizer.h"

struct mlm_rule {
    double rate;         /* of the tokens; 0: none, and nothing below counts */
    double mask, random; /* shares of those that become the mask token, another token; together at most 1 */
    const char *token;   /* the mask token by name; NULL: [MASK] or <mask>, which the tokenizer has */
    int64_t id;          /* >= 0: by its number instead, which the tokenizer need not have */
};
struct mlm {
    double rate, mask, random;
    int32_t id, n_vocab;
};
/* ERR_REQUEST: the tokenizer has no such token. */
int mlm_init(struct mlm *m, const struct mlm_rule *rule, const struct tokenizer *t, struct err *e);

/* ids [n] of a sample, in place; targets [n]: comes in as what may be hidden (the id, or -1), and goes out as what was,
 * -1 elsewhere. Returns how many were. */
int64_t mlm_apply(const struct mlm *m, uint64_t seed, int64_t sample, int32_t *ids, int32_t *targets, int64_t n);

#endif
