/* SPDX-License-Identifier: Apache-2.0 */
/* token_cache.c: one line per hash, in a table for short words and one for longer ones. Rejected: a cache that keeps
 * every word (memory grows with the text). */
#include "token/token_cache.h"

#include "base/mem.h"

struct token_cache *token_cache_new(void) { return xcalloc(1, sizeof(struct token_cache)); }

void token_cache_free(struct token_cache *c) { xfree(c); }

bool token_cache_get_longer(const struct token_cache *c, const unsigned char *p, size_t n, struct tokens *out)
{
    if (n > TOKEN_LONG_BYTES) return false;
    const struct token_long_line *l = &c->longer[token_line_of(p, n, TOKEN_LONG_BITS)];
    if (l->n_bytes != n || memcmp(l->text, p, n)) return false;
    tokens_reserve(out, TOKEN_LONG_IDS);
    memcpy(out->ids + out->n, l->ids, sizeof l->ids);
    out->n += l->n_ids;
    return true;
}

static void put_longer(struct token_cache *c, const unsigned char *p, size_t n, const int32_t *ids, int64_t n_ids)
{
    if (n > TOKEN_LONG_BYTES || n_ids > TOKEN_LONG_IDS) return;
    struct token_long_line *l = &c->longer[token_line_of(p, n, TOKEN_LONG_BITS)];
    l->n_bytes = (unsigned char)n;
    l->n_ids = (unsigned char)n_ids;
    memcpy(l->text, p, n);
    if (n_ids) memcpy(l->ids, ids, (size_t)n_ids * sizeof *ids);
}

void token_cache_put(struct token_cache *c, const unsigned char *p, size_t n, const int32_t *ids, int64_t n_ids)
{
    if (n > TOKEN_CACHE_BYTES) {
        put_longer(c, p, n, ids, n_ids);
        return;
    }
    if (n == 0 || n_ids > TOKEN_CACHE_IDS) return;
    struct token_line *l = &c->lines[token_line_of(p, n, TOKEN_CACHE_BITS)];
    l->n_bytes = (unsigned char)n;
    l->n_ids = (unsigned char)n_ids;
    memcpy(l->text, p, n);
    if (n_ids) memcpy(l->ids, ids, (size_t)n_ids * sizeof *ids);
}
