/* SPDX-License-Identifier: Apache-2.0 */
/* added.c: leftmost-longest search for a few hundred words.
 *
 * Tokens are sorted by first byte. A position is looked at only when its byte and the next begin some token, and then
 * the bytes that all tokens with that beginning share ("<|" for most vocabularies) are compared once before the tokens
 * themselves. When all tokens begin alike, memchr does the walking. A general multi-pattern automaton was not
 * worth it: candidates are rare in real text.
 */
#include "token/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

void added_put(struct added *a, const struct added_token *t)
{
    CHECK(t->n > 0, "an added token without text");
    GROW(a->tokens, a->n, a->room, 1);
    struct added_token *own = &a->tokens[a->n++];
    *own = *t;
    own->text = xmalloc(t->n + 1);
    memcpy(own->text, t->text, t->n);
    own->text[t->n] = 0;
}

static int by_first_byte_then_length(const void *x, const void *y)
{
    const struct added_token *a = x, *b = y;
    int first = (unsigned char)a->text[0] - (unsigned char)b->text[0];
    if (first) return first;
    if (a->n != b->n) return a->n > b->n ? -1 : 1;
    return memcmp(a->text, b->text, a->n);
}

void added_finish(struct added *a)
{
    if (a->n) qsort(a->tokens, (size_t)a->n, sizeof *a->tokens, by_first_byte_then_length);
    int i = 0;
    for (int c = 0; c < 256; c++) {
        a->first[c] = i;
        size_t common = 0;
        for (; i < a->n && (unsigned char)a->tokens[i].text[0] == c; i++) {
            const struct added_token *t = &a->tokens[i], *head = &a->tokens[a->first[c]];
            size_t same = 0;
            if (i == a->first[c]) common = t->n;
            while (same < common && same < t->n && t->text[same] == head->text[same]) same++;
            common = same;
            if (t->n > a->longest) a->longest = t->n;
            if (t->strip_before) a->any_strips_before = true;
            for (int second = t->n > 1 ? (unsigned char)t->text[1] : 0; second < 256; second++) {
                a->pairs[c][second / 64] |= (uint64_t)1 << second % 64;
                if (t->n > 1) break;
            }
        }
        a->common[c] = (uint16_t)(common < UINT16_MAX ? common : UINT16_MAX);
    }
    a->first[256] = i;
}

const struct added_token *added_twice(const struct added *a, const struct added *b, const struct added_token **other)
{
    for (int i = 0; i < a->n; i++) {
        const struct added_token *t = &a->tokens[i];
        int c = (unsigned char)t->text[0];
        for (int k = b->first[c]; k < b->first[c + 1]; k++) {
            *other = &b->tokens[k];
            if (*other != t && (*other)->n == t->n && !memcmp((*other)->text, t->text, t->n)) return t;
        }
    }
    return NULL;
}

void added_fini(struct added *a)
{
    for (int i = 0; i < a->n; i++) xfree(a->tokens[i].text);
    xfree(a->tokens);
    *a = (struct added){0};
}

/* The next position in p[at..end) whose byte begins some token; end when there is none. */
static size_t next_candidate(const struct added *a, const unsigned char *p, size_t at, size_t end)
{
    int c = (unsigned char)a->tokens[0].text[0];
    if (a->first[c + 1] == a->n) {
        const unsigned char *hit = memchr(p + at, c, end - at);
        return hit ? (size_t)(hit - p) : end;
    }
    while (at < end && a->first[p[at]] == a->first[p[at] + 1]) at++;
    return at;
}

const struct added_token *added_find(const struct added *a, const unsigned char *p, size_t from, size_t n, bool final,
                                     size_t *at, size_t *sure)
{
    size_t end = n;
    if (!final && a->n) end = n >= a->longest ? n - a->longest + 1 : 0; /* a token starting later may go on beyond n */
    if (end < from) end = from;
    *sure = end;
    for (size_t i = from; a->n && i < end; i++) {
        i = next_candidate(a, p, i, end);
        if (i == end) break;
        if (i + 1 < n && !(a->pairs[p[i]][p[i + 1] / 64] >> p[i + 1] % 64 & 1)) continue;
        size_t common = a->common[p[i]];
        if (n - i < common || memcmp(p + i, a->tokens[a->first[p[i]]].text, common)) continue;
        for (int k = a->first[p[i]]; k < a->first[p[i] + 1]; k++) {
            const struct added_token *t = &a->tokens[k];
            if (n - i < t->n || memcmp(p + i, t->text, t->n)) continue;
            *at = i;
            return t;
        }
    }
    return NULL;
}
