/* SPDX-License-Identifier: Apache-2.0 */
/* format_jsonl.c: a record per line, an object whose member `column` is the text. Blank lines and texts that are empty
 * or null are passed over. A part of a file begins at the first line that begins in it and ends with the last that
 * does: lines are found again from any offset, so a large file that is not packed is read in parts by several readers
 * at once. Files of such lines under other names are told by their first bytes (format_json.c). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "source/json_record.h"
#include "source/record_format.h"

struct jsonl {
    struct record_file *file;
    struct json_record record;
    int64_t at; /* the offset of the record's line */
};

/* Is one of the lines in the buffer a record with a text? A line that goes on beyond the buffer is taken for one. One
 * is enough: a file of records whose first is bad is still no plain text. */
static bool begins_with_record(const struct record_file *f)
{
    const struct source_buffer *b = &f->buffer;
    const char *end = b->buf + b->n;
    for (const char *line = b->buf; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline && !b->at_end && line == b->buf) return true;
        if (!newline && !b->at_end) return false;
        if (json_record_fits(f, line, (size_t)((newline ? newline : end) - line))) return true;
        line = newline ? newline + 1 : end;
    }
    return false;
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

/* One line as the record: 1; 0: it has an empty text, or none (null). Where it is, is asked of what is wrong alone: it
 * may take reading the file up to there. */
static int parse_line(struct jsonl *r, const char *line, size_t n, struct record *out, struct err *e)
{
    *out = (struct record){.offset = r->at};
    int got = json_record_take(&r->record, r->file, "", line, n, out, e);
    if (got >= 0) return got;
    char where[RECORD_PLACE];
    jsonl_place(r, where);
    return json_record_take(&r->record, r->file, where, line, n, out, e);
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
    json_record_fini(&r->record);
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
