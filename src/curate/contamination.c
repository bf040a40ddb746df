/* SPDX-License-Identifier: Apache-2.0 */
/* contamination.c: words are found in the text itself, so that what is found has its place there; their hashes are
 * summed as in shingles.c, so an n-gram costs two multiplications and a look into a table.
 */
#include "curate/contamination.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "curate/normal.h"
#include "source/source.h"

#define BASE 0x9E3779B97F4A7C15u

void contamination_init(struct contamination *c, int n, int least)
{
    CHECK(least >= 1 && least <= n && n <= GRAM_MOST, "n-grams of %d, %d at least", n, least);
    *c = (struct contamination){.n = n, .least = least};
}

void contamination_fini(struct contamination *c)
{
    for (int i = 0; i < c->n_files; i++) xfree(c->files[i]);
    xfree(c->files);
    xfree(c->set);
    *c = (struct contamination){0};
}

void gram_search_fini(struct gram_search *s)
{
    xfree(s->found);
    xfree(s->hashes);
    xfree(s->bounds);
    str_free(&s->word);
    *s = (struct gram_search){0};
}

/* ---- words ----------------------------------------------------------------------------------------------------- */

static void add_word(struct gram_search *s, const char *text, size_t from, size_t to)
{
    str_clear(&s->word);
    normal_add(NORMAL_WORDS, text + from, to - from, &s->word);
    GROW(s->hashes, s->n_words, s->hashes_room, 1);
    GROW(s->bounds, 2 * s->n_words, s->bounds_room, 2);
    s->hashes[s->n_words] = hash64(str_text(&s->word), s->word.n);
    s->bounds[2 * s->n_words] = from;
    s->bounds[2 * s->n_words++ + 1] = to;
}

static void find_words(struct gram_search *s, const char *text, size_t n)
{
    s->n_words = 0;
    size_t from = 0;
    bool in = false;
    for (size_t at = 0; at < n;) {
        size_t len;
        enum normal_letter kind = normal_letter(text + at, n - at, &len);
        if (in && kind != LETTER_IN_WORD) {
            add_word(s, text, from, at);
            in = false;
        }
        if (kind == LETTER_ALONE) add_word(s, text, at, at + len);
        if (kind == LETTER_IN_WORD && !in) {
            from = at;
            in = true;
        }
        at += len;
    }
    if (in) add_word(s, text, from, n);
}

static uint64_t spread(uint64_t h, int length)
{
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u + (uint64_t)length;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    return h ? h : 1;
}

/* ---- the set ---------------------------------------------------------------------------------------------------- */

/* The place of a hash, or the empty one where it would be. */
static struct gram *place_of(const struct contamination *c, uint64_t hash)
{
    size_t at = (size_t)hash & c->mask;
    while (c->set[at].hash && c->set[at].hash != hash) at = (at + 1) & c->mask;
    return &c->set[at];
}

static void put(struct contamination *c, struct gram g)
{
    if (2 * (c->count + 1) > c->mask) {
        struct gram *old = c->set;
        size_t n = old ? c->mask + 1 : 0;
        c->mask = old ? 2 * n - 1 : 1023;
        c->set = xcalloc(c->mask + 1, sizeof *c->set);
        for (size_t i = 0; i < n; i++)
            if (old[i].hash) *place_of(c, old[i].hash) = old[i];
        xfree(old);
    }
    struct gram *p = place_of(c, g.hash);
    if (p->hash) return;
    *p = g;
    c->count++;
}

void contamination_add(struct contamination *c, const char *text, size_t n, uint32_t file, uint32_t document)
{
    struct gram_search s = {0};
    find_words(&s, text, n);
    int length = s.n_words < (size_t)c->n ? (int)s.n_words : c->n;
    c->texts++;
    if (length < c->least) {
        c->too_short++;
    } else {
        c->lengths |= (uint64_t)1 << (length - 1);
        for (size_t i = 0; i + (size_t)length <= s.n_words; i++) {
            uint64_t sum = 0;
            for (int k = 0; k < length; k++) sum = sum * BASE + s.hashes[i + (size_t)k];
            put(c, (struct gram){.hash = spread(sum, length), .file = file, .document = document});
        }
    }
    uint64_t parts[] = {c->key, hash64(text, n)};
    c->key = hash64(parts, sizeof parts);
    gram_search_fini(&s);
}

int contamination_add_file(struct contamination *c, const char *path, const char *column, struct err *e)
{
    struct source *s;
    struct str text = {0};
    int code = source_open(&s, &path, 1, column, e), got = 0;
    if (code) return code;
    c->files = xrealloc(c->files, (size_t)(c->n_files + 1) * sizeof *c->files);
    c->files[c->n_files++] = xstrdup(path);
    for (uint32_t document = 0; !code && (got = source_next(s, e)) > 0; document++) {
        const char *p;
        size_t n;
        str_clear(&text);
        while ((got = source_read(s, &p, &n, e)) > 0) str_add(&text, p, n);
        if (got < 0) break;
        contamination_add(c, str_text(&text), text.n, (uint32_t)c->n_files - 1, document);
    }
    source_close(s);
    str_free(&text);
    return code ? code : got;
}

/* ---- finding ---------------------------------------------------------------------------------------------------- */

static void find_length(const struct contamination *c, int length, struct gram_search *s)
{
    uint64_t sum = 0, leaving = 1;
    for (int i = 0; i < length; i++) leaving *= BASE;
    for (size_t i = 0; i < s->n_words; i++) {
        sum = sum * BASE + s->hashes[i];
        if (i >= (size_t)length) sum -= s->hashes[i - (size_t)length] * leaving;
        if (i + 1 < (size_t)length) continue;
        const struct gram *g = place_of(c, spread(sum, length));
        if (!g->hash) continue;
        GROW(s->found, s->n, s->room, 1);
        s->found[s->n++] =
            (struct gram_found){.from = s->bounds[2 * (i + 1 - (size_t)length)], .to = s->bounds[2 * i + 1], .gram = g};
    }
}

static int by_place(const void *a, const void *b)
{
    const struct gram_found *p = a, *q = b;
    if (p->from != q->from) return p->from < q->from ? -1 : 1;
    return p->to < q->to ? -1 : p->to > q->to;
}

void contamination_find(const struct contamination *c, const char *text, size_t n, struct gram_search *s)
{
    s->n = 0;
    if (!c->count) return;
    find_words(s, text, n);
    for (int length = 1; length <= c->n; length++)
        if (c->lengths >> (length - 1) & 1) find_length(c, length, s);
    if (s->n) qsort(s->found, s->n, sizeof *s->found, by_place);
}
