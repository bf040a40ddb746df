/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_chat.h: what a GGUF file says of conversations: the model's chat template, and the tokens that end a turn beside
 * the one that ends a text. Includes: base, gguf_keys.h, weights.h. Order: Local. */
#ifndef TUTTI_HUB_GGUF_CHAT_H
#define TUTTI_HUB_GGUF_CHAT_H

#include "hub/gguf_keys.h"
#include "hub/weights.h"

/* Reads chat_template.jinja, tokenizer_config.json and tokenizer.json of w; what is not there is not said. */
int gguf_chat(struct gguf_keys *k, const struct weights *w, const struct hf_model *m, struct err *e);

#endif
