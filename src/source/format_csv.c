/* SPDX-License-Identifier: Apache-2.0 */
/* format_csv.c: a document per row after the first, which names the columns (csv_rows.h). Rows that span lines make it
 * impossible to begin in the middle, so such a file is read in one part. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "source/csv_rows.h"
#include "source/record_format.h"

struct csv {
    struct record_file *file;
    char mark; /* between columns */
    int text_column, n_columns;
    int64_t line; /* of the last row */
};

/* The record that begins at buf[at): *n bytes with its line end, *lines of them; 0: no more. */
static int next_row(struct csv *r, size_t *n, int64_t *lines, struct err *e)
{
    struct source_buffer *b = &r->file->buffer;
    struct csv_scan scan = {0};
    for (;;) {
        *n = csv_record(&scan, b->buf + b->at, b->n - b->at, b->at_end, r->mark);
        if (*n && scan.inside) {
            err_set(e, ERR_CORRUPT, "%s:%lld: a quoted field that begins in this row does not end",
                    r->file->listed->path, (long long)b->line + 1);
            b->at += *n; /* who skips it goes on at the end */
            return ERR_CORRUPT;
        }
        *lines = scan.lines;
        if (*n) return 1;
        if (b->at_end) return 0;
        int code = source_buffer_fill(b, e);
        if (code) return code;
    }
}

/* The header, which must end within the buffer, names the column. Its other columns into names; nothing where it does
 * not end. */
static bool read_header(struct csv *r, struct str *names)
{
    struct source_buffer *b = &r->file->buffer;
    const char *column = r->file->column;
    struct csv_scan scan = {0};
    size_t length;
    if (b->n >= 3 && !memcmp(b->buf, "\xEF\xBB\xBF", 3)) b->at += 3;
    size_t n = csv_record(&scan, b->buf + b->at, b->n - b->at, b->at_end, r->mark);
    if (!n || scan.inside) return false;
    r->n_columns = csv_columns(b->buf + b->at, n, r->mark);
    for (r->text_column = 0; r->text_column < r->n_columns; r->text_column++) {
        char *copy = xstrndup(b->buf + b->at, n), *name = csv_field(copy, n, r->mark, r->text_column, &length);
        bool found = name && length == strlen(column) && !memcmp(name, column, length);
        if (name && names->n < 200)
            str_printf(names, "%s%.*s", names->n ? ", " : "", length < 60 ? (int)length : 60, name);
        xfree(copy);
        if (!found) continue;
        b->at += n;
        b->line += scan.lines;
        return true;
    }
    return false;
}

static int csv_open(void **reader, struct record_file *f, struct err *e)
{
    struct csv r = {.file = f, .mark = record_file_ends(f, ".csv") ? ',' : '\t'};
    struct str names = {0};
    int code = 1;
    if (!read_header(&r, &names)) {
        f->buffer.at = 0;
        if (f->listed->named && !r.n_columns)
            code =
                err_set(e, ERR_CORRUPT, "%s:1: a quoted field that begins in this row does not end", f->listed->path);
        else if (f->listed->named)
            code = err_set(e, ERR_REQUEST,
                           "%s: its first row has no column \"%s\", but %s; say which is the text: column: NAME beside "
                           "its path in a config, or --column NAME",
                           f->listed->path, f->column, str_text(&names));
        else {
            err_set(e, ERR_REQUEST, "has no column \"%s\"", f->column);
            code = 0;
        }
    }
    str_free(&names);
    if (code != 1) return code;
    struct csv *kept = xmalloc(sizeof *kept);
    *kept = r;
    *reader = kept;
    return 1;
}

static void csv_place(const void *reader, char out[RECORD_PLACE])
{
    const struct csv *r = reader;
    snprintf(out, RECORD_PLACE, "%.500s:%lld", r->file->listed->path, (long long)r->line);
}

static int csv_next(void *reader, struct record *out, struct err *e)
{
    struct csv *r = reader;
    struct source_buffer *b = &r->file->buffer;
    for (;;) {
        size_t n = 0;
        int64_t lines = 0;
        r->line = b->line + 1;
        int got = next_row(r, &n, &lines, e);
        if (got == ERR_CORRUPT && b->at_end && b->at == b->n) got = bad_record(r->file->bad, got, e);
        if (got <= 0) return got;
        char *row = b->buf + b->at;
        *out = (struct record){.offset = source_buffer_offset(b)};
        b->at += n;
        b->line += lines;
        if (record_blank(row, n)) continue;
        int columns = csv_columns(row, n, r->mark);
        out->text = csv_field(row, n, r->mark, r->text_column, &out->n);
        if (!out->text) {
            int code = err_set(e, ERR_CORRUPT, "%s:%lld: this row has %d columns of the header's %d, and no \"%s\"",
                               r->file->listed->path, (long long)r->line, columns, r->n_columns, r->file->column);
            if ((code = bad_record(r->file->bad, code, e))) return code;
        }
        if (out->n && out->text) return 1;
    }
}

static void csv_close(void *reader) { xfree(reader); }

const struct record_format format_csv = {
    .name = "csv",
    .endings = ".csv .tsv",
    .letters = true,
    .open = csv_open,
    .next = csv_next,
    .place = csv_place,
    .close = csv_close,
};
