/* SPDX-License-Identifier: Apache-2.0 */
/* shingles.c: a polynomial over the hashes of the last n words, moved along the text: the word that leaves is taken
 * off, the one that comes is added, so a shingle costs two multiplications whatever n is; a finaliser spreads it.
 */
#include "curate/shingles.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "curate/normal.h"
#include "curate/sorter.h"

#define BASE 0x9E3779B97F4A7C15u /* odd, of the golden ratio */

int shingles_parse(struct shingles *s, const char *text)
{
    char *end;
    bool chars = str_starts(text, "chars:");
    if (!chars && !str_starts(text, "words:")) return -1;
    const char *digits = text + 6;
    long n = strtol(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || *end || n < 1 || n > SHINGLE_MOST) return -1;
    s->chars = chars;
    s->n = (int)n;
    return 0;
}

static uint64_t spread(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

/* The next word or character at text[at..n): its end. */
static size_t unit_end(const struct shingles *s, size_t at)
{
    size_t n = s->text.n;
    if (s->chars) {
        for (at++; at < n && ((unsigned char)s->text.p[at] & 0xC0) == 0x80; at++) continue;
        return at;
    }
    const char *space = memchr(s->text.p + at, ' ', n - at);
    return space ? (size_t)(space - s->text.p) : n;
}

void shingles_of(struct shingles *s, const char *text, size_t n)
{
    str_clear(&s->text);
    s->count = 0;
    normal_add(NORMAL_WORDS, text, n, &s->text);
    uint64_t ring[SHINGLE_MOST], sum = 0, leaving = 1;
    for (int i = 0; i < s->n; i++) leaving *= BASE;
    int64_t seen = 0;
    for (size_t at = 0; at < s->text.n;) {
        size_t end = unit_end(s, at);
        uint64_t h = hash64(s->text.p + at, end - at), *place = &ring[seen % s->n];
        sum = sum * BASE + h - (seen >= s->n ? *place * leaving : 0);
        *place = h;
        at = s->chars ? end : end + 1;
        if (++seen < s->n) continue;
        GROW(s->hash, s->count, s->room, 1);
        s->hash[s->count++] = spread(sum);
    }
    if (seen > 0 && seen < s->n) {
        GROW(s->hash, s->count, s->room, 1);
        s->hash[s->count++] = spread(sum);
    }
}

void shingles_free(struct shingles *s)
{
    xfree(s->hash);
    str_free(&s->text);
    s->hash = NULL;
    s->count = s->room = 0;
}

void shingles_settle(struct shingles *s)
{
    size_t n = 0;
    records_sort(s->hash, (int64_t)s->count, 1, 1);
    for (size_t i = 0; i < s->count; i++)
        if (!n || s->hash[n - 1] != s->hash[i]) s->hash[n++] = s->hash[i];
    s->count = n;
}

double shingles_jaccard(const struct shingles *a, const struct shingles *b)
{
    size_t i = 0, j = 0, both = 0;
    while (i < a->count && j < b->count) {
        both += a->hash[i] == b->hash[j];
        size_t next = i + (a->hash[i] <= b->hash[j]);
        j += b->hash[j] <= a->hash[i];
        i = next;
    }
    size_t all = a->count + b->count - both;
    return all ? (double)both / (double)all : 0;
}
