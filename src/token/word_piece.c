/* SPDX-License-Identifier: Apache-2.0 */
/* word_piece.c: greedy, one look-up per character and token, behind a cache of words. */
#include "token/word_piece.h"

#include "text/utf8.h"

static bool too_long(const struct word_piece *w, const unsigned char *p, size_t n)
{
    int64_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += (p[i] & 0xC0) != 0x80;
    return chars > w->longest_word;
}

/* The longest token that p[at..n) begins with: its id and end, or -1. */
static int32_t longest(const struct word_piece *w, struct str *scratch, const unsigned char *p, size_t at, size_t n,
                       size_t *end)
{
    size_t affix = at ? w->prefix.n : 0, room = w->longest_token > affix ? w->longest_token - affix : 0;
    *end = n - at > room ? utf8_cut(p, at + room) : n;
    str_clear(scratch);
    if (affix) str_add(scratch, w->prefix.p, affix);
    if (*end > at) str_add(scratch, p + at, *end - at);
    for (; *end > at; *end = utf8_cut(p, *end - 1)) {
        int32_t id = piece_map_get(w->ids, (const unsigned char *)scratch->p, affix + *end - at);
        if (id >= 0) return id;
    }
    return -1;
}

static void cut_word(const struct word_piece *w, struct str *scratch, const unsigned char *p, size_t n,
                     struct tokens *out)
{
    int64_t before = out->n;
    if (w->whole_words) {
        int32_t id = piece_map_get(w->ids, p, n);
        tokens_push(out, id >= 0 ? id : w->unknown);
        return;
    }
    bool bad = too_long(w, p, n);
    for (size_t at = 0, end; at < n && !bad; at = end) {
        int32_t id = longest(w, scratch, p, at, n, &end);
        bad = id < 0;
        if (!bad) tokens_push(out, id);
    }
    if (!bad) return;
    out->n = before;
    tokens_push(out, w->unknown);
}

void word_piece_encode(const struct word_piece *w, struct token_cache *cache, struct str *scratch,
                       const unsigned char *p, size_t n, struct tokens *out)
{
    if (token_cache_get(cache, p, n, out)) return;
    int64_t before = out->n;
    cut_word(w, scratch, p, n, out);
    token_cache_put(cache, p, n, out->ids + before, out->n - before);
}
