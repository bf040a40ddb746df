/* SPDX-License-Identifier: Apache-2.0 */
/* filter_bad_words.c: C4's rule of a list of words (Raffel et al. 2020), which the user gives: words and phrases, one a
 * line. They are found in any case of letters, between characters that belong to no word; `anywhere` for languages that
 * are written without spaces.
 *
 * The text in lower case is walked once. At every place where a phrase may begin, those that begin with the word there
 * (anywhere: with the character) are compared: a table gives their numbers by that beginning. No regular expression.
 */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "curate/filter.h"
#include "curate/letters.h"
#include "curate/wordset.h"
#include "text/unicode_legacy.h"
#include "text/utf8.h"

struct options {
    const char *file;
    bool anywhere;
    int64_t max;
};
struct phrases {
    struct wordset all;   /* in lower case */
    struct wordset first; /* how they begin */
    int *next, *head;     /* of a beginning: the phrase that has it, and then the next one; -1 ends */
};

static const struct filter_rule rules[] = {{"bad_words", 0, 20, false}};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "file", .type = CONF_STRING, AT(file), .doc = "words and phrases, one a line; # begins a comment"},
    {.path = "max", .type = CONF_INT, AT(max), .otherwise = "0", .lo = 0, .hi = 1e9, .doc = "drop documents with more of them"},
    {.path = "anywhere", .type = CONF_BOOL, AT(anywhere), .otherwise = "false", .doc = "inside of words, too: for Chinese, Japanese, Thai"},
    {0},
};
/* clang-format on */

static void lower(const char *p, size_t n, struct str *out)
{
    str_clear(out);
    for (size_t i = 0; i < n;) {
        int len;
        uint32_t c = char_at(p + i, n - i, &len);
        unsigned char bytes[4];
        if (c < 0x80) str_putc(out, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
        else str_add(out, bytes, (size_t)utf8_put(bytes, unicode_lower_of(c)));
        i += (size_t)len;
    }
    if (!out->p) str_puts(out, "");
}

/* Bytes of the word at p; of one character where no word begins. */
static size_t beginning(const char *p, size_t n, bool anywhere)
{
    size_t i = 0;
    while (i < n) {
        int len;
        if (!letters_is_word(char_at(p + i, n - i, &len)) || anywhere) return i ? i : (size_t)len;
        i += (size_t)len;
    }
    return i;
}

static void read_phrases(struct phrases *s, struct wordset *raw, bool anywhere)
{
    struct str text = {0};
    for (int i = 0; i < raw->n; i++) {
        lower(raw->word[i], strlen(raw->word[i]), &text);
        wordset_add(&s->all, text.p, text.n);
    }
    wordset_settle(&s->all);
    for (int i = 0; i < s->all.n; i++) {
        const char *w = s->all.word[i];
        wordset_add(&s->first, w, beginning(w, strlen(w), anywhere));
    }
    wordset_settle(&s->first);
    s->next = xmalloc(((size_t)s->all.n + 1) * sizeof *s->next);
    s->head = xmalloc(((size_t)s->first.n + 1) * sizeof *s->head);
    for (int i = 0; i < s->first.n; i++) s->head[i] = -1;
    for (int i = 0; i < s->all.n; i++) {
        const char *w = s->all.word[i];
        int at = wordset_find(&s->first, w, beginning(w, strlen(w), anywhere));
        s->next[i] = s->head[at];
        s->head[at] = i;
    }
    str_free(&text);
}

static int open_phrases(struct use *u, struct err *e)
{
    const struct options *o = u->options;
    struct phrases *s = u->state = xcalloc(1, sizeof *s);
    struct wordset raw = {0};
    int code = wordset_add_file(&raw, o->file, u->where, e);
    if (!code) {
        read_phrases(s, &raw, o->anywhere);
        u->key = wordset_key(&s->all);
        if (!s->all.n) code = err_set(e, ERR_REQUEST, "%s: %s has no words", u->where, o->file);
    }
    wordset_fini(&raw);
    return code;
}

static void close_phrases(struct use *u)
{
    struct phrases *s = u->state;
    if (!s) return;
    wordset_fini(&s->all);
    wordset_fini(&s->first);
    xfree(s->next);
    xfree(s->head);
    xfree(s);
}

/* The longest phrase at p, in bytes; 0: none. */
static size_t phrase_at(const struct phrases *s, const char *p, size_t n, size_t begin, bool anywhere)
{
    int first = wordset_find(&s->first, p, begin), len;
    size_t best = 0;
    for (int i = first < 0 ? -1 : s->head[first]; i >= 0; i = s->next[i]) {
        size_t m = strlen(s->all.word[i]);
        if (m <= best || m > n || memcmp(p, s->all.word[i], m) != 0) continue;
        if (anywhere || m == n || !letters_is_word(char_at(p + m, n - m, &len))) best = m;
    }
    return best;
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    const struct phrases *s = u->state;
    int64_t found = 0;
    lower(d->text.p, d->text.n, &d->spare);
    const char *p = d->spare.p;
    for (size_t i = 0, n = d->spare.n; i < n && found <= o->max;) {
        size_t begin = beginning(p + i, n - i, o->anywhere), got = phrase_at(s, p + i, n - i, begin, o->anywhere);
        found += got > 0;
        i += got > begin ? got : begin;
    }
    return finds(f, 0, (double)found, 0, o->max ? (double)o->max : 0.5) ? 0 : FILTER_KEEPS;
}

const struct filter filter_bad_words = {
    .kind = {.name = "bad_words",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "drops what says words of a list"},
    .source = "Raffel et al. 2020",
    FILTER_RULES_OF(rules),
    .open = open_phrases,
    .close = close_phrases,
    .judge = judge,
};
