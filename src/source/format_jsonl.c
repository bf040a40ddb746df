/* SPDX-License-Identifier: Apache-2.0 */
/* format_jsonl.c: a record per line, an object whose member `column` is the text. Blank lines and empty texts are
 * passed over. A part of a file begins at the first line that begins in it and ends with the last that does: lines are
 * found again from any offset, so a large file that is not packed is read in parts by several readers at once. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "source/json_line.h"
#include "source/record_format.h"

struct jsonl {
    struct record_file *file;
    struct json_line line; /* the record, and the text in it, where one pass is enough; */
    struct json *record;   /* else all of it */
    int64_t at;            /* the offset of the record's line */
};

/* Is the first line of the buffer a record with a text? A line that goes on beyond the buffer is taken for one. */
static bool begins_with_record(const struct record_file *f)
{
    const struct source_buffer *b = &f->buffer;
    const char *newline = memchr(b->buf, '\n', b->n);
    if (!newline && !b->at_end && b->n == b->room) return true;
    struct json *record = NULL;
    struct err e;
    size_t n = newline ? (size_t)(newline - b->buf) : b->n;
    bool good = !json_parse_published(&record, b->buf, n, "", &e);
    if (good && f->whole) good = json_kind(record) == JSON_OBJECT;
    else if (good) good = json_string(record_member(record, f->column), NULL, NULL);
    json_free(record);
    return good;
}

/* A part begins behind the first newline at or after its offset less one: a line that begins there belongs to it. */
static int go_to(struct record_file *f, struct err *e)
{
    source_buffer_seek(&f->buffer, f->from - 1);
    return source_buffer_drop_line(&f->buffer, e);
}

static int jsonl_open(void **reader, struct record_file *f, struct err *e)
{
    if (!f->listed->named && !begins_with_record(f)) {
        err_set(e, ERR_REQUEST, "its lines have no member \"%s\"", f->column);
        return 0;
    }
    int code = f->from > 0 ? go_to(f, e) : OK;
    if (code) return code;
    struct jsonl *r = xcalloc(1, sizeof *r);
    r->file = f;
    *reader = r;
    return 1;
}

static void jsonl_place(const void *reader, char out[RECORD_PLACE])
{
    const struct jsonl *r = reader;
    snprintf(out, RECORD_PLACE, "%.500s:%lld", r->file->listed->path,
             (long long)source_buffer_line_number(&r->file->buffer));
}

/* What the record has where its text should be; NULL: nothing. */
static const char *instead_of_text(const struct jsonl *r)
{
    const struct json *v = r->record ? record_member(r->record, r->file->column) : NULL;
    if (!v) return NULL;
    switch (json_kind(v)) {
    case JSON_INT:
    case JSON_REAL: return "a number";
    case JSON_ARRAY: return "a list";
    case JSON_OBJECT: return "an object";
    case JSON_STRING: return NULL;
    default: return "null, true or false";
    }
}

static int no_text(const struct jsonl *r, struct err *e)
{
    char where[RECORD_PLACE];
    struct str names = {0};
    const char *has = instead_of_text(r);
    jsonl_place(r, where);
    for (void *it = json_kind(r->record) == JSON_OBJECT ? json_iter(r->record) : NULL; it && names.n < 200;
         it = json_iter_next(r->record, it))
        str_printf(&names, "%s%.60s", names.n ? ", " : "", json_iter_key(it));
    int code = r->file->whole ? err_set(e, ERR_CORRUPT, "%s: wanted an object", where)
                              : err_set(e, ERR_CORRUPT, "%s: wanted an object with a string member \"%s\"%s%s%s%s",
                                        where, r->file->column, has ? ", which is " : "", has ? has : "",
                                        names.n ? "; this one has " : "", str_text(&names));
    str_free(&names);
    return code;
}

/* One line as the record: 1; 0: it has an empty text. */
static int parse_line(struct jsonl *r, const char *line, size_t n, struct record *out, struct err *e)
{
    struct err plain;
    bool whole = r->file->whole;
    json_free(r->record);
    r->record = NULL;
    *out = (struct record){.offset = r->at, .line = line, .line_n = n};
    if (json_line_read(&r->line, line, n, whole ? NULL : r->file->column) && (whole || r->line.has_text)) {
        out->text = whole ? line : str_text(&r->line.text);
        out->n = whole ? n : r->line.text.n;
        out->members = r->line.n_members;
        return out->n > 0;
    }
    if (json_parse_published(&r->record, line, n, "", &plain)) {
        char where[RECORD_PLACE];
        jsonl_place(r, where);
        return json_parse_published(&r->record, line, n, where, e);
    }
    out->members = (int64_t)json_size(r->record);
    if (whole) {
        if (json_kind(r->record) != JSON_OBJECT) return no_text(r, e);
        out->text = line;
        out->n = n;
        return 1;
    }
    out->text = json_string(record_member(r->record, r->file->column), &out->n, NULL);
    if (!out->text) return no_text(r, e);
    return out->n > 0;
}

static int jsonl_next(void *reader, struct record *out, struct err *e)
{
    struct jsonl *r = reader;
    struct source_buffer *b = &r->file->buffer;
    for (;;) {
        size_t n = 0;
        r->at = source_buffer_offset(b);
        if (r->at >= r->file->to) return 0;
        int got = source_buffer_line(b, &n, e);
        if (got == ERR_REQUEST && b->n - b->at >= SOURCE_RECORD_MAX && !(got = bad_record(r->file->bad, got, e))) {
            if ((got = source_buffer_drop_line(b, e))) return got;
            continue;
        }
        if (got <= 0) return got;
        const char *line = b->buf + b->at;
        source_buffer_pass(b, n);
        if (record_blank(line, n)) continue;
        got = parse_line(r, line, n, out, e);
        if (got < 0) got = bad_record(r->file->bad, got, e);
        if (got) return got;
    }
}

static int jsonl_cut(void *reader, int64_t bytes, struct unit_list *l, struct err *e)
{
    const struct record_file *f = ((struct jsonl *)reader)->file;
    (void)e;
    if (source_buffer_packed(&f->buffer)) return OK;
    for (int64_t at = 0; at < f->listed->bytes; at += bytes)
        unit_list_add(l, at, at + bytes < f->listed->bytes ? at + bytes : INT64_MAX);
    return OK;
}

static void jsonl_close(void *reader)
{
    struct jsonl *r = reader;
    if (!r) return;
    json_free(r->record);
    str_free(&r->line.text);
    xfree(r);
}

const struct record_format format_jsonl = {
    .name = "jsonl",
    .endings = ".jsonl .ndjson",
    .letters = true,
    .is_utf8 = true,
    .open = jsonl_open,
    .next = jsonl_next,
    .place = jsonl_place,
    .cut = jsonl_cut,
    .close = jsonl_close,
};
