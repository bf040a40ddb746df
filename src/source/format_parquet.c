/* SPDX-License-Identifier: Apache-2.0 */
/* format_parquet.c: a Parquet table: a document per row, the text of one column. Nulls and empty texts are passed over;
 * the items of a list become one document, a line each. Only that column's bytes are read. A part of a file is some of
 * its row groups; one that is damaged is a bad record. Where whole records are wanted, a row is one (parquet_record.h).
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "source/parquet_pages.h"
#include "source/parquet_record.h"
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
    struct str text;               /* of a list: its items; of a whole record: its JSON */
    struct parquet_record *record; /* where whole records are wanted: then meta and pages are not used */
    struct parquet_record *beside; /* where rows are wanted as lines, too: the same rows, one by one; NULL: not kept */
    struct str line;               /* of the row, from it */
};

/* Behind its name a page's head or the footer begins, with a field 1 of type i32. */
static bool table_begins(const unsigned char *p, size_t n) { return n >= 5 && !memcmp(p, "PAR1\x15", 5); }

static void table_close(void *reader);

static const struct parquet_meta *meta_of(const struct table *r)
{
    return r->record ? parquet_record_meta(r->record) : &r->meta;
}

static int table_open(void **reader, struct record_file *f, struct err *e)
{
    if (source_buffer_packed(&f->buffer))
        return err_set(e, ERR_REQUEST, "%s: is a Parquet table that was packed once more; unpack it first",
                       f->listed->path);
    struct table *r = xcalloc(1, sizeof *r);
    r->file = f;
    int code =
        f->whole ? parquet_record_open(&r->record, f->blob, e) : parquet_meta_read(&r->meta, f->blob, f->column, e);
    if (!code && f->whole && !r->record) {
        xfree(r);
        bool named = f->listed->named;
        code = err_set(e, ERR_REQUEST, "%s%sis a Parquet table without a column of text", named ? f->listed->path : "",
                       named ? ": " : "");
        return named ? code : 0;
    }
    if (code) {
        xfree(r);
        if (code != ERR_REQUEST || f->listed->named || f->whole) return code;
        err_set(e, ERR_REQUEST, "is a Parquet table without a column \"%s\" of text", f->column);
        return 0;
    }
    if (!f->whole) parquet_pages_init(&r->pages, f->blob, &r->meta);
    if (!f->whole && f->lines) {
        code = parquet_record_open(&r->beside, f->blob, e);
        if (code == ERR_REQUEST && !f->quiet) log_warn("data: %s; its other columns are not kept", e->text);
        if (code) r->beside = NULL;
        if (code && code != ERR_REQUEST) {
            table_close(r);
            return code;
        }
    }
    r->chunk = f->from;
    r->end = f->to < meta_of(r)->n_chunks ? f->to : meta_of(r)->n_chunks;
    f->done = 0;
    *reader = r;
    return 1;
}

/* The share of the file that lies behind, for progress. */
static void count_done(struct table *r)
{
    const struct parquet_meta *m = meta_of(r);
    int64_t of = m->n_rows, rows = r->chunk < m->n_chunks ? m->chunks[r->chunk].row : of;
    int64_t from = r->file->from < m->n_chunks ? m->chunks[r->file->from].row : of;
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
    *v = (struct parquet_value){.begins_row = true, .there = r->text.n > 0, .p = str_text(&r->text), .n = r->text.n};
    return 1;
}

static int next_record(struct table *r, struct parquet_value *v, struct err *e)
{
    int got = r->begun ? OK : parquet_record_go(r->record, r->chunk, e);
    r->begun = true;
    if (!got) got = parquet_record_next(r->record, &r->text, e);
    *v = (struct parquet_value){.there = got > 0, .p = str_text(&r->text), .n = r->text.n};
    return got;
}

/* The same row as a line. */
static int next_beside(struct table *r, struct err *e)
{
    int got = r->n_rows == 0 ? parquet_record_go(r->beside, r->chunk, e) : OK;
    if (!got) got = parquet_record_next(r->beside, &r->line, e);
    if (got != 0) return got;
    return err_set(e, ERR_CORRUPT, "%s: damaged Parquet file: row group %lld: its columns have not as many rows each",
                   r->file->listed->path, (long long)r->chunk);
}

/* The next row of the row group, with text or without. */
static int next_row(struct table *r, struct parquet_value *v, struct err *e)
{
    const struct parquet_chunk *c = &meta_of(r)->chunks[r->chunk];
    if (c->n_rows == 0 && !c->wrong) return 0; /* empty shards of other writers have such a group */
    int got = r->record ? next_record(r, v, e) : r->meta.max_rep ? next_list(r, v, e) : next_value(r, v, e);
    if (got > 0 && r->beside) got = next_beside(r, e);
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
            if (r->beside) {
                out->line = str_text(&r->line);
                out->line_n = r->line.n;
                out->members = 2; /* the text, and maybe others */
            }
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
    const struct parquet_meta *m = meta_of(reader);
    int64_t from = 0, in = 0, n = m->n_chunks;
    (void)e;
    for (int64_t i = 0; i < n; i++) {
        in += m->chunks[i].end - m->chunks[i].begin;
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
    parquet_record_close(r->record);
    parquet_record_close(r->beside);
    str_free(&r->line);
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
