/* SPDX-License-Identifier: Apache-2.0 */
/* train_style.h: how text is cut before a vocabulary is learnt from it, as published with models: a row per style.
 * Includes: base, tokenizer_impl.h. Order: Local.
 */
#ifndef TUTTI_TOKEN_TRAIN_STYLE_H
#define TUTTI_TOKEN_TRAIN_STYLE_H

#include "base/err.h"
#include "token/tokenizer_impl.h"

#define TRAIN_EOS "<|endoftext|>"
#define TRAIN_STYLES "gpt2|llama3|qwen2|deepseek"
enum { TRAIN_SPLITS = 3 };

struct train_style {
    const char *name;
    const char *const *splits[TRAIN_SPLITS]; /* expressions, each cuts the pieces of the one before; NULL: no more */
};
/* ERR_REQUEST: no such style. */
int train_style_find(const struct train_style **s, const char *name, struct err *e);
/* Its expressions; how many there are. */
int train_style_splits(const struct train_style *s, const char *out[TRAIN_SPLITS]);
/* Cutting by n expressions, with TRAIN_EOS left out of the text. */
void train_rules_init(struct cut_rules *r, const char *const *splits, int n);
void train_rules_fini(struct cut_rules *r);

#endif
