/* SPDX-License-Identifier: Apache-2.0 */
/* token_cache.h: words repeat, so what a model made of a short piece is kept: one line of 64 bytes a word, of 128 where
 * it is longer (the space at a line's beginning with the word behind it, where that is one piece), direct-mapped, so
 * that memory does not grow and results do not depend on what came before. Includes: base, tokens.h, piece_hash.h.
 * Order: Local; belongs to one thread and serves one model.
 */
#ifndef TUTTI_TOKEN_TOKEN_CACHE_H
#define TUTTI_TOKEN_TOKEN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/piece_hash.h"
#include "token/tokens.h"

enum { TOKEN_CACHE_BITS = 15, TOKEN_CACHE_BYTES = 26, TOKEN_CACHE_IDS = 9 };
enum { TOKEN_LONG_BITS = 13, TOKEN_LONG_BYTES = 62, TOKEN_LONG_IDS = 16 };

struct token_line { /* n_bytes 0: empty */
    unsigned char n_bytes, n_ids;
    unsigned char text[TOKEN_CACHE_BYTES];
    int32_t ids[TOKEN_CACHE_IDS];
};
_Static_assert(sizeof(struct token_line) == 64, "a word is one cache line");

struct token_long_line {
    unsigned char n_bytes, n_ids;
    unsigned char text[TOKEN_LONG_BYTES];
    int32_t ids[TOKEN_LONG_IDS];
};
_Static_assert(sizeof(struct token_long_line) == 128, "a longer word is two cache lines");

struct token_cache {
    struct token_line lines[1 << TOKEN_CACHE_BITS];
    struct token_long_line longer[1 << TOKEN_LONG_BITS];
};
struct token_cache *token_cache_new(void);
void token_cache_free(struct token_cache *c); /* NULL is fine */

static inline size_t token_line_of(const unsigned char *p, size_t n, int bits)
{
    return piece_hash(p, n) >> (64 - bits);
}
bool token_cache_get_longer(const struct token_cache *c, const unsigned char *p, size_t n, struct tokens *out);

/* Adds the ids of the piece p[0..n) when they are known. */
static inline bool token_cache_get(const struct token_cache *c, const unsigned char *p, size_t n, struct tokens *out)
{
    if (n > TOKEN_CACHE_BYTES) return token_cache_get_longer(c, p, n, out);
    if (n == 0) return false;
    const struct token_line *l = &c->lines[token_line_of(p, n, TOKEN_CACHE_BITS)];
    if (l->n_bytes != n || memcmp(l->text, p, n)) return false;
    tokens_reserve(out, TOKEN_CACHE_IDS);
    memcpy(out->ids + out->n, l->ids, sizeof l->ids); /* always nine: cheaper than asking how many */
    out->n += l->n_ids;
    return true;
}

/* The piece became ids[0..n_ids); kept when both are short. */
void token_cache_put(struct token_cache *c, const unsigned char *p, size_t n, const int32_t *ids, int64_t n_ids);

#endif
