/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: one file open at a time. Whose format it is, the table of record_format.h says; what is here is the walk
 * through the list of files or through one unit of it, what is passed over, and what is skipped. */
#include "source/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/magic.h"
#include "base/mem.h"
#include "base/str.h"
#include "source/blob_remote.h"
#include "source/record_format.h"
#include "source/source_list.h"
#include "text/utf8.h"

/* Goes up when what is read of the same files changes, so that what was made of them before is made again. */
enum { SOURCE_VERSION = 3 };

struct unit {
    int64_t file, from, to, parts; /* parts: of the file, in all */
};

struct source {
    char *column; /* the member or column that is the text */
    bool chosen;  /* by the caller */
    bool whole, lines, pictures;
    const struct source_fields *fields;
    struct bad_records bad;
    struct source_list list;
    const struct source *first; /* whose list and units these are; NULL: its own */
    struct unit *units;
    int64_t n_units, units_room, unit_bytes;
    uint64_t key;

    int64_t next_file, end_file; /* the open one is next_file - 1 */
    int64_t from, to;            /* of the next file */
    int64_t bytes_before, n_skipped;
    char skipped[240]; /* the first file passed over, and why */

    struct blob *blob; /* NULL: no file is open */
    struct record_file file;
    const struct record_format *format;
    void *reader;
    struct record record; /* its text NULL once handed out */
    int64_t number;       /* of the record in its file; -1 before the first */
};

static const struct source_list *list_of(const struct source *s) { return s->first ? &s->first->list : &s->list; }

static void add_fields(struct hash64 *h, const struct source_fields *f)
{
    const char *text[] = {f->image, f->caption, f->context, f->answers};
    for (int i = 0; i < 4; i++) hash64_add(h, text[i] ? text[i] : "", text[i] ? strlen(text[i]) + 1 : 1);
    hash64_add(h, &f->key, sizeof f->key);
}

static uint64_t key_of(const struct source *s)
{
    const struct source_list *l = &s->list;
    uint64_t about[] = {SOURCE_VERSION, s->whole, s->bad.skip, s->chosen};
    struct hash64 h;
    hash64_init(&h);
    hash64_add(&h, about, sizeof about);
    if (s->pictures) hash64_add(&h, "pictures", 8);
    if (s->fields) add_fields(&h, s->fields);
    hash64_add(&h, s->column, strlen(s->column) + 1);
    if (s->lines) hash64_add(&h, &s->lines, sizeof s->lines);
    for (int64_t i = 0; i < l->n; i++) {
        const struct source_file *f = &l->files[i];
        char *real = f->object ? NULL : realpath(f->path, NULL);
        const char *name = real ? real : f->path, *slash = strrchr(f->path, '/'), *last = slash ? slash + 1 : f->path;
        hash64_add(&h, name, strlen(name) + 1);
        hash64_add(&h, last, strlen(last) + 1); /* of a link, by whose ending its format goes */
        hash64_add(&h, &f->bytes, sizeof f->bytes);
        hash64_add(&h, &f->changed_ns, sizeof f->changed_ns);
        hash64_add(&h, &f->named, sizeof f->named); /* named, a file is records or an error; found, it may be text */
        free(real);
    }
    return hash64_value(&h);
}

static struct source *source_new(const struct source_options *o)
{
    struct source *s = xcalloc(1, sizeof *s);
    s->column = xstrdup(o->column ? o->column : "text");
    s->chosen = o->column;
    s->whole = o->whole_records;
    s->lines = o->lines;
    s->pictures = o->pictures;
    s->fields = o->fields;
    s->bad = (struct bad_records){.skip = o->skip_bad, .tell = o->tell_bad, .ctx = o->tell_ctx};
    s->to = INT64_MAX;
    s->unit_bytes = o->unit_bytes > 0 ? o->unit_bytes : SOURCE_UNIT_BYTES;
    return s;
}

