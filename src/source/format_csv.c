/* SPDX-License-Identifier: Apache-2.0 */
/* format_csv.c: a document per row after the first, which names the columns (csv_rows.h). Rows that span lines make it
 * impossible to begin in the middle, so such a file is read in one part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "source/csv_rows.h"
#include "source/record_format.h"

struct csv {
    struct record_file *file;
    char mark; /* between columns */
    int text_column, n_columns;
    int64_t line; /* of the last row */
    /* Where rows are wanted as lines, too: */
    char *header, *field; /* the first row; one field of a row */
    size_t header_n, field_room;
    struct str name, json; /* of a column; of the last row */
};

/* A name or a value as text that ends with a NUL; what else is one becomes U+FFFD where it is written. */
static const char *end_text(char *p, size_t n, struct str *copy)
{
    for (size_t i = 0; i < n; i++)
        if (!p[i]) p[i] = (char)0xFF;
    str_clear(copy);
    str_add(copy, p, n);
    return str_text(copy);
}

/* The row as an object: each column by its name; those beyond the header are left out. */
static void put_row(struct csv *r, const char *row, size_t n)
{
    struct json_out o = {.s = &r->json};
    struct str value = {0};
    size_t need = (n > r->header_n ? n : r->header_n) + 1, at = 0, header_at = 0, length;
    if (need > r->field_room) {
        xfree(r->field);
        r->field = xmalloc(r->field_room = 2 * need);
    }
    str_clear(&r->json);
    json_begin_object(&o, NULL);
    while (csv_take(r->header, r->header_n, r->mark, &header_at, r->field, &length)) {
        const char *name = end_text(r->field, length, &r->name);
        if (!csv_take(row, n, r->mark, &at, r->field, &length)) break;
        json_put_string(&o, name, end_text(r->field, length, &value));
    }
    json_end_object(&o);
    str_free(&value);
}

/* A quote that is a letter of an unquoted table, or one that was not doubled: rows may have become one by it. */
static int stray(const struct csv *r, const struct csv_scan *scan, struct err *e)
{
    long long from = (long long)r->file->buffer.line + 1;
    return err_set(e, ERR_CORRUPT,
                   "%s:%lld: a quoted field that begins in this row goes on behind its closing quote, on line %lld; "
                   "write its quotes twice and the field in quotes (RFC 4180), or the table as .jsonl",
                   r->file->listed->path, from, from + (long long)scan->stray_line);
}

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
        if (*n && scan.stray) return stray(r, &scan, e);
        if (*n) return 1;
        if (b->at_end) return 0;
        int code = source_buffer_fill(b, e);
        if (code) return code;
    }
}

struct column {
    const char *name;
    size_t n;
    int number;
};

static int by_name(const void *a, const void *b)
{
    const struct column *x = a, *y = b;
    int order = memcmp(x->name, y->name, x->n < y->n ? x->n : y->n);
    return order ? order : x->n != y->n ? (x->n < y->n ? -1 : 1) : x->number - y->number;
}

/* Two columns of one name: which is meant? Of the text's always; where rows are wanted as objects of any. */
static int check_columns(const struct csv *r, const char *header, size_t n, struct err *e)
{
    struct column *c = xmalloc((size_t)r->n_columns * sizeof *c);
    char *names = xmalloc(n + 1);
    size_t at = 0, out = 0, of_text = strlen(r->file->column);
    int code = OK, all = 0;
    for (; all < r->n_columns && csv_take(header, n, r->mark, &at, names + out, &c[all].n); out += c[all++].n)
        c[all] = (struct column){names + out, c[all].n, all + 1};
    qsort(c, (size_t)all, sizeof *c, by_name);
    for (int i = 1; i < all && !code; i++) {
        bool same = c[i].n == c[i - 1].n && !memcmp(c[i].name, c[i - 1].name, c[i].n);
        bool text = c[i].n == of_text && !memcmp(c[i].name, r->file->column, of_text);
        if (same && (text || r->file->lines))
            code = err_set(e, ERR_REQUEST, "%s: its columns %d and %d are both called \"%.*s\"; rename one",
                           r->file->listed->path, c[i - 1].number, c[i].number, c[i].n < 100 ? (int)c[i].n : 100,
                           c[i].name);
    }
    xfree(names);
    xfree(c);
    return code;
}

/* The header, which must end within the buffer, names the column: 1; 0: it does not; < 0: twice. Its other columns into
 * names; nothing where it does not end. */
static int read_header(struct csv *r, struct str *names, struct err *e)
{
    struct source_buffer *b = &r->file->buffer;
    const char *column = r->file->column;
    struct csv_scan scan = {0};
    size_t length;
    if (b->n >= 3 && !memcmp(b->buf, "\xEF\xBB\xBF", 3)) b->at += 3;
    size_t n = csv_record(&scan, b->buf + b->at, b->n - b->at, b->at_end, r->mark);
    if (!n || scan.inside || scan.stray) return 0;
    r->n_columns = csv_columns(b->buf + b->at, n, r->mark);
    for (r->text_column = 0; r->text_column < r->n_columns; r->text_column++) {
        char *copy = xstrndup(b->buf + b->at, n), *name = csv_field(copy, n, r->mark, r->text_column, &length);
        bool found = name && length == strlen(column) && !memcmp(name, column, length);
        if (name && names->n < 200)
            str_printf(names, "%s%.*s", names->n ? ", " : "", length < 60 ? (int)length : 60, name);
        xfree(copy);
        if (!found) continue;
        int code = check_columns(r, b->buf + b->at, n, e);
        if (code) return code;
        if (r->file->lines) {
            r->header = xstrndup(b->buf + b->at, n);
            r->header_n = n;
        }
        b->at += n;
        b->line += scan.lines;
        return 1;
    }
    return 0;
}

