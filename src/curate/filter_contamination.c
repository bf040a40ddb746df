/* SPDX-License-Identifier: Apache-2.0 */
/* filter_contamination.c: takes out what benchmarks hold (contamination.h): each n-gram that the document shares with
 * one of them with so many characters on either side, as Brown et al. 2020 (appendix C) did; or the whole document.
 *
 * What is left of a document that was cut are pieces; short ones go too, and a document of too many goes as a whole.
 * The pieces of a document are written as one text with an empty line between. A document that was cut says so in its
 * line: "contaminated": the first n-gram with the file and the document that have it, and how many there were. A
 * sample begins with the same.
 */
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "curate/contamination.h"
#include "curate/filter.h"
#include "curate/rewrite.h"

struct benchmark {
    const char *path, *column;
};
enum { CUT, DROP };
struct options {
    struct conf_list files;
    int64_t ngram, short_ngram, window, min_piece, max_pieces;
    int action;
};

enum { NGRAMS, PIECES, LEFT };
static const struct filter_rule rules[] = {
    [NGRAMS] = {"ngrams", 1, 1e4, true},
    [PIECES] = {"pieces", 1, 100, true},
    [LEFT] = {"nothing_left", 0, 2, false},
};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row file_rows[] = {
    {.path = "path", .type = CONF_STRING, .offset = offsetof(struct benchmark, path), .doc = "a file or folder of texts, as data tokenize reads them"},
    {.path = "column", .type = CONF_STRING, .offset = offsetof(struct benchmark, column), .otherwise = "null", .doc = "its member or column that is the text"},
    {0},
};
static const struct conf_row rows[] = {
    {.path = "files", .type = CONF_LIST, AT(files), .item = file_rows, .item_bytes = sizeof(struct benchmark), .item_short = "path", .doc = "benchmarks: [a.jsonl, {path: b.csv, column: question}]"},
    {.path = "ngram", .type = CONF_INT, AT(ngram), .otherwise = "13", .lo = 1, .hi = GRAM_MOST, .doc = "words that must agree"},
    {.path = "short_ngram", .type = CONF_INT, AT(short_ngram), .otherwise = "8", .lo = 1, .hi = GRAM_MOST, .doc = "shorter texts of a benchmark must agree as a whole, from so many words on"},
    {.path = "action", .type = CONF_CHOICE, AT(action), .otherwise = "cut", .choices = "cut|drop", .doc = "what goes: the n-gram with its window, or the document"},
    {.path = "window", .type = CONF_INT, AT(window), .otherwise = "200", .lo = 0, .hi = 1e9, .doc = "cut: characters on either side that go, too"},
    {.path = "min_piece", .type = CONF_INT, AT(min_piece), .otherwise = "200", .lo = 0, .hi = 1e9, .doc = "cut: pieces of fewer characters go"},
    {.path = "max_pieces", .type = CONF_INT, AT(max_pieces), .otherwise = "10", .lo = 1, .hi = 1e9, .doc = "cut: drop documents of more"},
    {0},
};
/* clang-format on */

static int open_set(struct use *u, struct err *e)
{
    const struct options *o = u->options;
    const struct benchmark *files = o->files.items;
    if (o->short_ngram > o->ngram)
        return err_set(e, ERR_REQUEST, "%s: short_ngram %lld is more than ngram %lld", u->where,
                       (long long)o->short_ngram, (long long)o->ngram);
    if (!o->files.n) return err_set(e, ERR_REQUEST, "%s: no file is named", u->where);
    struct contamination *c = u->state = xcalloc(1, sizeof *c);
    contamination_init(c, (int)o->ngram, (int)o->short_ngram);
    for (int i = 0; i < o->files.n; i++) {
        int code = contamination_add_file(c, files[i].path, files[i].column, e);
        if (code) {
            err_prefix(e, "%s", u->where);
            return code;
        }
    }
    if (!c->count)
        return err_set(e, ERR_REQUEST, "%s: none of the %lld texts has the %lld words of short_ngram", u->where,
                       (long long)c->texts, (long long)o->short_ngram);
    if (c->too_short)
        log_info("curate: %s: %lld of %lld texts have fewer than %lld words and are not looked for", u->where,
                 (long long)c->too_short, (long long)c->texts, (long long)o->short_ngram);
    u->key = c->key;
    return OK;
}

