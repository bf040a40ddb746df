/* SPDX-License-Identifier: Apache-2.0 */
/* format_parquet.c: a Parquet table: a document per row, the text of one column. Nulls and empty texts are passed over;
 * the items of a list become one document, a line each. Only that column's bytes are read. A part of a file is some of
 * its row groups; one that is damaged is a bad record. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "source/parquet_pages.h"
#include "source/record_format.h"

struct table {
    struct record_file *file;
    struct parquet_meta meta;
    struct parquet_pages pages;
    int64_t chunk, end;         /* the row group that is read; the first that is not wanted */
    int64_t row, n_rows;        /* of the row group, so far: the row that is read, rows begun */
    bool begun;                 /* the row group */
    struct parquet_value ahead; /* of a list: the first value of the next row, where there is one */
    bool has_ahead;
    struct str text; /* of a list: its items */
};

/* Behind its name a page's head or the footer begins, with a field 1 of type i32. */
static bool table_begins(const unsigned char *p, size_t n) { return n >= 5 && !memcmp(p, "PAR1\x15", 5); }

static int table_open(void **reader, struct record_file *f, struct err *e)
{
    if (source_buffer_packed(&f->buffer))
        return err_set(e, ERR_REQUEST, "%s: is a Parquet table that was packed once more; unpack it first",
                       f->listed->path);
    struct table *r = xcalloc(1, sizeof *r);
    r->file = f;
    int code = f->whole
                   ? err_set(e, ERR_REQUEST, "%s: is a Parquet table, which has no records (.jsonl)", f->listed->path)
                   : parquet_meta_read(&r->meta, f->blob, f->column, e);
    if (code) {
        xfree(r);
        if (code != ERR_REQUEST || f->listed->named) return code;
        err_set(e, ERR_REQUEST, "is a Parquet table without a column \"%s\" of text", f->column);
        return 0;
    }
    parquet_pages_init(&r->pages, f->blob, &r->meta);
    r->chunk = f->from;
    r->end = f->to < r->meta.n_chunks ? f->to : r->meta.n_chunks;
    f->done = 0;
    *reader = r;
    return 1;
}

/* The share of the file that lies behind, for progress. */
static void count_done(struct table *r)
{
    int64_t of = r->meta.n_rows, rows = r->chunk < r->meta.n_chunks ? r->meta.chunks[r->chunk].row : of;
    int64_t from = r->file->from < r->meta.n_chunks ? r->meta.chunks[r->file->from].row : of;
    if (of) r->file->done = (int64_t)((double)r->file->listed->bytes * (double)(rows - from) / (double)of);
}

/* The next value of the row group: 1, 0, < 0. */
static int next_value(struct table *r, struct parquet_value *v, struct err *e)
{
    if (r->has_ahead) {
        *v = r->ahead;
        r->has_ahead = false;
        return 1;
    }
    int code = r->begun ? OK : parquet_pages_go(&r->pages, r->chunk, e);
    r->begun = true;
    return code ? code : parquet_pages_next(&r->pages, v, e);
}

/* One row of a list: its items, each a line. The first value behind it waits for the next call. */
static int next_list(struct table *r, struct parquet_value *v, struct err *e)
{
    int got = next_value(r, v, e);
    if (got <= 0) return got;
    str_clear(&r->text);
    for (int64_t items = 0;;) {
        if (v->there && items++) str_putc(&r->text, '\n');
        if (v->there) str_add(&r->text, v->p, v->n);
        if (r->text.n > SOURCE_RECORD_MAX)
            return err_set(e, ERR_REQUEST, "%s: row %lld: a list of more than %d MiB of text", r->file->listed->path,
                           (long long)r->row, SOURCE_RECORD_MAX >> 20);
        got = parquet_pages_next(&r->pages, &r->ahead, e);
        if (got < 0) return got;
        if (!got || r->ahead.begins_row) break;
        *v = r->ahead;
    }
    r->has_ahead = got;
    *v = (struct parquet_value){true, r->text.n > 0, str_text(&r->text), r->text.n};
    return 1;
}

/* The next row of the row group, with text or without. */
static int next_row(struct table *r, struct parquet_value *v, struct err *e)
{
    const struct parquet_chunk *c = &r->meta.chunks[r->chunk];
    int got = r->meta.max_rep ? next_list(r, v, e) : next_value(r, v, e);
    if (got > 0) r->row = c->row + r->n_rows++;
    if (got == 0 && r->n_rows != c->n_rows)
        return err_set(e, ERR_CORRUPT, "%s: damaged Parquet file: row group %lld has %lld rows, its footer says %lld",
                       r->file->listed->path, (long long)r->chunk, (long long)r->n_rows, (long long)c->n_rows);
    return got;
}

static void go_on(struct table *r)
{
    r->chunk++;
    r->begun = r->has_ahead = false;
    r->n_rows = 0;
    count_done(r);
}

static int table_next(void *reader, struct record *out, struct err *e)
{
    struct table *r = reader;
    while (r->chunk < r->end) {
        struct parquet_value v = {0};
        int got = next_row(r, &v, e);
        if (got < 0 && (got = bad_record(r->file->bad, got, e)) < 0) return got;
        if (got == 0) go_on(r);
        if (got > 0 && v.there && v.n) {
            *out = (struct record){.text = v.p, .n = v.n, .offset = r->row};
            return 1;
        }
    }
    return 0;
}

static void table_place(const void *reader, char out[RECORD_PLACE])
{
    const struct table *r = reader;
    snprintf(out, RECORD_PLACE, "%.500s: row %lld", r->file->listed->path, (long long)r->row);
}

static int table_cut(void *reader, int64_t bytes, struct unit_list *l, struct err *e)
{
    const struct table *r = reader;
    int64_t from = 0, in = 0, n = r->meta.n_chunks;
    (void)e;
    for (int64_t i = 0; i < n; i++) {
        in += r->meta.chunks[i].end - r->meta.chunks[i].begin;
        if (in < bytes && i + 1 < n) continue;
        unit_list_add(l, from, i + 1 < n ? i + 1 : INT64_MAX);
        from = i + 1;
        in = 0;
    }
    return OK;
}

static void table_close(void *reader)
{
    struct table *r = reader;
    if (!r) return;
    parquet_pages_fini(&r->pages);
    parquet_meta_fini(&r->meta);
    str_free(&r->text);
    xfree(r);
}

const struct record_format format_parquet = {
    .name = "parquet",
    .endings = ".parquet",
    .begins = table_begins,
    .open = table_open,
    .next = table_next,
    .place = table_place,
    .cut = table_cut,
    .close = table_close,
};
