/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: one file open at a time, read through one buffer.
 *
 * A file packed by gzip or zstd is read as what it holds. A text file is handed out buffer by buffer. A .jsonl file is
 * handed out line by line; a line is the only thing that may make the buffer grow, and only up to LINE_MAX_BYTES.
 * Advice to the kernel to read ahead is all the overlap that is needed: the tokenizer, not the disk, sets the pace.
 */
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/magic.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/csv_rows.h"
#include "data/source_list.h"
#include "data/unpack.h"
#include "data/utf8.h"

enum kind { TEXT, JSONL, CSV };
enum { BUFFER = 64 << 10, LINE_MAX_BYTES = 256 << 20 };

struct source {
    char *column; /* the member or column that is the text */
    bool chosen;  /* by the caller */
    struct source_list list;
    int64_t next_file; /* the open one is next_file - 1 */
    int64_t bytes_done, n_skipped, n_unreadable;
    char skipped[240]; /* the first file passed over, and why */
    uint64_t key;

    int fd; /* -1: no file is open */
    struct unpack *unpack;
    enum kind kind;
    char mark; /* of a CSV: between columns */
    int text_column, n_columns;
    bool at_end;
    char *buf;
    size_t at, n, room; /* read but not handed out: buf[at..n) */
    int64_t line;

    struct json *record; /* the .jsonl line that is the document; a CSV has its record in buf */
    const char *text;    /* its text; NULL once handed out */
    size_t text_n;
};

static uint64_t key_of(const struct source_list *l, const char *column)
{
    struct hash64 h;
    hash64_init(&h);
    hash64_add(&h, column, strlen(column) + 1);
    for (int64_t i = 0; i < l->n; i++) {
        const struct source_file *f = &l->files[i];
        char *real = realpath(f->path, NULL);
        const char *name = real ? real : f->path;
        hash64_add(&h, name, strlen(name) + 1);
        hash64_add(&h, &f->bytes, sizeof f->bytes);
        hash64_add(&h, &f->changed_ns, sizeof f->changed_ns);
        free(real);
    }
    return hash64_value(&h);
}

int source_open(struct source **out, const char *const *paths, int n_paths, const char *column, struct err *e)
{
    *out = NULL;
    struct source *s = xcalloc(1, sizeof *s);
    s->fd = -1;
    s->column = xstrdup(column ? column : "text");
    s->chosen = column;
    int code = n_paths ? OK : err_set(e, ERR_REQUEST, "no input: name text files, folders, .jsonl or .csv files");
    for (int i = 0; i < n_paths && !code; i++) code = source_list_add(&s->list, paths[i], e);
    if (code) {
        source_close(s);
        return code;
    }
    s->key = key_of(&s->list, s->column);
    s->room = BUFFER;
    s->buf = xmalloc(s->room);
    *out = s;
    return OK;
}