static void close_set(struct use *u)
{
    struct contamination *c = u->state;
    if (c) contamination_fini(c);
    xfree(c);
}

/* at, moved by so many characters back or forth. */
static size_t back(const char *p, size_t at, int64_t n)
{
    for (; at > 0 && n > 0; n--)
        for (at--; at > 0 && ((unsigned char)p[at] & 0xC0) == 0x80; at--) continue;
    return at;
}

static size_t forth(const char *p, size_t size, size_t at, int64_t n)
{
    for (; at < size && n > 0; n--)
        for (at++; at < size && ((unsigned char)p[at] & 0xC0) == 0x80; at++) continue;
    return at;
}

/* "bench.jsonl, document 3: the words" */
static void tell(const struct contamination *c, const struct document *d, const struct gram_found *g, struct str *out)
{
    str_printf(out, "%s, document %u: ", c->files[g->gram->file], g->gram->document);
    str_add(out, d->text.p + g->from, g->to - g->from);
}

static void note(const struct contamination *c, struct document *d, const struct gram_found *g, size_t n)
{
    const char *file = c->files[g->gram->file];
    str_puts(&d->notes, ", \"contaminated\": {\"file\": ");
    rewrite_string(&d->notes, file, strlen(file));
    str_printf(&d->notes, ", \"document\": %u, \"ngram\": ", g->gram->document);
    rewrite_string(&d->notes, d->text.p + g->from, g->to - g->from);
    str_printf(&d->notes, ", \"ngrams\": %zu}", n);
}

/* What stays between the cuts goes to d->spare: how many pieces. */
static int64_t cut(const struct options *o, struct document *d, const struct gram_search *s)
{
    const char *p = d->text.p;
    size_t done = 0;
    int64_t pieces = 0;
    for (size_t i = 0; i <= s->n;) {
        size_t from = i < s->n ? back(p, s->found[i].from, o->window) : d->text.n, to = d->text.n;
        if (from < done) from = done;
        if (count_chars(p + done, from - done) >= (o->min_piece ? o->min_piece : 1)) {
            if (pieces++) str_puts(&d->spare, "\n\n");
            str_add(&d->spare, p + done, from - done);
        }
        if (i == s->n) break;
        to = s->found[i].to;
        for (i++; i < s->n && s->found[i].from <= to; i++) /* n-grams that overlap are one place */
            if (s->found[i].to > to) to = s->found[i].to;
        to = forth(p, d->text.n, to, o->window);
        if (to > done) done = to;
    }
    return pieces;
}

static int judge_found(const struct use *u, struct document *d, struct findings *f, const struct gram_search *s)
{
    const struct options *o = u->options;
    const struct contamination *c = u->state;
    if (s->n) {
        tell(c, d, &s->found[0], &f->why);
        findings_removed(f, f->why.p, f->why.n);
    }
    if (finds(f, NGRAMS, (double)s->n, 0, o->action == DROP ? 0.5 : INFINITY)) return NGRAMS;
    if (!s->n) return FILTER_KEEPS;
    int64_t pieces = cut(o, d, s);
    int rule = finds(f, PIECES, (double)pieces, 0, (double)o->max_pieces) ? PIECES
               : finds(f, LEFT, pieces == 0, 0, 0.5)                      ? LEFT
                                                                          : FILTER_KEEPS;
    if (rule != FILTER_KEEPS) {
        str_clear(&d->spare);
        return rule;
    }
    note(c, d, &s->found[0], s->n);
    document_replace(d);
    return FILTER_KEEPS;
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    struct gram_search s = {0};
    contamination_find(u->state, d->text.p, d->text.n, &s);
    int rule = judge_found(u, d, f, &s);
    gram_search_fini(&s);
    return rule;
}

const struct filter filter_contamination = {
    .kind = {.name = "contamination",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "takes out what benchmarks hold, by n-grams of words that agree"},
    .source = "Brown et al. 2020, appendix C",
    FILTER_RULES_OF(rules),
    .open = open_set,
    .close = close_set,
    .judge = judge,
};
