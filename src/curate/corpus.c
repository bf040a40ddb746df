/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.c: a source (source/source.h) of which one unit's files at a time are read. */
#include "curate/corpus.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "source/bad_list.h"
#include "source/source.h"

struct corpus {
    struct source *list, *source; /* all of it; its reader */
    char *column;
    int64_t *first; /* part of each unit, and one more: how many parts */
    int64_t n_units, room;
    size_t text_most;
    int64_t part, end; /* being read; of the unit */
    int64_t number;    /* of the next document in it */
    struct str text;
    struct bad_list *bad;
};

static void tell_bad(void *ctx, const char *what)
{
    struct corpus *c = ctx;
    if (c->bad) bad_list_add(c->bad, what);
}

void corpus_list_bad(struct corpus *c, struct bad_list *l) { c->bad = l; }

static void make_units(struct corpus *c, int64_t n_parts, int64_t unit_bytes)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < n_parts; i++) {
        int64_t more = source_unit_where(c->list, i).bytes;
        if (i == 0 || bytes + more > unit_bytes) {
            GROW(c->first, c->n_units, c->room, 2);
            c->first[c->n_units++] = i;
            bytes = 0;
        }
        bytes += more;
    }
    GROW(c->first, c->n_units, c->room, 2);
    c->first[c->n_units] = n_parts;
}

int corpus_open(struct corpus **out, const char *const *paths, int n_paths, const char *column, bool skip_bad,
                int64_t unit_bytes, size_t text_most, struct err *e)
{
    struct corpus *c = xcalloc(1, sizeof *c);
    int64_t n_parts = 0;
    c->text_most = text_most;
    c->column = xstrdup(column ? column : "text");
    int code =
        source_open_with(&c->list, paths, n_paths, &(struct source_options){.column = column, .skip_bad = skip_bad}, e);
    if (!code) code = source_units(c->list, &n_parts, e);
    if (!code && n_parts >= (int64_t)1 << (63 - CORPUS_BITS))
        code = err_set(e, ERR_REQUEST, "%lld files are more than can be numbered; join some", (long long)n_parts);
    if (code) {
        corpus_close(c);
        c = NULL;
    } else {
        c->source = source_again(c->list, tell_bad, c);
        make_units(c, n_parts, unit_bytes);
    }
    *out = c;
    return code;
}

void corpus_close(struct corpus *c)
{
    if (!c) return;
    source_close(c->source);
    source_close(c->list);
    str_free(&c->text);
    xfree(c->column);
    xfree(c->first);
    xfree(c);
}

uint64_t corpus_key(const struct corpus *c)
{
    struct hash64 h;
    uint64_t key = source_key(c->list);
    hash64_init(&h);
    hash64_add(&h, &key, sizeof key);
    hash64_add(&h, c->first, to_size(c->n_units) * sizeof *c->first);
    return hash64_value(&h);
}

int64_t corpus_n_bad(const struct corpus *c) { return source_n_bad(c->source); }

struct corpus_place corpus_where(const struct corpus *c, uint64_t document)
{
    struct source_unit_place u = source_unit_where(c->list, (int64_t)(document >> CORPUS_BITS));
    return (struct corpus_place){.path = u.path,
                                 .from = u.from,
                                 .number = (int64_t)(document & (((uint64_t)1 << CORPUS_BITS) - 1))};
}

int64_t corpus_n_files(const struct corpus *c) { return source_n_files(c->list); }

int64_t corpus_bytes(const struct corpus *c) { return source_bytes(c->list); }

int64_t corpus_n_units(const struct corpus *c) { return c->n_units; }

const char *corpus_column(const struct corpus *c) { return c->column; }

int64_t corpus_unit_bytes(const struct corpus *c, int64_t unit)
{
    int64_t bytes = 0;
    for (int64_t i = c->first[unit]; i < c->first[unit + 1]; i++) bytes += source_unit_where(c->list, i).bytes;
    return bytes;
}

int64_t corpus_unit_of(const struct corpus *c, uint64_t document)
{
    int64_t part = (int64_t)(document >> CORPUS_BITS), lo = 0, hi = c->n_units;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (c->first[mid] <= part) lo = mid;
        else hi = mid;
    }
    return lo;
}

struct load {
    int64_t bytes, unit;
};

static int by_bytes(const void *a, const void *b)
{
    const struct load *p = a, *q = b;
    if (p->bytes != q->bytes) return p->bytes < q->bytes ? 1 : -1;
    return p->unit < q->unit ? -1 : p->unit > q->unit;
}

void corpus_deal(const struct corpus *c, int n_ranks, int *rank)
{
    struct load *units = xmalloc(to_size(c->n_units) * sizeof *units);
    int64_t *has = xcalloc((size_t)n_ranks, sizeof *has);
    for (int64_t i = 0; i < c->n_units; i++) units[i] = (struct load){.bytes = corpus_unit_bytes(c, i), .unit = i};
    qsort(units, to_size(c->n_units), sizeof *units, by_bytes);
    for (int64_t i = 0; i < c->n_units; i++) {
        int least = 0;
        for (int r = 1; r < n_ranks; r++)
            if (has[r] < has[least]) least = r;
        rank[units[i].unit] = least;
        has[least] += units[i].bytes;
    }
    xfree(units);
    xfree(has);
}

static void begin_part(struct corpus *c, int64_t part)
{
    c->part = part;
    c->number = 0;
    if (part < c->end) source_unit(c->source, part);
}

void corpus_begin(struct corpus *c, int64_t unit)
{
    c->end = c->first[unit + 1];
    begin_part(c, c->first[unit]);
}

/* The parts of the document that has begun become one text. */
static int read_text(struct corpus *c, struct corpus_document *d, struct err *e)
{
    const char *p;
    size_t n;
    int got;
    str_clear(&c->text);
    while ((got = source_read(c->source, &p, &n, e)) > 0) {
        if (n > c->text_most - c->text.n)
            return err_set(e, ERR_REQUEST,
                           "%s: document %lld has more than %zu bytes, which do not fit; give more with --memory, or "
                           "cut it into documents",
                           d->path, (long long)c->number, c->text_most);
        str_add(&c->text, p, n);
    }
    d->text = str_text(&c->text);
    d->n = c->text.n;
    return got;
}

int corpus_next(struct corpus *c, struct corpus_document *d, struct err *e)
{
    int got = 0;
    while (c->part < c->end && (got = source_next(c->source, e)) == 0) begin_part(c, c->part + 1);
    if (got <= 0) return got;
    struct source_place place;
    source_where(c->source, &place);
    if (c->number >> CORPUS_BITS) return err_set(e, ERR_REQUEST, "%s: too many documents", place.path);
    *d = (struct corpus_document){.id = (uint64_t)c->part << CORPUS_BITS | (uint64_t)c->number, .path = place.path};
    d->record = source_line(c->source, &d->record_n);
    int code = read_text(c, d, e);
    c->number++;
    return code ? code : 1;
}
