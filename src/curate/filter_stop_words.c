/* SPDX-License-Identifier: Apache-2.0 */
/* filter_stop_words.c: running text of a language has its small words; a list of products has not. Words are compared
 * in lower case (of ASCII and what is beyond), marks around them do not count. */
#include <string.h>

#include "base/mem.h"
#include "curate/filter.h"
#include "curate/letters.h"
#include "curate/wordset.h"
#include "text/unicode_legacy.h"
#include "text/utf8.h"

struct options {
    struct conf_list words;
    const char *file;
    double min_share;
    int64_t min_different;
};

enum { SHARE, DIFFERENT };
static const struct filter_rule rules[] =
    {[SHARE] = {"stop_word_share", 0, 1, false}, [DIFFERENT] = {"different_stop_words", 0, 40, false}};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "words", AT(words), WORDSET_LIST, .otherwise = "[the, a, an, and, or, of, to, in, is, it, that, for, with, as, on, be, are, was, by, at, this, have]", .doc = "in lower case"},
    {.path = "file", .type = CONF_STRING, AT(file), .otherwise = "null", .doc = "more of them, one a line"},
    {.path = "min_share", .type = CONF_REAL, AT(min_share), .otherwise = "0.06", .lo = 0, .hi = 1, .doc = "of all words, at least"},
    {.path = "min_different", .type = CONF_INT, AT(min_different), .otherwise = "2", .lo = 0, .hi = 1e6, .doc = "different ones, at least"},
    {0},
};
/* clang-format on */

static int open_words(struct use *u, struct err *e)
{
    const struct options *o = u->options;
    struct wordset *s = u->state = xcalloc(1, sizeof *s);
    wordset_add_list(s, &o->words);
    int code = o->file ? wordset_add_file(s, o->file, u->where, e) : OK;
    wordset_settle(s);
    if (!code && o->min_different > s->n)
        code = err_set(e, ERR_REQUEST, "%s: min_different is %lld of %d words", u->where, (long long)o->min_different,
                       s->n);
    u->key = wordset_key(s);
    return code;
}

static void close_words(struct use *u)
{
    if (u->state) wordset_fini(u->state);
    xfree(u->state);
}

/* The word in lower case into out: its bytes, or 0 when it is longer than any stop word. */
static size_t lower(const char *p, size_t n, size_t room, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n;) {
        int len;
        unsigned char bytes[4];
        uint32_t c = unicode_lower_of(char_at(p + i, n - i, &len));
        size_t k = (size_t)utf8_put(bytes, c);
        if (m + k > room) return 0;
        memcpy(out + m, bytes, k);
        m += k;
        i += (size_t)len;
    }
    return m;
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    enum { MOST = 256 };
    const struct options *o = u->options;
    const struct wordset *s = u->state;
    const struct spans *w = document_words(d, WORDS_MARKS);
    struct key_table *met = document_table(d, (size_t)s->n);
    double words = 0, stops = 0, different = 0;
    char text[MOST];
    for (size_t i = 0; i < w->n; i++) {
        const char *p = span_text(d, &w->p[i]);
        if (letters_of(p, w->p[i].n) != LETTERS_SOME) continue;
        words++;
        size_t n = lower(p, w->p[i].n, s->longest < MOST ? s->longest : MOST, text);
        int at = n ? wordset_find(s, text, n) : -1;
        if (at < 0) continue;
        stops++;
        different += table_slot(met, (uint64_t)at + 1)->count++ == 0;
    }
    f->value[SHARE] = words > 0 ? stops / words : 0;
    if (f->value[SHARE] < o->min_share) return SHARE;
    f->value[DIFFERENT] = different;
    return different < (double)o->min_different ? DIFFERENT : FILTER_KEEPS;
}

const struct filter filter_stop_words = {
    .kind = {.name = "stop_words",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "drops what has too few of a language's small words"},
    .source = "",
    FILTER_RULES_OF(rules),
    .open = open_words,
    .close = close_words,
    .judge = judge,
};
