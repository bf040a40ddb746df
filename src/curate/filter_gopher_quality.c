/* SPDX-License-Identifier: Apache-2.0 */
/* filter_gopher_quality.c: the rules of quality of MassiveText: Rae et al., "Scaling language models: methods, analysis
 * & insights from training Gopher", 2021, appendix A.1.1. Numbers are compared in the order of the rules below.
 *
 * A word of nothing but punctuation does not count as a word and not for the mean length, and counts in the ratios of
 * symbols and of words with a letter. Stop words are matched as they are written; at least so many different ones.
 */
#include <string.h>

#include "base/mem.h"
#include "curate/filter.h"
#include "curate/letters.h"
#include "curate/wordset.h"

struct options {
    int words;
    int64_t min_words, max_words, min_stop_words;
    double min_mean, max_mean, max_symbols, max_bullets, max_ellipses, min_alpha;
    struct conf_list stop_words;
};

enum { WORDS, MEAN, HASHES, ELLIPSES, BULLETS, ENDINGS, ALPHA, STOPS };
static const struct filter_rule rules[] = {
    [WORDS] = {"words", 1, 1e6, true},
    [MEAN] = {"mean_word_length", 0, 20, false},
    [HASHES] = {"hashes_per_word", 0, 0.5, false},
    [ELLIPSES] = {"ellipses_per_word", 0, 0.5, false},
    [BULLETS] = {"bullet_lines", 0, 1, false},
    [ENDINGS] = {"ellipsis_lines", 0, 1, false},
    [ALPHA] = {"alphabetic_words", 0, 1, false},
    [STOPS] = {"stop_words", 0, 10, false},
};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "words", .type = CONF_CHOICE, AT(words), .otherwise = "spaces", .choices = FILTER_WORDS, .doc = FILTER_WORDS_DOC},
    {.path = "min_words", .type = CONF_INT, AT(min_words), .otherwise = "50", .lo = 0, .hi = 1e15, .doc = "drop documents of fewer words"},
    {.path = "max_words", .type = CONF_INT, AT(max_words), .otherwise = "100000", .lo = 0, .hi = 1e15, .doc = "and of more; 0: no limit"},
    {.path = "min_mean_word_length", .type = CONF_REAL, AT(min_mean), .otherwise = "3", .lo = 0, .hi = 1e9, .doc = "characters in a word, on average, at least"},
    {.path = "max_mean_word_length", .type = CONF_REAL, AT(max_mean), .otherwise = "10", .lo = 0, .hi = 1e9, .doc = "and at most; 0: no limit"},
    {.path = "max_symbols_per_word", .type = CONF_REAL, AT(max_symbols), .otherwise = "0.1", .lo = 0, .hi = 1e9, .doc = "of # to words, and of ... to words, at most"},
    {.path = "max_bullet_lines", .type = CONF_REAL, AT(max_bullets), .otherwise = "0.9", .lo = 0, .hi = 1, .doc = "share of lines that begin with a bullet, at most"},
    {.path = "max_ellipsis_lines", .type = CONF_REAL, AT(max_ellipses), .otherwise = "0.3", .lo = 0, .hi = 1, .doc = "share of lines that end with ..., at most"},
    {.path = "min_alphabetic_words", .type = CONF_REAL, AT(min_alpha), .otherwise = "0.8", .lo = 0, .hi = 1, .doc = "share of words with a letter, at least"},
    {.path = "min_stop_words", .type = CONF_INT, AT(min_stop_words), .otherwise = "2", .lo = 0, .hi = 4096, .doc = "different stop words, at least; 0 for other languages"},
    {.path = "stop_words", AT(stop_words), WORDSET_LIST, .otherwise = "[the, be, to, of, and, that, have, with]", .doc = "which they are"},
    {0},
};
/* clang-format on */

