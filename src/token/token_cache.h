/* SPDX-License-Identifier: Apache-2.0 */
/* token_cache.h: words repeat, so what a model made of a short piece is kept: one line of 64 bytes a word,
 * direct-mapped, so that memory does not grow and results do not depend on what came before. Includes: base, tokens.h.
 * Order: Local; belongs to one thread and serves one model.
 */
#ifndef TUTTI_TOKEN_TOKEN_CACHE_H
#define TUTTI_TOKEN_TOKEN_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "token/tokens.h"

struct token_cache;
struct token_cache *token_cache_new(void);
void token_cache_free(struct token_cache *c); /* NULL is fine */
/* Adds the ids of the piece p[0..n) when they are known. */
bool token_cache_get(const struct token_cache *c, const unsigned char *p, size_t n, struct tokens *out);
/* The piece became ids[0..n_ids); kept when both are short. */
void token_cache_put(struct token_cache *c, const unsigned char *p, size_t n, const int32_t *ids, int64_t n_ids);

#endif
