/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_tokens.h: a tokenizer.json as the keys of a GGUF file, in one of its two kinds: byte-level BPE ("gpt2"), whose
 * cutting rule readers know by a name; and BPE over characters with bytes to fall back on, as SentencePiece has it
 * ("llama"), which merges the two neighbours whose result has the best score. What a reader would cut otherwise than
 * the tokenizer does is refused by name. Normal forms (NFC) are left out, and that is said: readers of the format have
 * none. Includes: base, gguf_keys.h. Order: Local.
 */
#ifndef TUTTI_HUB_GGUF_TOKENS_H
#define TUTTI_HUB_GGUF_TOKENS_H

#include "base/err.h"
#include "hub/gguf_keys.h"
#include "hub/hf.h"

/* text: tokenizer.json, n bytes. Tokens are as many as the model's vocabulary; those that it does not have are unused.
 * ERR_REQUEST: a tokenizer that the format cannot say. */
int gguf_tokens(struct gguf_keys *k, const struct hf_model *m, const char *text, size_t n, struct err *e);

#endif