static int open_words(struct use *u, struct err *e)
{
    const struct options *o = u->options;
    struct wordset *s = u->state = xcalloc(1, sizeof *s);
    wordset_add_list(s, &o->stop_words);
    wordset_settle(s);
    if (s->n > 4096) return err_set(e, ERR_REQUEST, "%s: at most 4096 stop words, got %d", u->where, s->n);
    if (o->min_stop_words > s->n)
        return err_set(e, ERR_REQUEST, "%s: min_stop_words is %lld of %d stop words", u->where,
                       (long long)o->min_stop_words, s->n);
    return OK;
}

static void close_words(struct use *u)
{
    if (u->state) wordset_fini(u->state);
    xfree(u->state);
}

/* What is asked of all words in one go. */
struct counts {
    double words, chars, alphabetic, stops;
};

static struct counts count(struct document *d, const struct spans *words, const struct wordset *stops)
{
    struct counts c = {0};
    unsigned char met[4096 / 8] = {0};
    for (size_t i = 0; i < words->n; i++) {
        const struct span *w = &words->p[i];
        const char *p = span_text(d, w);
        enum letters l = letters_of(p, w->n);
        if (l != LETTERS_MARKS) {
            c.words++;
            c.chars += w->chars;
        }
        c.alphabetic += l == LETTERS_SOME;
        int stop = wordset_find(stops, p, w->n);
        if (stop < 0 || met[stop / 8] >> stop % 8 & 1) continue;
        met[stop / 8] |= (unsigned char)(1 << stop % 8);
        c.stops++;
    }
    return c;
}

static bool begins_with_bullet(const char *p, size_t n)
{
    size_t space;
    while (n && (space = letters_space(p, n)) > 0) p += space, n -= space;
    return (n && *p == '-') || (n >= 3 && !memcmp(p, "\xE2\x80\xA2", 3));
}

static bool ends_with_ellipsis(const char *p, size_t n)
{
    n = letters_trim(p, n);
    return n >= 3 && (!memcmp(p + n - 3, "...", 3) || !memcmp(p + n - 3, "\xE2\x80\xA6", 3));
}

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
static double limit(double most) { return most > 0 ? most : INFINITY; }

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    const struct spans *words = document_words(d, (enum word_kind)o->words), *lines;
    struct counts c = count(d, words, u->state);
    const char *p = d->text.p;
    size_t n = d->text.n;
    double n_words = (double)words->n;
    if (finds(f, WORDS, c.words, (double)o->min_words, limit((double)o->max_words))) return WORDS;
    if (finds(f, MEAN, ratio(c.chars, c.words), o->min_mean, limit(o->max_mean))) return MEAN;
    double hashes = (double)letters_count(p, n, "#", 1);
    if (finds(f, HASHES, ratio(hashes, n_words), 0, o->max_symbols)) return HASHES;
    double dots = (double)(letters_count(p, n, "...", 3) + letters_count(p, n, "\xE2\x80\xA6", 3));
    if (finds(f, ELLIPSES, ratio(dots, n_words), 0, o->max_symbols)) return ELLIPSES;
    double bullets = 0, endings = 0;
    lines = document_lines(d);
    for (size_t i = 0; i < lines->n; i++) {
        bullets += begins_with_bullet(span_text(d, &lines->p[i]), lines->p[i].n);
        endings += ends_with_ellipsis(span_text(d, &lines->p[i]), lines->p[i].n);
    }
    if (finds(f, BULLETS, ratio(bullets, (double)lines->n), 0, o->max_bullets)) return BULLETS;
    if (finds(f, ENDINGS, ratio(endings, (double)lines->n), 0, o->max_ellipses)) return ENDINGS;
    if (finds(f, ALPHA, ratio(c.alphabetic, n_words), o->min_alpha, 1)) return ALPHA;
    if (finds(f, STOPS, c.stops, (double)o->min_stop_words, INFINITY)) return STOPS;
    return FILTER_KEEPS;
}

const struct filter filter_gopher_quality = {
    .kind = {.name = "gopher_quality",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "drops what has too few words, odd ones, bullets, no stop words"},
    .source = "Rae et al. 2021, A.1.1",
    FILTER_RULES_OF(rules),
    .open = open_words,
    .close = close_words,
    .judge = judge,
};