/* "12", "-0.5", "1e9"; *real: with a point or an exponent. */
static bool is_number(const char *p, size_t n, bool *real)
{
    size_t i = n && (p[0] == '-' || p[0] == '+'), digits = 0;
    for (; i < n && strchr("0123456789.eE+-", p[i]); i++) {
        digits += p[i] >= '0' && p[i] <= '9';
        *real |= p[i] == '.' || p[i] == 'e' || p[i] == 'E';
        if ((p[i] == '+' || p[i] == '-') && i && p[i - 1] != 'e' && p[i - 1] != 'E') return false;
    }
    return n && i == n && digits;
}

/* Rows at the beginning, as far as they are in the buffer, whose text is a number in each: a column of ids or scores
 * that was named by mistake. Fewer than ten say nothing. The first one's into example. */
static bool holds_numbers(const struct csv *r, char example[40], bool *real)
{
    enum { LEAST = 10, MOST = 100 };
    const struct source_buffer *b = &r->file->buffer;
    size_t at = b->at, n, length;
    int rows = 0;
    bool numbers = true;
    for (int seen = 0; seen < MOST && numbers; seen++, at += n) {
        struct csv_scan scan = {0};
        n = csv_record(&scan, b->buf + at, b->n - at, b->at_end, r->mark);
        if (!n || scan.inside) break;
        char *copy = xstrndup(b->buf + at, n), *field = csv_field(copy, n, r->mark, r->text_column, &length);
        if (field && length) numbers = is_number(field, length, real);
        if (field && length && !rows++ && numbers) snprintf(example, 40, "%.*s", length < 39 ? (int)length : 39, field);
        xfree(copy);
    }
    return numbers && rows >= LEAST;
}

static int refuse_numbers(struct csv *r, const char *example, bool real, struct err *e)
{
    struct str names = {0};
    const char *column = r->file->column;
    r->file->buffer.at = 0;
    r->file->column = ""; /* no column is called so: all names are told */
    (void)read_header(r, &names, e);
    r->file->column = column;
    int code = err_set(e, ERR_REQUEST,
                       "%s: column \"%s\" holds %s numbers (%s in its first row), no text; its columns: %s; say which "
                       "is the text: column: NAME beside its path in a config, or --column NAME (numbers that are "
                       "meant as texts: as strings of a .jsonl)",
                       r->file->listed->path, column, real ? "real" : "whole", example, str_text(&names));
    str_free(&names);
    return code;
}

static int csv_open(void **reader, struct record_file *f, struct err *e)
{
    struct csv r = {.file = f, .mark = record_file_ends(f, ".csv") ? ',' : '\t'};
    struct str names = {0};
    int code = read_header(&r, &names, e);
    if (code == 0) {
        f->buffer.at = 0;
        if (f->listed->named && !r.n_columns)
            code = err_set(e, ERR_CORRUPT,
                           "%s:1: a quoted field that begins in this row does not end, or goes on behind its closing "
                           "quote",
                           f->listed->path);
        else if (f->listed->named)
            code = err_set(e, ERR_REQUEST,
                           "%s: its first row has no column \"%s\", but %s; say which is the text: column: NAME beside "
                           "its path in a config, or --column NAME",
                           f->listed->path, f->column, str_text(&names));
        else {
            err_set(e, ERR_REQUEST, "has no column \"%s\"", f->column);
        }
    }
    str_free(&names);
    char example[40];
    bool real = false;
    if (code == 1 && holds_numbers(&r, example, &real)) {
        xfree(r.header);
        code = refuse_numbers(&r, example, real, e);
    }
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
        if (got == ERR_CORRUPT && n) {
            bool ends = b->at == b->n;
            if ((got = bad_record(r->file->bad, got, e)) || ends) return got;
            b->at += n;
            b->line += lines;
            continue;
        }
        if (got <= 0) return got;
        char *row = b->buf + b->at;
        *out = (struct record){.offset = source_buffer_offset(b)};
        b->at += n;
        b->line += lines;
        if (record_blank(row, n)) continue;
        int columns = csv_columns(row, n, r->mark);
        if (columns > r->n_columns) {
            int code = err_set(e, ERR_CORRUPT,
                               "%s:%lld: this row has %d columns, and the header %d; put fields with a mark in them in "
                               "quotes",
                               r->file->listed->path, (long long)r->line, columns, r->n_columns);
            if ((code = bad_record(r->file->bad, code, e))) return code;
            continue;
        }
        if (r->header) put_row(r, row, n);
        out->text = csv_field(row, n, r->mark, r->text_column, &out->n);
        if (!out->text) {
            int code = err_set(e, ERR_CORRUPT, "%s:%lld: this row has %d columns of the header's %d, and no \"%s\"",
                               r->file->listed->path, (long long)r->line, columns, r->n_columns, r->file->column);
            if ((code = bad_record(r->file->bad, code, e))) return code;
        }
        if (out->n && out->text && r->header) {
            out->line = str_text(&r->json);
            out->line_n = r->json.n;
            out->members = columns;
        }
        if (out->n && out->text) return 1;
    }
}

static void csv_close(void *reader)
{
    struct csv *r = reader;
    if (!r) return;
    xfree(r->header);
    xfree(r->field);
    str_free(&r->name);
    str_free(&r->json);
    xfree(r);
}

const struct record_format format_csv = {
    .name = "csv",
    .endings = ".csv .tsv",
    .letters = true,
    .open = csv_open,
    .next = csv_next,
    .place = csv_place,
    .close = csv_close,
};
