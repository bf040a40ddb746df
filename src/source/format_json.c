/* SPDX-License-Identifier: Apache-2.0 */
/* format_json.c: JSON records that do not stand on a line each: objects in one list, as json.dump writes a data set, or
 * one behind the other over several lines; and what tells records from other JSON, and from text, by the first bytes of
 * a file whose name does not say it (shards named .json and .json.gz, or without an ending).
 *
 * A value's end is found by counting what opens and closes outside of strings, so only one value is in memory at a
 * time, however long the list is. Such a file is read in one part: where a value begins cannot be told from its middle.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "source/json_record.h"
#include "source/record_format.h"

/* How far a value has been looked through. */
struct value_scan {
    size_t at; /* bytes of it that were seen */
    int64_t depth;
    bool in_string, escaped;
};

struct values {
    struct record_file *file;
    struct json_record record;
    bool in_list, over; /* the file is one list; nothing follows */
    int64_t n;          /* values so far */
    int64_t line;       /* that the last one begins on, from 1 */
};

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Bytes of the value that begins at p, up to the bracket that closes it, or of what is no object or list up to what
 * ends it; 0: it goes on beyond p[n). */
static size_t value_end(struct value_scan *s, const char *p, size_t n, bool at_end)
{
    for (; s->at < n; s->at++) {
        char c = p[s->at];
        if (s->in_string) {
            if (s->escaped) s->escaped = false;
            else if (c == '\\') s->escaped = true;
            else if (c == '"') s->in_string = false;
        } else if (c == '"') {
            s->in_string = true;
        } else if (c == '{' || c == '[') {
            s->depth++;
        } else if (c == '}' || c == ']') {
            if (s->depth == 0) return s->at; /* of the list around it */
            if (--s->depth == 0) return s->at + 1;
        } else if (s->depth == 0 && (c == ',' || is_space(c))) {
            return s->at;
        }
    }
    return at_end ? n : 0;
}

/* -- by the first bytes ------------------------------------------------------------------------------------------- */

/* The first value, an object, in the buffer: its place, and its bytes, 0 where it does not end there. False: the file
 * does not begin with one. */
static bool first_object(const struct source_buffer *b, bool *in_list, size_t *at, size_t *n)
{
    size_t i = b->n >= 3 && !memcmp(b->buf, "\xEF\xBB\xBF", 3) ? 3 : 0;
    while (i < b->n && is_space(b->buf[i])) i++;
    *in_list = i < b->n && b->buf[i] == '[';
    for (i += *in_list; i < b->n && is_space(b->buf[i]);) i++;
    struct value_scan s = {0};
    *at = i;
    if (i == b->n || b->buf[i] != '{') return false;
    *n = value_end(&s, b->buf + i, b->n - i, false);
    return true;
}

/* Another object begins behind the first: on the next line, or in the list. */
static bool another_follows(const struct source_buffer *b, bool in_list, size_t end, bool *lines)
{
    size_t i = end;
    *lines = false;
    for (; i < b->n && (is_space(b->buf[i]) || (in_list && b->buf[i] == ',')); i++) *lines |= b->buf[i] == '\n';
    return i < b->n && b->buf[i] == '{';
}

