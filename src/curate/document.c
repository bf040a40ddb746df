/* SPDX-License-Identifier: Apache-2.0 */
/* document.c: lines and words of a text, each found in one pass over its bytes.
 *
 * ASCII goes by a table of 128 entries, other characters by text/unicode.h. The table of a filter is open addressing
 * with twice the keys' room, emptied by a pass over as many slots as the document needs.
 */
#include "curate/document.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

void document_free(struct document *d)
{
    str_free(&d->text);
    str_free(&d->spare);
    str_free(&d->notes);
    xfree(d->lines.p);
    for (int k = 0; k < N_WORD_KINDS; k++) xfree(d->words[k].p);
    xfree(d->table.slot);
    xfree(d->hashes);
    xfree(d->numbers);
    *d = (struct document){0};
}

static void forget(struct document *d)
{
    d->n_chars = -1;
    d->lines.found = false;
    for (int k = 0; k < N_WORD_KINDS; k++) d->words[k].found = false;
}

void document_set(struct document *d, const char *text, size_t n, const struct origin *origin)
{
    CHECK(n < DOCUMENT_MOST, "a document of %zu bytes", n);
    str_clear(&d->text);
    str_add(&d->text, text, n);
    str_clear(&d->notes);
    d->origin = *origin;
    d->bytes_read = (int64_t)n;
    d->changed = false;
    forget(d);
}

void document_replace(struct document *d)
{
    struct str old = d->text;
    d->text = d->spare;
    d->spare = old;
    str_clear(&d->spare);
    if (!d->text.p) str_puts(&d->text, "");
    d->changed = true;
    forget(d);
}

uint32_t char_at(const char *p, size_t n, int *len)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) {
        *len = 1;
        return u[0];
    }
    if (utf8_char(u, n) > 0) return utf8_code(u, len);
    *len = 1;
    return 0xFFFD;
}

int64_t count_chars(const char *p, size_t n)
{
    int64_t chars = 0;
    for (size_t i = 0; i < n; chars++) {
        unsigned char c = (unsigned char)p[i];
        int len = c < 0x80 ? 1 : utf8_char((const unsigned char *)p + i, n - i);
        i += len > 0 ? (size_t)len : 1;
    }
    return chars;
}

int64_t document_chars(struct document *d)
{
    if (d->n_chars < 0) d->n_chars = count_chars(d->text.p, d->text.n);
    return d->n_chars;
}

static void add(struct spans *l, size_t from, size_t to, size_t chars)
{
    GROW(l->p, l->n, l->room, 1);
    l->p[l->n++] = (struct span){.at = (uint32_t)from, .n = (uint32_t)(to - from), .chars = (uint32_t)chars};
}

const struct spans *document_lines(struct document *d)
{
    struct spans *l = &d->lines;
    if (l->found) return l;
    l->n = 0;
    l->found = true;
    const char *p = d->text.p;
    for (size_t at = 0; at < d->text.n;) {
        const char *newline = memchr(p + at, '\n', d->text.n - at);
        size_t end = newline ? (size_t)(newline - p) : d->text.n;
        size_t stop = end > at && newline && p[end - 1] == '\r' ? end - 1 : end;
        add(l, at, stop, (size_t)count_chars(p + at, stop - at));
        at = end + 1;
    }
    return l;
}

static bool ascii_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void split_at_spaces(const char *p, size_t n, struct spans *l)
{
    size_t from = 0, chars = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)p[i];
        int space = c < 0x80 ? ascii_space(c) : utf8_space((const unsigned char *)p + i, n - i);
        if (space) {
            if (chars) add(l, from, i, chars);
            i += (size_t)space;
            from = i;
            chars = 0;
            continue;
        }
        int len = c < 0x80 ? 1 : utf8_char((const unsigned char *)p + i, n - i);
        i += len > 0 ? (size_t)len : 1;
        chars++;
    }
    if (chars) add(l, from, n, chars);
}

/* Scripts that are written without spaces between words: each character counts as a word. */
static bool stands_alone(uint32_t c)
{
    return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

enum role { SPACE, INSIDE, ALONE };
static enum role role_of(const char *p, size_t n, int *len)
{
    unsigned char c = (unsigned char)*p;
    if (c < 0x80) {
        *len = 1;
        if (ascii_space(c)) return SPACE;
        return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' ? INSIDE : ALONE;
    }
    int space = utf8_space((const unsigned char *)p, n);
    if (space) {
        *len = space;
        return SPACE;
    }
    uint32_t code = char_at(p, n, len);
    if (stands_alone(code)) return ALONE;
    int category = unicode_kind_of(code) & 31;
    return (category >= UNI_LU && category <= UNI_NO) || category == UNI_CF ? INSIDE : ALONE;
}

/* An apostrophe or full stop between letters is inside of their word: don't, e.g */
static bool joins(const char *p, size_t n)
{
    int len;
    if (n < 2 || (*p != '\'' && *p != '.')) return false;
    return role_of(p + 1, n - 1, &len) == INSIDE;
}

/* A mark that is there several times in a row is one word: "...", "-----"; ideographs are one each. */
static bool repeats(const char *p, size_t n, size_t first, size_t at, size_t len)
{
    int bytes;
    if (at + len > n || memcmp(p + first, p + at, len) != 0) return false;
    return !stands_alone(char_at(p + first, n - first, &bytes));
}

static void split_at_marks(const char *p, size_t n, struct spans *l)
{
    size_t from = 0, chars = 0;
    for (size_t i = 0; i < n;) {
        int len;
        enum role role = role_of(p + i, n - i, &len);
        if (role == INSIDE || (chars && role == ALONE && joins(p + i, n - i))) {
            chars++;
            i += (size_t)len;
            continue;
        }
        if (chars) add(l, from, i, chars);
        size_t end = i + (size_t)len, same = 1;
        if (role == ALONE) {
            for (; repeats(p, n, i, end, (size_t)len); end += (size_t)len) same++;
            add(l, i, end, same);
        }
        i = from = end;
        chars = 0;
    }
    if (chars) add(l, from, n, chars);
}

const struct spans *document_words(struct document *d, enum word_kind kind)
{
    struct spans *l = &d->words[kind];
    if (l->found) return l;
    l->n = 0;
    l->found = true;
    (kind == WORDS_SPACES ? split_at_spaces : split_at_marks)(d->text.p, d->text.n, l);
    return l;
}

struct key_table *document_table(struct document *d, size_t n)
{
    struct key_table *t = &d->table;
    size_t wanted = 16;
    while (wanted < 2 * n) wanted *= 2;
    if (wanted > t->room) {
        xfree(t->slot);
        t->slot = xmalloc(wanted * sizeof *t->slot);
        t->room = wanted;
    }
    memset(t->slot, 0, wanted * sizeof *t->slot);
    t->mask = wanted - 1;
    return t;
}

struct key_slot *table_slot(struct key_table *t, uint64_t key)
{
    key += !key;
    for (size_t i = (size_t)(key ^ key >> 32) & t->mask;; i = (i + 1) & t->mask) {
        struct key_slot *s = &t->slot[i];
        if (s->key == key) return s;
        if (s->key) continue;
        s->key = key;
        return s;
    }
}

uint64_t *document_hashes(struct document *d, size_t n)
{
    if (n > d->n_hashes_room) GROW(d->hashes, 0, d->n_hashes_room, n);
    return d->hashes;
}

float *document_numbers(struct document *d, size_t n)
{
    if (n > d->n_numbers_room) GROW(d->numbers, 0, d->n_numbers_room, n);
    return d->numbers;
}
