/* SPDX-License-Identifier: Apache-2.0 */
/* filter_gopher_repetition.c: the rules of repetition of MassiveText: Rae et al. 2021, table A1. Shares are of the
 * characters of the text; lines and paragraphs without those that are empty.
 *
 * Pieces are compared by 64 bits of their hash. An n-gram's hash is made of the one that is a word shorter
 * (h * B + word), so all lengths cost a multiplication and a look into a table per word each. The most frequent n-gram
 * is the first of those with the largest count; n-grams that were met before are counted from left to right, and what a
 * repeated one covers is not looked at again.
 */
#include <string.h>

#include "base/hash.h"
#include "curate/filter.h"
#include "curate/letters.h"

enum {
    TOP_FROM = 2,
    TOP_TO = 4,
    MET_FROM = 5,
    MET_TO = 10,
    N_TOP = TOP_TO - TOP_FROM + 1,
    N_MET = MET_TO - MET_FROM + 1
};

struct options {
    int words;
    double paragraphs, paragraph_chars, lines, line_chars, top[N_TOP], met[N_MET];
};

enum { PARAGRAPHS, PARAGRAPH_CHARS, LINES, LINE_CHARS, TOP, MET = TOP + N_TOP };
static const struct filter_rule rules[] = {
    [PARAGRAPHS] = {"duplicate_paragraphs", 0, 1, false},
    [PARAGRAPH_CHARS] = {"duplicate_paragraph_chars", 0, 1, false},
    [LINES] = {"duplicate_lines", 0, 1, false},
    [LINE_CHARS] = {"duplicate_line_chars", 0, 1, false},
    [TOP] = {"top_2_gram", 0, 1, false},
    {"top_3_gram", 0, 1, false},
    {"top_4_gram", 0, 1, false},
    [MET] = {"duplicate_5_grams", 0, 1, false},
    {"duplicate_6_grams", 0, 1, false},
    {"duplicate_7_grams", 0, 1, false},
    {"duplicate_8_grams", 0, 1, false},
    {"duplicate_9_grams", 0, 1, false},
    {"duplicate_10_grams", 0, 1, false},
};

#define AT(member) .offset = offsetof(struct options, member)
#define SHARE .lo = 0, .hi = 1
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "words", .type = CONF_CHOICE, AT(words), .otherwise = "spaces", .choices = FILTER_WORDS, .doc = FILTER_WORDS_DOC},
    {.path = "max_duplicate_paragraphs", .type = CONF_REAL, AT(paragraphs), .otherwise = "0.3", SHARE, .doc = "share of paragraphs that were there before, at most; 1: any"},
    {.path = "max_duplicate_paragraph_chars", .type = CONF_REAL, AT(paragraph_chars), .otherwise = "0.2", SHARE, .doc = "of characters in such"},
    {.path = "max_duplicate_lines", .type = CONF_REAL, AT(lines), .otherwise = "0.3", SHARE, .doc = "of lines that were there before"},
    {.path = "max_duplicate_line_chars", .type = CONF_REAL, AT(line_chars), .otherwise = "0.2", SHARE, .doc = "of characters in such"},
    {.path = "max_top_n_grams", .type = CONF_REALS, AT(top), .n = N_TOP, .otherwise = "[0.2, 0.18, 0.16]", SHARE, .doc = "of characters in the most frequent 2-, 3- and 4-gram of words"},
    {.path = "max_duplicate_n_grams", .type = CONF_REALS, AT(met), .n = N_MET, .otherwise = "[0.15, 0.14, 0.13, 0.12, 0.11, 0.1]", SHARE, .doc = "of characters in 5- to 10-grams that were there before"},
    {0},
};
/* clang-format on */

/* Pieces that were there before, and their characters. */
struct repeats {
    int64_t n, again, chars;
};

static void meet(struct document *d, struct repeats *r, size_t from, size_t to)
{
    const char *p = d->text.p + from;
    struct key_slot *slot = table_slot(&d->table, hash64(p, to - from));
    r->n++;
    if (slot->count++ == 0) return;
    r->again++;
    r->chars += count_chars(p, to - from);
}

/* Lines are parted by runs of LF; one at the end or beginning parts an empty piece off, as the published rule does. */
static struct repeats repeats_of(struct document *d, size_t run, size_t from, size_t to)
{
    struct repeats r = {0};
    const char *p = d->text.p;
    size_t begin = from;
    document_table(d, (size_t)letters_count(p + from, to - from, "\n", 1) + 1);
    for (size_t i = from; i < to;) {
        if (p[i] != '\n') {
            const char *newline = memchr(p + i, '\n', to - i);
            i = newline ? (size_t)(newline - p) : to;
            continue;
        }
        size_t n = 1;
        while (i + n < to && p[i + n] == '\n') n++;
        if (n >= run) {
            meet(d, &r, begin, i);
            begin = i + n;
        }
        i += n;
    }
    meet(d, &r, begin, to);
    return r;
}

