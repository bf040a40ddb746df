/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: one file open at a time, read through one buffer.
 *
 * A text file is handed out buffer by buffer. A .jsonl file is handed out line by line; a line is the only thing that
 * may make the buffer grow, and only up to LINE_MAX_BYTES. Advice to the kernel to read ahead is all the overlap that
 * is needed: the tokenizer, not the disk, sets the pace.
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
#include "data/source_list.h"
#include "data/utf8.h"

enum { BUFFER = 64 << 10, LINE_MAX_BYTES = 256 << 20 };

struct source {
    struct source_list list;
    int64_t next_file; /* the open one is next_file - 1 */
    int64_t bytes_done, n_skipped, n_unreadable;
    char skipped[240]; /* the first file passed over, and why */
    uint64_t key;

    int fd;       /* -1: no file is open */
    int64_t read; /* bytes of the open file so far */
    bool jsonl, at_end;
    char *buf;
    size_t at, n, room; /* read but not handed out: buf[at..n) */
    int64_t line;

    struct json *record; /* the .jsonl line that is the document */
    const char *text;    /* its text; NULL once handed out */
    size_t text_n;
};

static uint64_t key_of(const struct source_list *l)
{
    struct hash64 h;
    hash64_init(&h);
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

int source_open(struct source **out, const char *const *paths, int n_paths, struct err *e)
{
    *out = NULL;
    struct source *s = xcalloc(1, sizeof *s);
    s->fd = -1;
    int code = n_paths ? OK : err_set(e, ERR_REQUEST, "no input: name text files, folders or .jsonl files");
    for (int i = 0; i < n_paths && !code; i++) code = source_list_add(&s->list, paths[i], e);
    if (code) {
        source_close(s);
        return code;
    }
    s->key = key_of(&s->list);
    s->room = BUFFER;
    s->buf = xmalloc(s->room);
    *out = s;
    return OK;
}

static void close_file(struct source *s)
{
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
    xfree(s);
}

static const struct source_file *file_now(const struct source *s) { return &s->list.files[s->next_file - 1]; }

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
    ssize_t got;
    do got = read(s->fd, s->buf + s->n, s->room - s->n);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot be read at offset %lld", file_now(s)->path, (long long)s->read);
    if (got == 0 && s->read < file_now(s)->bytes)
        return err_set(e, ERR_IO,
                       "%s: ends at byte %lld; it had %lld bytes when it was listed, so something cut it short "
                       "meanwhile",
                       file_now(s)->path, (long long)s->read, (long long)file_now(s)->bytes);
    s->at_end = got == 0;
    s->read += got;
    s->n += (size_t)got;
    s->bytes_done += got;
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
    bool good = !json_parse_published(&record, s->buf, n, "", &e) && json_string(json_get(record, "text"), NULL, NULL);
    json_free(record);
    return good;
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
static void say_as_text(const struct source_file *f)
{
    static const char *const kinds[] = {".json", ".csv", ".tsv", ".yaml", ".yml", ".html", ".xml"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (str_ends(f->path, kinds[i]))
            log_warn("data: %s is read as plain text, one document with all its marks; for a document per line make it "
                     "a .jsonl of {\"text\": ...}",
                     f->path);
}

/* Opens the next file and fills the buffer. 1: open; 0: to be passed over; < 0: an error. */
static int open_file(struct source *s, struct err *e)
{
    const struct source_file *f = &s->list.files[s->next_file++];
    s->at = s->n = 0;
    s->read = 0;
    s->at_end = false;
    s->line = 0;
    s->jsonl = str_ends(f->path, ".jsonl");
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
    int code = fill(s, e);
    if (code) return code;
    const char *why = why_binary((unsigned char *)s->buf, s->n);
    if (!why && s->jsonl && !f->named && !begins_with_record(s)) {
        log_info("data: %s: its lines have no member \"text\"; read as plain text", f->path);
        s->jsonl = false;
    }
    if (why) return no_text(s, f, why, e);
    if (f->named) say_as_text(f);
    return 1;
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

static int no_record(const struct json *v, const char *where, struct err *e)
{
    struct str names = {0};
    for (void *it = json_kind(v) == JSON_OBJECT ? json_iter(v) : NULL; it && names.n < 200; it = json_iter_next(v, it))
        str_printf(&names, "%s%.60s", names.n ? ", " : "", json_iter_key(it));
    int code = err_set(e, ERR_CORRUPT, "%s: wanted an object with a string member \"text\"%s%s", where,
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
        s->text = json_string(json_get(s->record, "text"), &s->text_n, NULL);
        if (!s->text) return no_record(s->record, where, e);
        if (s->text_n) return 1;
    }
}

/* One document of the open file, or 0. */
static int next_in_file(struct source *s, struct err *e)
{
    if (s->jsonl) return next_record(s, e);
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
    if (s->jsonl) {
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
