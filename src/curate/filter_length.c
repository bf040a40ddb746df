/* SPDX-License-Identifier: Apache-2.0 */
/* filter_length.c: how long a document may be, in bytes, characters, words and lines. */
#include "curate/filter.h"

struct options {
    int64_t min_bytes, max_bytes, min_chars, max_chars, min_words, max_words, min_lines, max_lines;
};

enum { BYTES, CHARS, WORDS, LINES };
static const struct filter_rule rules[] = {
    [BYTES] = {"bytes", 1, 1e7, true},
    [CHARS] = {"chars", 1, 1e7, true},
    [WORDS] = {"words", 1, 1e6, true},
    [LINES] = {"lines", 1, 1e5, true},
};

#define LEAST(what)                                                                                                    \
    {                                                                                                                  \
        .path = "min_" #what, .type = CONF_INT, .offset = offsetof(struct options, min_##what), .otherwise = "0",      \
        .lo = 0, .hi = 1e15, .doc = "drop documents of fewer " #what                                                   \
    }
#define MOST(what)                                                                                                     \
    {                                                                                                                  \
        .path = "max_" #what, .type = CONF_INT, .offset = offsetof(struct options, max_##what), .otherwise = "null",   \
        .lo = 0, .hi = 1e15, .doc = "drop documents of more " #what                                                    \
    }
static const struct conf_row rows[] = {
    LEAST(bytes), MOST(bytes), LEAST(chars), MOST(chars), LEAST(words), MOST(words), LEAST(lines), MOST(lines), {0},
};

static bool outside(struct findings *f, int rule, int64_t n, int64_t least, int64_t most)
{
    return finds(f, rule, (double)n, (double)least, most ? (double)most : INFINITY);
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    if (outside(f, BYTES, (int64_t)d->text.n, o->min_bytes, o->max_bytes)) return BYTES;
    if (outside(f, CHARS, document_chars(d), o->min_chars, o->max_chars)) return CHARS;
    if (outside(f, WORDS, (int64_t)document_words(d, WORDS_SPACES)->n, o->min_words, o->max_words)) return WORDS;
    if (outside(f, LINES, (int64_t)document_lines(d)->n, o->min_lines, o->max_lines)) return LINES;
    return FILTER_KEEPS;
}

const struct filter filter_length = {
    .kind = {.name = "length", .rows = rows, .bytes = sizeof(struct options), .doc = "drops what is too short or long"},
    .source = "",
    FILTER_RULES_OF(rules),
    .judge = judge,
};