/* h[i] becomes the hash of one word more; the last that there are is n - 1. */
static void lengthen(uint64_t *h, const uint64_t *word, size_t n, size_t by)
{
    for (size_t i = 0; i < n; i++) h[i] = h[i] * 0x9E3779B97F4A7C15u + word[i + by];
}

static uint64_t mixed(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 29;
}

/* Characters of words [i, i + n). */
static int64_t chars_of(const struct spans *w, size_t i, size_t n)
{
    int64_t chars = 0;
    for (size_t k = i; k < i + n; k++) chars += w->p[k].chars;
    return chars;
}

/* Characters that the most frequent n-gram covers, each with the spaces between its words. */
static int64_t top(struct document *d, const uint64_t *h, const struct spans *w, size_t n)
{
    size_t grams = w->n - n + 1, best = 0;
    uint32_t most = 0;
    struct key_table *t = document_table(d, grams);
    for (size_t i = 0; i < grams; i++) {
        struct key_slot *slot = table_slot(t, mixed(h[i]));
        if (slot->count++ == 0) slot->first = (uint32_t)i;
    }
    for (size_t i = 0; i < grams; i++) {
        const struct key_slot *slot = table_slot(t, mixed(h[i]));
        if (slot->first != i || slot->count <= most) continue;
        most = slot->count;
        best = i;
    }
    return (chars_of(w, best, n) + (int64_t)n - 1) * most;
}

static int64_t met(struct document *d, const uint64_t *h, const struct spans *w, size_t n)
{
    size_t grams = w->n - n + 1;
    int64_t chars = 0;
    struct key_table *t = document_table(d, grams);
    for (size_t i = 0; i < grams;) {
        if (table_slot(t, mixed(h[i]))->count++ == 0) {
            i++;
            continue;
        }
        chars += chars_of(w, i, n);
        i += n;
    }
    return chars;
}

static int judge_n_grams(const struct options *o, struct document *d, struct findings *f, double all)
{
    const struct spans *w = document_words(d, (enum word_kind)o->words);
    uint64_t *word = document_hashes(d, 2 * w->n + 1), *h = word + w->n;
    for (size_t i = 0; i < w->n; i++) h[i] = word[i] = hash64(span_text(d, &w->p[i]), w->p[i].n);
    for (size_t n = 2; n <= MET_TO && n <= w->n; n++) {
        lengthen(h, word, w->n - n + 1, n - 1);
        bool is_top = n <= TOP_TO;
        int rule = is_top ? TOP + (int)n - TOP_FROM : MET + (int)n - MET_FROM;
        double most = is_top ? o->top[n - TOP_FROM] : o->met[n - MET_FROM];
        if (most >= 1) continue;
        double chars = (double)(is_top ? top : met)(d, h, w, n);
        f->value[rule] = chars / all;
        if (f->value[rule] > most) return rule;
    }
    return FILTER_KEEPS;
}

static bool beyond(struct findings *f, int rule, int64_t part, double whole, double most)
{
    f->value[rule] = whole > 0 ? (double)part / whole : 0;
    return f->value[rule] > most;
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    double all = (double)document_chars(d);
    size_t to = letters_trim(d->text.p, d->text.n), from = 0, space;
    while (from < to && (space = letters_space(d->text.p + from, to - from)) > 0) from += space;
    struct repeats r = repeats_of(d, 2, from, to);
    if (beyond(f, PARAGRAPHS, r.again, (double)r.n, o->paragraphs)) return PARAGRAPHS;
    if (beyond(f, PARAGRAPH_CHARS, r.chars, all, o->paragraph_chars)) return PARAGRAPH_CHARS;
    r = repeats_of(d, 1, 0, d->text.n);
    if (beyond(f, LINES, r.again, (double)r.n, o->lines)) return LINES;
    if (beyond(f, LINE_CHARS, r.chars, all, o->line_chars)) return LINE_CHARS;
    return judge_n_grams(o, d, f, all > 0 ? all : 1);
}

const struct filter filter_gopher_repetition = {
    .kind = {.name = "gopher_repetition",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "drops what repeats lines, paragraphs or n-grams of words"},
    .source = "Rae et al. 2021, table A1",
    FILTER_RULES_OF(rules),
    .judge = judge,
};
