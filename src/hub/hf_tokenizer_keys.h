/* SPDX-License-Identifier: Apache-2.0 */
/* hf_tokenizer_keys.h: which keys of a tokenizer_config.json count here. What a tokenizer is stands in tokenizer.json;
 * the file beside it names ends, beginnings and the chat template, and says how their library builds the object around
 * it. Includes: base, weights.h. Order: Local. */
#ifndef TUTTI_HUB_HF_TOKENIZER_KEYS_H
#define TUTTI_HUB_HF_TOKENIZER_KEYS_H

#include "base/err.h"
#include "base/str.h"
#include "hub/weights.h"

/* What of tokenizer_config.json (n bytes of text) gives their library other ids than tokenizer.json (tokens, NULL: it
 * is not at hand), or is a key that tutti does not know: "do_lower_case true, ..."; nothing: out stays as it is. */
int hf_tokenizer_unfollowed(const char *text, size_t n, const char *tokens, size_t n_tokens, struct str *out,
                            struct err *e);
/* The same of a model's files, said in a line. */
void hf_tokenizer_say(const struct weights *w);
/* Whether the table has a row for the key. For tests. */
bool hf_tokenizer_knows(const char *key);

#endif
