/* SPDX-License-Identifier: Apache-2.0 */
/* filter_fineweb.c: the line heuristics of FineWeb: Penedo et al., "The FineWeb datasets", 2024, section 3.5, and the
 * share of line ends that its program has beside them. The defaults are the paper's; its program drops from 0.01 of
 * characters in duplicate lines on, not from 0.1.
 */
#include <string.h>

#include "base/hash.h"
#include "curate/filter.h"
#include "curate/letters.h"

struct options {
    int words;
    double min_endings, max_short, max_duplicates, max_line_ends;
    int64_t short_chars;
};

enum { ENDINGS, SHORT, DUPLICATES, LINE_ENDS };
static const struct filter_rule rules[] = {
    [ENDINGS] = {"lines_with_end", 0, 1, false},
    [SHORT] = {"short_lines", 0, 1, false},
    [DUPLICATES] = {"duplicate_line_chars", 0, 1, false},
    [LINE_ENDS] = {"line_ends_per_word", 0, 1, false},
};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "words", .type = CONF_CHOICE, AT(words), .otherwise = "spaces", .choices = FILTER_WORDS, .doc = FILTER_WORDS_DOC},
    {.path = "min_lines_with_end", .type = CONF_REAL, AT(min_endings), .otherwise = "0.12", .lo = 0, .hi = 1, .doc = "share of lines that end as a sentence does, at least"},
    {.path = "max_short_lines", .type = CONF_REAL, AT(max_short), .otherwise = "0.67", .lo = 0, .hi = 1, .doc = "share of short lines, at most"},
    {.path = "short_chars", .type = CONF_INT, AT(short_chars), .otherwise = "30", .lo = 0, .hi = 1e9, .doc = "a short line has at most so many characters"},
    {.path = "max_duplicate_line_chars", .type = CONF_REAL, AT(max_duplicates), .otherwise = "0.1", .lo = 0, .hi = 1, .doc = "share of characters in lines that were there before, at most"},
    {.path = "max_line_ends_per_word", .type = CONF_REAL, AT(max_line_ends), .otherwise = "0.3", .lo = 0, .hi = 1e9, .doc = "line ends to words, at most"},
    {0},
};
/* clang-format on */

static bool ends_sentence(const char *p, size_t n)
{
    size_t at = n;
    int len;
    if (!n) return false;
    do at--;
    while (at > 0 && ((unsigned char)p[at] & 0xC0) == 0x80);
    return letters_ends_sentence(char_at(p + at, n - at, &len));
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    const struct spans *l = document_lines(d);
    double n = 0, ended = 0, brief = 0, again = 0, chars = (double)document_chars(d), line_ends = 0;
    struct key_table *t = document_table(d, l->n);
    for (size_t i = 0; i < l->n; i++) {
        const struct span *line = &l->p[i];
        const char *p = span_text(d, line);
        if (!letters_trim(p, line->n)) continue;
        n++;
        ended += ends_sentence(p, line->n);
        brief += line->chars <= o->short_chars;
        if (table_slot(t, hash64(p, line->n))->count++) again += line->chars;
    }
    line_ends = (double)letters_count(d->text.p, d->text.n, "\n", 1);
    f->value[ENDINGS] = n > 0 ? ended / n : 0;
    if (f->value[ENDINGS] < o->min_endings) return ENDINGS;
    f->value[SHORT] = n > 0 ? brief / n : 1;
    if (f->value[SHORT] > o->max_short) return SHORT;
    f->value[DUPLICATES] = chars > line_ends ? again / (chars - line_ends) : 0;
    if (f->value[DUPLICATES] > o->max_duplicates) return DUPLICATES;
    double words = (double)document_words(d, (enum word_kind)o->words)->n;
    f->value[LINE_ENDS] = words > 0 ? line_ends / words : 0;
    return f->value[LINE_ENDS] > o->max_line_ends ? LINE_ENDS : FILTER_KEEPS;
}

const struct filter filter_fineweb = {
    .kind = {.name = "fineweb",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "drops what looks like a list or a menu: lines without an end, short ones, repeated ones"},
    .source = "Penedo et al. 2024",
    FILTER_RULES_OF(rules),
    .judge = judge,
};