int source_open_with(struct source **out, const char *const *paths, int n_paths, const struct source_options *o,
                     struct err *e)
{
    *out = NULL;
    struct source *s = source_new(o);
    int code =
        n_paths ? OK
                : err_set(e, ERR_REQUEST, "no input: name text files, folders, .jsonl, .csv, .parquet or .tar files");
    s->list.options = o->remote;
    for (int i = 0; i < n_paths && !code; i++) {
        code = source_list_add(&s->list, paths[i], e);
        /* what is known of a shard is known by its number here, and a folder is no shard */
        if (!code && o->fields && (s->list.n != i + 1 || !s->list.files[i].named))
            code = err_set(e, ERR_REQUEST, "%s: is a folder; a shard (.tar) was wanted", paths[i]);
    }
    if (code) {
        source_close(s);
        return code;
    }
    s->key = key_of(s);
    s->end_file = s->list.n;
    *out = s;
    return OK;
}

int source_open(struct source **s, const char *const *paths, int n_paths, const char *column, struct err *e)
{
    return source_open_with(s, paths, n_paths, &(struct source_options){.column = column}, e);
}

struct source *source_again(const struct source *first, void (*tell_bad)(void *, const char *), void *ctx)
{
    struct source *s = source_new(&(struct source_options){
        .column = first->chosen ? first->column : NULL,
        .whole_records = first->whole,
        .lines = first->lines,
        .pictures = first->pictures,
        .fields = first->fields,
        .skip_bad = first->bad.skip,
        .tell_bad = tell_bad,
        .tell_ctx = ctx,
    });
    s->first = first->first ? first->first : first;
    s->key = first->key;
    s->end_file = list_of(s)->n;
    return s;
}

static void close_file(struct source *s)
{
    if (s->reader) s->format->close(s->reader);
    s->reader = NULL;
    if (s->blob) source_buffer_fini(&s->file.buffer);
    blob_close(s->blob);
    s->blob = NULL;
    s->record = (struct record){0};
}