enum json_shape json_shape_of(const struct record_file *f)
{
    const struct source_buffer *b = &f->buffer;
    bool named_json = record_file_ends(f, ".json"), in_list, lines;
    size_t at, n;
    if (!first_object(b, &in_list, &at, &n)) return JSON_NONE;
    if (!n) return named_json ? JSON_VALUES : JSON_NONE; /* it is read on */
    bool fits = json_record_fits(f, b->buf + at, n), more = another_follows(b, in_list, at + n, &lines);
    bool one_line = !in_list && !memchr(b->buf + at, '\n', n);
    if (!fits && !(named_json && (more || in_list || f->chosen))) return JSON_NONE;
    if (one_line && (lines || !more)) return JSON_LINES;
    return more && !in_list && !lines && !named_json ? JSON_NONE : JSON_VALUES;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

static void values_place(const void *reader, char out[RECORD_PLACE])
{
    const struct values *r = reader;
    snprintf(out, RECORD_PLACE, "%.500s:%lld", r->file->listed->path, (long long)r->line);
}

/* The next byte that is no white space; 0: the file is at its end; < 0. */
static int peek(struct source_buffer *b, struct err *e)
{
    for (;;) {
        for (; b->at < b->n && is_space(b->buf[b->at]); b->at++) b->line += b->buf[b->at] == '\n';
        if (b->at < b->n) return (unsigned char)b->buf[b->at] ? (unsigned char)b->buf[b->at] : 1;
        if (b->at_end) return 0;
        int code = source_buffer_fill(b, e);
        if (code) return code;
    }
}

static int broken(struct values *r, const char *what, struct err *e)
{
    char where[RECORD_PLACE];
    r->line = r->file->buffer.line + 1;
    values_place(r, where);
    r->over = true;
    return err_set(e, ERR_CORRUPT, "%s: %s", where, what);
}

/* Goes to where the next value begins: 1; 0: there is none; < 0. */
static int go_on(struct values *r, struct err *e)
{
    struct source_buffer *b = &r->file->buffer;
    int c = peek(b, e);
    if (c < 0 || (c == 0 && !r->in_list)) return c;
    if (c == 0) return broken(r, "the list that the file is does not end; it was cut short", e);
    bool comma = r->in_list && r->n && c == ',';
    if (comma) b->at++;
    if (comma && (c = peek(b, e)) < 0) return c;
    bool none = c == 0 || strchr(",]}", c);
    if (none && (comma || !r->in_list || c != ']')) return broken(r, "a value was wanted", e);
    if (!none && r->in_list && r->n && !comma) return broken(r, "wanted a comma between the values of the list", e);
    if (!none) return 1;
    b->at++;
    if ((c = peek(b, e)) < 0) return c;
    return c ? broken(r, "something follows behind the list that the file is", e) : 0;
}

/* Line ends within a value are white space, and what is written of records elsewhere has a line each. */
static void make_one_line(char *p, size_t n, int64_t *lines)
{
    for (size_t i = 0; i < n; i++) {
        *lines += p[i] == '\n';
        if (p[i] == '\n' || p[i] == '\r') p[i] = ' ';
    }
}

static int values_next(void *reader, struct record *out, struct err *e)
{
    struct values *r = reader;
    struct source_buffer *b = &r->file->buffer;
    for (;;) {
        if (r->over) return 0;
        int got = go_on(r, e);
        if (got <= 0) return r->over = true, got;
        struct value_scan s = {0};
        size_t n;
        while (!(n = value_end(&s, b->buf + b->at, b->n - b->at, b->at_end))) {
            if (b->at_end) return broken(r, "a value was wanted", e);
            int code = source_buffer_fill(b, e);
            if (code) return r->over = true, code;
        }
        char *p = b->buf + b->at, where[RECORD_PLACE];
        r->line = b->line + 1;
        r->n++;
        if (s.depth || s.in_string) return broken(r, "a value that begins here does not end; it was cut short", e);
        *out = (struct record){.offset = source_buffer_offset(b)};
        make_one_line(p, n, &b->line);
        b->at += n;
        values_place(r, where);
        got = json_record_take(&r->record, r->file, where, p, n, out, e);
        if (got < 0) got = bad_record(r->file->bad, got, e);
        if (got) return got;
    }
}

/* The first value, of which more is read where the buffer has not all of it. A file that was found in a folder and is
 * longer than that without an end is no file of records. */
static int first_fits(struct record_file *f, bool *in_list, bool *more, struct err *e)
{
    enum { FOUND_MOST = 4 << 20 };
    struct source_buffer *b = &f->buffer;
    size_t at, n;
    bool lines;
    *in_list = *more = false;
    while (first_object(b, in_list, &at, &n) && !n) {
        if (b->at_end || (!f->listed->named && b->n >= FOUND_MOST)) return 0;
        int code = source_buffer_fill(b, e);
        if (code) return code;
    }
    *more = *in_list || another_follows(b, false, at + n, &lines);
    return json_record_fits(f, b->buf + at, n);
}

static int values_open(void **reader, struct record_file *f, struct err *e)
{
    struct source_buffer *b = &f->buffer;
    bool in_list, more;
    int fits = first_fits(f, &in_list, &more, e);
    if (fits < 0) return fits;
    /* Of a file that a person named, what looks like records is to be records: what they lack is said when they are
     * read. One object alone is a text like others. */
    if (!fits && !(f->listed->named && (more || f->chosen || f->whole))) {
        err_set(e, ERR_REQUEST, "its records have no member \"%s\"", f->column);
        return 0;
    }
    struct values *r = xcalloc(1, sizeof *r);
    r->file = f;
    r->in_list = in_list;
    if (b->n >= 3 && !memcmp(b->buf, "\xEF\xBB\xBF", 3)) b->at = 3;
    int c = peek(b, e);
    if (c < 0) {
        xfree(r);
        return c;
    }
    b->at += in_list;
    *reader = r;
    return 1;
}

static void values_close(void *reader)
{
    struct values *r = reader;
    if (!r) return;
    json_record_fini(&r->record);
    xfree(r);
}

const struct record_format format_json = {
    .name = "json",
    .endings = ".json",
    .letters = true,
    .is_utf8 = true,
    .open = values_open,
    .next = values_next,
    .place = values_place,
    .close = values_close,
};
