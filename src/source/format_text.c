/* SPDX-License-Identifier: Apache-2.0 */
/* format_text.c: a file is one document, handed out buffer by buffer. Its bytes are taken as they are, valid UTF-8 or
 * not. Where bad records are skipped such a file is read through once before: what was handed out cannot be taken back.
 */
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "source/record_format.h"
#include "text/utf8.h"

struct text {
    struct record_file *file;
    bool begun;
};

/* A file that reads as text but was meant as records, or as something else: it is taken as it stands, and that is said.
 */
static void say_as_text(const struct record_file *f)
{
    static const char *const kinds[] = {".json", ".yaml", ".yml", ".html", ".xml"};
    if (f->quiet) return;
    if (json_shape_of(f) != JSON_NONE)
        log_warn("data: %s is read as plain text, as its name has it, and begins as records of JSON do; for a document "
                 "of each call it .jsonl",
                 f->listed->path);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && f->listed->named; i++)
        if (record_file_ends(f, kinds[i]))
            log_warn("data: %s is read as plain text, one document with all its marks; records are objects with a "
                     "member \"%s\", a line each or in one list",
                     f->listed->path, f->column);
}

/* ERR_CORRUPT with the offset of the first byte that is no UTF-8, or how else reading fails. */
static int read_through(const struct record_file *f, struct err *e)
{
    struct source_buffer b;
    source_buffer_init(&b, f->blob, f->listed->bytes);
    int code = OK;
    while (!code && !b.at_end) {
        code = source_buffer_fill(&b, e);
        if (code) break;
        const unsigned char *p = (unsigned char *)b.buf;
        b.at = utf8_run(p, b.n);
        if (b.at < b.n && (b.at_end || utf8_char(p + b.at, b.n - b.at) == 0))
            code = err_set(e, ERR_CORRUPT, "%s: byte %lld is no valid UTF-8", f->listed->path,
                           (long long)source_buffer_offset(&b));
    }
    source_buffer_fini(&b);
    return code;
}

static int text_open(void **reader, struct record_file *f, struct err *e)
{
    if (f->listed->named && f->whole)
        return err_set(e, ERR_REQUEST, "%s: is plain text, no file of records (.jsonl)", f->listed->path);
    if (f->listed->named && f->chosen)
        return err_set(e, ERR_REQUEST,
                       "%s: has no column \"%s\": it is plain text, no .jsonl, .csv, .tsv or .parquet file",
                       f->listed->path, f->column);
    say_as_text(f);
    bool begun = false;
    if (f->bad->skip && !f->quiet) {
        int code = read_through(f, e);
        begun = code;
        if (code) code = bad_record(f->bad, code, e);
        if (code) return code;
    }
    struct text *r = xmalloc(sizeof *r);
    *r = (struct text){f, begun};
    *reader = r;
    return 1;
}

static int text_next(void *reader, struct record *out, struct err *e)
{
    struct text *r = reader;
    (void)e;
    *out = (struct record){0};
    if (r->begun) return 0;
    r->begun = true;
    return r->file->buffer.n > 0;
}

static int text_read(void *reader, const char **p, size_t *n, struct err *e)
{
    struct source_buffer *b = &((struct text *)reader)->file->buffer;
    if (b->at == b->n && !b->at_end) {
        int code = source_buffer_fill(b, e);
        if (code) return code;
    }
    *p = b->buf + b->at;
    *n = b->n - b->at;
    b->at = b->n;
    return *n > 0;
}

static void text_place(const void *reader, char out[RECORD_PLACE])
{
    snprintf(out, RECORD_PLACE, "%.500s", ((const struct text *)reader)->file->listed->path);
}

static void text_close(void *reader) { xfree(reader); }

const struct record_format format_text = {
    .name = "text",
    .endings = ".txt",
    .letters = true,
    .is_utf8 = true, /* or anything else: see above */
    .open = text_open,
    .next = text_next,
    .read = text_read,
    .place = text_place,
    .close = text_close,
};