void source_close(struct source *s)
{
    if (!s) return;
    close_file(s);
    source_list_fini(&s->list);
    xfree(s->units);
    xfree(s->column);
    xfree(s);
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

static int64_t done_in_file(const struct source *s)
{
    if (!s->blob) return 0;
    return s->file.done >= 0 ? s->file.done : source_buffer_taken(&s->file.buffer);
}

/* Passes over a file of a folder. */
static int pass_over(struct source *s, const char *path, const char *why)
{
    s->bytes_before += done_in_file(s);
    close_file(s);
    if (!*s->skipped) snprintf(s->skipped, sizeof s->skipped, "%.120s %s", path, why);
    s->n_skipped++;
    return 0;
}

/* A file that is no text: an error where a person named it, else it is passed over. why: what was seen in its bytes. */
static int no_text(struct source *s, const struct source_file *f, const char *why, struct err *e)
{
    const struct magic *m = magic_of(s->file.buffer.buf, s->file.buffer.n);
    if (f->named && m)
        return err_set(e, ERR_REQUEST, "%s: is %s, which is not read%s", f->path, m->name,
                       m->remedy ? m->remedy : "; only text can be tokenized");
    if (f->named) return err_set(e, ERR_REQUEST, "%s: %s, so it is no text; only text can be tokenized", f->path, why);
    char text[120];
    snprintf(text, sizeof text, "%s%s", m ? "is " : "", m ? m->name : why);
    return pass_over(s, f->path, text);
}

/* The reader of the open file: the format's own, or in a folder that of plain text. 1, 0: passed over, < 0. */
static int open_reader(struct source *s, const struct source_file *f, struct err *e)
{
    s->format = s->fields ? &format_fields : record_format_of(&s->file);
    const char *why = s->format->letters ? why_binary((unsigned char *)s->file.buffer.buf, s->file.buffer.n) : NULL;
    if (why) return no_text(s, f, why, e);
    int got = s->format->open(&s->reader, &s->file, e);
    if (got) return got;
    if (!s->format->letters) return pass_over(s, f->path, e->text);
    if (!s->file.quiet) log_info("data: %s: %s; read as plain text", f->path, e->text);
    s->format = &format_text;
    return s->format->open(&s->reader, &s->file, e);
}

/* Opens file i. 1: open; 0: to be passed over; < 0: an error. */
static int open_file(struct source *s, int64_t i, int64_t from, int64_t to, bool quiet, struct err *e)
{
    const struct source_file *f = &list_of(s)->files[i];
    int code = f->object ? blob_of_object(&s->blob, list_of(s)->remote, f->object->url, &f->object->about, e)
                         : blob_open(&s->blob, f->path, e);
    if (code) return code; /* what cannot be opened is not passed over: it may be half of the text */
    s->file = (struct record_file){
        .listed = f,
        .column = s->column,
        .chosen = s->chosen,
        .whole = s->whole,
        .lines = s->lines,
        .pictures = s->pictures,
        .fields = s->fields,
        .number = i,
        .quiet = quiet,
        .blob = s->blob,
        .from = from,
        .to = to,
        .bad = &s->bad,
        .done = -1,
    };
    s->number = -1;
    source_buffer_init(&s->file.buffer, s->blob, f->bytes);
    code = source_buffer_begin(&s->file.buffer, e);
    if (!code) code = open_reader(s, f, e);
    if (code >= 0 || code == ERR_REQUEST) return code;
    code = bad_record(&s->bad, code, e); /* damaged from its beginning */
    if (!code) close_file(s);
    return code;
}

/* A text that is not UTF-8 where it has to be: OK or an error. */
static int check_text(const struct source *s, struct err *e)
{
    if (s->format->is_utf8 || s->format->read) return OK;
    size_t good = utf8_run((const unsigned char *)s->record.text, s->record.n);
    if (good == s->record.n) return OK;
    char where[RECORD_PLACE];
    s->format->place(s->reader, where);
    return err_set(e, ERR_CORRUPT,
                   "%s: byte %zu of \"%s\" is no valid UTF-8; convert the file (iconv -f LATIN1 -t UTF-8, if it is "
                   "that), or skip what is bad: --skip-bad",
                   where, good, s->column);
}

/* One record of the open file, or 0. */
static int next_in_file(struct source *s, struct err *e)
{
    for (;;) {
        int got = s->format->next(s->reader, &s->record, e);
        if (got < 0) return bad_record(&s->bad, got, e); /* the rest of the file with it */
        if (!got) return 0;
        int code = check_text(s, e);
        if (!code) {
            s->number++;
            return 1;
        }
        if ((code = bad_record(&s->bad, code, e))) return code;
    }
}

int source_next(struct source *s, struct err *e)
{
    for (;;) {
        if (s->blob) {
            int got = next_in_file(s, e);
            if (got) return got;
            bool all = s->file.from == 0 && s->file.to == INT64_MAX;
            s->bytes_before += all ? s->file.listed->bytes : done_in_file(s);
            close_file(s);
        }
        if (s->next_file >= s->end_file) return 0;
        int got = open_file(s, s->next_file++, s->from, s->to, false, e);
        if (got < 0) return got;
    }
}

int source_read(struct source *s, const char **p, size_t *n, struct err *e)
{
    if (s->format->read) return s->format->read(s->reader, p, n, e);
    *p = s->record.text;
    *n = s->record.n;
    s->record.text = NULL;
    return *p != NULL;
}

void source_tell_place(const struct source *s, struct str *out)
{
    char where[RECORD_PLACE];
    s->format->place(s->reader, where);
    str_puts(out, where);
}

int source_pictures(const struct source *s) { return s->record.pictures; }

int64_t source_members(const struct source *s) { return s->record.members; }

const char *source_column(const struct source *s) { return s->column; }

const char *source_line(const struct source *s, size_t *n)
{
    *n = s->record.line_n;
    return s->record.line;
}

void source_where(const struct source *s, struct source_place *p)
{
    *p = (struct source_place){.path = s->file.listed->path, .number = s->number, .offset = s->record.offset};
}

/* -- units -------------------------------------------------------------------------------------------------- */

static void add_unit(struct source *s, int64_t file, int64_t from, int64_t to, int64_t parts)
{
    GROW(s->units, s->n_units, s->units_room, 1);
    s->units[s->n_units++] = (struct unit){file, from, to, parts};
}

/* The parts of a file that is larger than a unit. */
static int cut_file(struct source *s, int64_t i, struct err *e)
{
    struct source *look = source_again(s, NULL, NULL);
    struct unit_list l = {0};
    int got = open_file(look, i, 0, INT64_MAX, true, e);
    if (got > 0 && look->format->cut) got = look->format->cut(look->reader, s->unit_bytes, &l, e);
    for (int64_t k = 0; k < l.n && got >= 0; k++) add_unit(s, i, l.part[k][0], l.part[k][1], l.n);
    if (l.n == 0 && got >= 0) add_unit(s, i, 0, INT64_MAX, 1);
    xfree(l.part);
    source_close(look);
    return got < 0 ? got : OK;
}

int source_units(struct source *s, int64_t *n, struct err *e)
{
    CHECK(!s->first, "units are listed by the source that lists the files");
    int code = OK;
    for (int64_t i = s->n_units ? s->list.n : 0; i < s->list.n && !code; i++) {
        if (s->list.files[i].bytes > s->unit_bytes) code = cut_file(s, i, e);
        else add_unit(s, i, 0, INT64_MAX, 1);
    }
    if (code) s->n_units = 0;
    *n = s->n_units;
    return code;
}

void source_unit(struct source *s, int64_t unit) { source_go_to_lot(s, unit, 1); }

static bool is_file(const struct unit *u) { return u->from == 0 && u->to == INT64_MAX; }

int64_t source_lot(const struct source *s, int64_t unit)
{
    CHECK(!s->first && unit >= 0 && unit < s->n_units, "unit %lld of %lld", (long long)unit, (long long)s->n_units);
    int64_t n = 0, bytes = 0;
    for (; unit + n < s->n_units && is_file(&s->units[unit + n]); n++) {
        bytes += s->list.files[s->units[unit + n].file].bytes;
        if (n && bytes > s->unit_bytes) break;
    }
    return n ? n : 1;
}

void source_go_to_lot(struct source *s, int64_t unit, int64_t n)
{
    const struct source *first = s->first ? s->first : s;
    CHECK(unit >= 0 && n >= 1 && n <= first->n_units - unit, "units %lld to %lld of %lld", (long long)unit,
          (long long)(unit + n - 1), (long long)first->n_units);
    const struct unit *u = &first->units[unit], *last = u + n - 1;
    CHECK(n == 1 || (is_file(u) && is_file(last) && last->file == u->file + n - 1), "a lot of parts of files");
    s->bytes_before += done_in_file(s);
    close_file(s);
    s->next_file = u->file;
    s->end_file = last->file + 1;
    s->from = u->from;
    s->to = u->to;
}

bool source_go_to_file(struct source *s, int64_t file)
{
    CHECK(!s->blob, "the lot is being read");
    if (file < s->next_file || file >= s->end_file) return false;
    for (int64_t i = s->next_file; i < file; i++) s->bytes_before += list_of(s)->files[i].bytes;
    s->next_file = file;
    return true;
}

struct source_unit_place source_unit_where(const struct source *s, int64_t unit)
{
    const struct source *first = s->first ? s->first : s;
    CHECK(unit >= 0 && unit < first->n_units, "unit %lld of %lld", (long long)unit, (long long)first->n_units);
    const struct unit *u = &first->units[unit];
    const struct source_file *f = &first->list.files[u->file];
    return (struct source_unit_place){.path = f->path, .from = u->from, .bytes = f->bytes / u->parts};
}

/* -- inspect ------------------------------------------------------------------------------------------------ */

uint64_t source_key(const struct source *s) { return s->key; }

int64_t source_bytes(const struct source *s) { return list_of(s)->bytes; }

int64_t source_bytes_done(const struct source *s) { return s->bytes_before + done_in_file(s); }

int64_t source_n_files(const struct source *s) { return list_of(s)->n; }

int64_t source_n_skipped(const struct source *s) { return s->n_skipped; }

const char *source_skipped(const struct source *s) { return s->skipped; }

int64_t source_n_bad(const struct source *s) { return s->bad.n; }

int64_t source_file(const struct source *s) { return s->next_file - 1; }

const char *source_path(const struct source *s, int64_t file) { return list_of(s)->files[file].path; }

void source_seek(struct source *s, int64_t file, int64_t skipped, const char *skipped_text)
{
    CHECK(s->next_file == 0 && file >= 0 && file < s->list.n, "file %lld of %lld", (long long)file,
          (long long)s->list.n);
    for (int64_t i = 0; i < file; i++) s->bytes_before += s->list.files[i].bytes;
    s->next_file = file;
    s->n_skipped = skipped;
    snprintf(s->skipped, sizeof s->skipped, "%s", skipped_text);
}
