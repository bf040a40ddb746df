/* SPDX-License-Identifier: Apache-2.0 */
/* token_cache.c: one line per hash. */
#include "token/token_cache.h"

#include <string.h>

#include "base/mem.h"
#include "token/piece_hash.h"

enum { BITS = 14, BYTES = 26, IDS = 9 };

struct line { /* n_bytes 0: empty */
    unsigned char n_bytes, n_ids;
    unsigned char text[BYTES];
    int32_t ids[IDS];
};
_Static_assert(sizeof(struct line) == 64, "a word is one cache line");

struct token_cache {
    struct line lines[1 << BITS];
};

struct token_cache *token_cache_new(void) { return xcalloc(1, sizeof(struct token_cache)); }

void token_cache_free(struct token_cache *c) { xfree(c); }

static size_t line_of(const unsigned char *p, size_t n) { return piece_hash(p, n) >> (64 - BITS); }

bool token_cache_get(const struct token_cache *c, const unsigned char *p, size_t n, struct tokens *out)
{
    if (n == 0 || n > BYTES) return false;
    const struct line *l = &c->lines[line_of(p, n)];
    if (l->n_bytes != n || memcmp(l->text, p, n)) return false;
    tokens_reserve(out, IDS);
    memcpy(out->ids + out->n, l->ids, sizeof l->ids);
    out->n += l->n_ids;
    return true;
}

void token_cache_put(struct token_cache *c, const unsigned char *p, size_t n, const int32_t *ids, int64_t n_ids)
{
    if (n == 0 || n > BYTES || n_ids > IDS) return;
    struct line *l = &c->lines[line_of(p, n)];
    l->n_bytes = (unsigned char)n;
    l->n_ids = (unsigned char)n_ids;
    memcpy(l->text, p, n);
    if (n_ids) memcpy(l->ids, ids, (size_t)n_ids * sizeof *ids);
}