static void close_file(struct source *s)
{
    unpack_free(s->unpack);
    s->unpack = NULL;
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

void source_close(struct source *s)
{
    if (!s) return;
    close_file(s);
    json_free(s->record);
    source_list_fini(&s->list);
    xfree(s->buf);
    xfree(s->column);
    xfree(s);
}

static const struct source_file *file_now(const struct source *s) { return &s->list.files[s->next_file - 1]; }

/* What a packed file lacks may have been cut off, or never been there: only its last byte tells. */
static bool at_its_end(const struct source *s) { return lseek(s->fd, 0, SEEK_END) == unpack_taken(s->unpack); }

/* Reads more after buf[n), moving what is undelivered to the front; at_end when there is no more. */
static int fill(struct source *s, struct err *e)
{
    if (s->at > 0) {
        memmove(s->buf, s->buf + s->at, s->n - s->at);
        s->n -= s->at;
        s->at = 0;
    }
    if (s->n == s->room) {
        if (s->room >= LINE_MAX_BYTES)
            return err_set(e, ERR_REQUEST, "%s:%lld: a line of more than 256 MiB", file_now(s)->path,
                           (long long)s->line + 1);
        GROW(s->buf, s->n, s->room, 1);
    }
    size_t got;
    int64_t before = unpack_taken(s->unpack), all = file_now(s)->bytes;
    int code = unpack_read(s->unpack, s->buf + s->n, s->room - s->n, &got, e);
    int64_t taken = unpack_taken(s->unpack);
    s->bytes_done += taken - before;
    if ((code == ERR_CORRUPT || (!code && got == 0)) && taken < all && at_its_end(s))
        return err_set(e, ERR_IO,
                       "%s: ends at byte %lld; it had %lld bytes when it was listed, so something cut it short "
                       "meanwhile",
                       file_now(s)->path, (long long)taken, (long long)all);
    if (code) return code;
    s->at_end = got == 0;
    s->n += got;
    return OK;
}

/* NULL for text, else what is wrong with it. */
static const char *why_binary(const unsigned char *p, size_t n)
{
    if (magic_in_letters(p, n)) return "is no text";
    if (memchr(p, 0, n)) return "holds NUL bytes";
    size_t odd = 0;
    for (size_t at = 0; at < n;) {
        size_t run = utf8_run(p + at, n - at);
        for (size_t i = at; i < at + run; i++) odd += p[i] < 0x20 && !(p[i] >= '\b' && p[i] <= '\r') && p[i] != 0x1B;
        at += run;
        if (at < n && utf8_char(p + at, n - at) < 0) break; /* the buffer ends inside a character */
        odd += at < n;
        at++;
    }
    return 10 * odd > n ? "is mostly control characters and bad UTF-8" : NULL;
}

/* Is the first line of the buffer a record with a text? A line that goes on beyond the buffer is taken for one. */
static bool begins_with_record(const struct source *s)
{
    const char *newline = memchr(s->buf, '\n', s->n);
    if (!newline && !s->at_end && s->n == s->room) return true;
    struct json *record = NULL;
    struct err e;
    size_t n = newline ? (size_t)(newline - s->buf) : s->n;
    bool good =
        !json_parse_published(&record, s->buf, n, "", &e) && json_string(json_get(record, s->column), NULL, NULL);
    json_free(record);
    return good;
}

/* Its name ends so, but for what packed it: t.jsonl.gz is a .jsonl. */
static bool is_a(const struct source *s, const char *ending)
{
    const char *path = file_now(s)->path;
    size_t n = strlen(path), m = strlen(ending);
    if (*unpack_format(s->unpack)) {
        static const char *const packed[] = {".gz", ".zst", ".zstd"};
        for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
            if (str_ends(path, packed[i])) n -= strlen(packed[i]);
    }
    return n >= m && !memcmp(path + n - m, ending, m);
}

/* A file that is no text: an error where a person named it, else it is passed over. why: what was seen in its bytes. */
static int no_text(struct source *s, const struct source_file *f, const char *why, struct err *e)
{
    const struct magic *m = magic_of(s->buf, s->n);
    if (f->named && m)
        return err_set(e, ERR_REQUEST, "%s: is %s, which is not read%s", f->path, m->name,
                       m->remedy ? m->remedy : "; only text can be tokenized");
    if (f->named) return err_set(e, ERR_REQUEST, "%s: %s, so it is no text; only text can be tokenized", f->path, why);
    close_file(s);
    if (!*s->skipped)
        snprintf(s->skipped, sizeof s->skipped, "%.120s %s%s", f->path, m ? "is " : "", m ? m->name : why);
    s->n_skipped++;
    return 0;
}

/* A named file that reads as text but was meant as records, or as something else: it is taken as it stands, and that is
 * said. */
static void say_as_text(const struct source *s)
{
    const struct source_file *f = file_now(s);
    static const char *const kinds[] = {".json", ".yaml", ".yml", ".html", ".xml"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_a(s, kinds[i]))
            log_warn("data: %s is read as plain text, one document with all its marks; for a document per line make it "
                     "a .jsonl of {\"text\": ...}",
                     f->path);
}

/* The record that begins at buf[at): *n bytes with its line end, *lines of them; 0: no more. */
static int next_row(struct source *s, size_t *n, int64_t *lines, struct err *e)
{
    struct csv_scan scan = {0};
    for (;;) {
        *n = csv_record(&scan, s->buf + s->at, s->n - s->at, s->at_end, s->mark);
        if (*n && scan.inside)
            return err_set(e, ERR_CORRUPT, "%s:%lld: a quoted field that begins in this row does not end",
                           file_now(s)->path, (long long)s->line + 1);
        *lines = scan.lines;
        if (*n) return 1;
        if (s->at_end) return 0;
        int code = fill(s, e);
        if (code) return code;
    }
}

/* The header, which must end within the buffer, names the column. Its other columns into names; nothing where it does
 * not end. */
static bool read_header(struct source *s, struct str *names)
{
    struct csv_scan scan = {0};
    size_t length;
    s->n_columns = 0;
    if (s->n >= 3 && !memcmp(s->buf, "\xEF\xBB\xBF", 3)) s->at += 3;
    size_t n = csv_record(&scan, s->buf + s->at, s->n - s->at, s->at_end, s->mark);
    if (!n || scan.inside) return false;
    s->n_columns = csv_columns(s->buf + s->at, n, s->mark);
    for (s->text_column = 0; s->text_column < s->n_columns; s->text_column++) {
        char *copy = xstrndup(s->buf + s->at, n), *name = csv_field(copy, n, s->mark, s->text_column, &length);
        bool found = name && length == strlen(s->column) && !memcmp(name, s->column, length);
        if (name && names->n < 200)
            str_printf(names, "%s%.*s", names->n ? ", " : "", length < 60 ? (int)length : 60, name);
        xfree(copy);
        if (!found) continue;
        s->at += n;
        s->line += scan.lines;
        return true;
    }
    return false;
}

/* By its name, and in a folder by what it begins with, too. */
static int choose_kind(struct source *s, const struct source_file *f, struct err *e)
{
    s->kind = is_a(s, ".jsonl") ? JSONL : is_a(s, ".csv") || is_a(s, ".tsv") ? CSV : TEXT;
    if (s->kind == JSONL && !f->named && !begins_with_record(s)) {
        log_info("data: %s: its lines have no member \"%s\"; read as plain text", f->path, s->column);
        s->kind = TEXT;
    }
    if (s->kind == CSV) {
        struct str names = {0};
        s->mark = is_a(s, ".csv") ? ',' : '\t';
        bool found = read_header(s, &names);
        int code = OK;
        if (!found && f->named && !s->n_columns)
            code = err_set(e, ERR_CORRUPT, "%s:1: a quoted field that begins in this row does not end", f->path);
        else if (!found && f->named)
            code = err_set(e, ERR_REQUEST,
                           "%s: its first row has no column \"%s\", but %s; say which is the text: column: NAME beside "
                           "its path in a config, or --column NAME",
                           f->path, s->column, str_text(&names));
        str_free(&names);
        if (code) return code;
        if (!found) {
            log_info("data: %s: has no column \"%s\"; read as plain text", f->path, s->column);
            s->kind = TEXT;
            s->at = 0;
        }
    }
    if (f->named && s->kind == TEXT) {
        if (s->chosen)
            return err_set(e, ERR_REQUEST, "%s: has no column \"%s\": it is plain text, no .jsonl, .csv or .tsv file",
                           f->path, s->column);
        say_as_text(s);
    }
    return OK;
}

/* Opens the next file and fills the buffer. 1: open; 0: to be passed over; < 0: an error. */
static int open_file(struct source *s, struct err *e)
{
    const struct source_file *f = &s->list.files[s->next_file++];
    s->at = s->n = 0;
    s->at_end = false;
    s->line = 0;
    s->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0 && f->named) return err_errno(e, ERR_REQUEST, errno, "%s: cannot be read", f->path);
    if (s->fd < 0) {
        if (s->n_unreadable++ == 0)
            log_warn("data: %s cannot be read (%s); passed over, and others like it", f->path, strerror(errno));
        if (!*s->skipped) snprintf(s->skipped, sizeof s->skipped, "%.120s cannot be read", f->path);
        s->n_skipped++;
        return 0;
    }
    (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    s->unpack = unpack_new(f->path, s->fd);
    int code;
    do code = fill(s, e); /* what is packed comes in small parts */
    while (!code && !s->at_end && s->n < s->room);
    if (code) return code;
    const char *why = why_binary((unsigned char *)s->buf, s->n);
    if (why) return no_text(s, f, why, e);
    code = choose_kind(s, f, e);
    return code ? code : 1;
}

/* The next line into buf[at .. at + *n), its newline not counted; 0: no more. */
static int next_line(struct source *s, size_t *n, struct err *e)
{
    size_t searched = 0;
    for (;;) {
        char *newline = memchr(s->buf + s->at + searched, '\n', s->n - s->at - searched);
        if (newline || (s->at_end && s->at < s->n)) {
            *n = newline ? (size_t)(newline - s->buf) - s->at : s->n - s->at;
            s->line++;
            return 1;
        }
        if (s->at_end) return 0;
        searched = s->n - s->at;
        int code = fill(s, e);
        if (code) return code;
    }
}

static bool blank(const char *p, size_t n)
{
    while (n && strchr(" \t\r\n", p[n - 1])) n--;
    return n == 0;
}

static int no_record(const struct json *v, const char *column, const char *where, struct err *e)
{
    struct str names = {0};
    for (void *it = json_kind(v) == JSON_OBJECT ? json_iter(v) : NULL; it && names.n < 200; it = json_iter_next(v, it))
        str_printf(&names, "%s%.60s", names.n ? ", " : "", json_iter_key(it));
    int code = err_set(e, ERR_CORRUPT, "%s: wanted an object with a string member \"%s\"%s%s", where, column,
                       names.n ? "; this one has " : "", str_text(&names));
    str_free(&names);
    return code;
}

/* The next line with text becomes the document. 1, 0 at the end of the file, < 0. */
static int next_record(struct source *s, struct err *e)
{
    for (;;) {
        size_t n = 0;
        int got = next_line(s, &n, e);
        if (got <= 0) return got;
        const char *line = s->buf + s->at;
        s->at += n + (s->at + n < s->n);
        if (blank(line, n)) continue;
        char where[600];
        snprintf(where, sizeof where, "%.500s:%lld", file_now(s)->path, (long long)s->line);
        json_free(s->record);
        s->record = NULL;
        int code = json_parse_published(&s->record, line, n, where, e);
        if (code) return code;
        s->text = json_string(json_get(s->record, s->column), &s->text_n, NULL);
        if (!s->text) return no_record(s->record, s->column, where, e);
        if (s->text_n) return 1;
    }
}

/* The same of a CSV. */
static int next_text_of_row(struct source *s, struct err *e)
{
    for (;;) {
        size_t n = 0;
        int64_t lines = 0, line = s->line + 1;
        int got = next_row(s, &n, &lines, e);
        if (got <= 0) return got;
        char *row = s->buf + s->at;
        s->at += n;
        s->line += lines;
        if (blank(row, n)) continue;
        int columns = csv_columns(row, n, s->mark);
        s->text = csv_field(row, n, s->mark, s->text_column, &s->text_n);
        if (!s->text)
            return err_set(e, ERR_CORRUPT, "%s:%lld: this row has %d columns of the header's %d, and no \"%s\"",
                           file_now(s)->path, (long long)line, columns, s->n_columns, s->column);
        if (s->text_n) return 1;
    }
}

/* One document of the open file, or 0. */
static int next_in_file(struct source *s, struct err *e)
{
    if (s->kind == JSONL) return next_record(s, e);
    if (s->kind == CSV) return next_text_of_row(s, e);
    return s->line++ == 0 && s->n > 0; /* a text file is one document */
}

int source_next(struct source *s, struct err *e)
{
    for (;;) {
        if (s->fd >= 0) {
            int got = next_in_file(s, e);
            if (got) return got;
            close_file(s);
        }
        if (s->next_file == s->list.n) return 0;
        int got = open_file(s, e);
        if (got < 0) return got;
    }
}

int source_read(struct source *s, const char **p, size_t *n, struct err *e)
{
    if (s->kind != TEXT) {
        *p = s->text;
        *n = s->text_n;
        s->text = NULL;
        return *p != NULL;
    }
    if (s->at == s->n && !s->at_end) {
        int code = fill(s, e);
        if (code) return code;
    }
    *p = s->buf + s->at;
    *n = s->n - s->at;
    s->at = s->n;
    return *n > 0;
}

uint64_t source_key(const struct source *s) { return s->key; }

int64_t source_bytes(const struct source *s) { return s->list.bytes; }

int64_t source_bytes_done(const struct source *s) { return s->bytes_done; }

int64_t source_n_files(const struct source *s) { return s->list.n; }

int64_t source_n_skipped(const struct source *s) { return s->n_skipped; }

const char *source_skipped(const struct source *s) { return s->skipped; }
