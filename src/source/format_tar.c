/* SPDX-License-Identifier: Apache-2.0 */
/* format_tar.c: a WebDataset shard: a tar archive whose members of one key, one behind the other, are a sample. The key
 * is the name up to the first dot of its last part; what follows is the extension, which says what a member is.
 *
 *   a sample's text   its .txt (.text, .md) whole, else the member `column` of its .json (the first that has it); each
 *                     line of its .jsonl is a document, as in a .jsonl file
 *   column chosen     one of these extensions: that member, and nothing else of the sample is looked at; another word:
 *                     of .json and .jsonl alone
 *   whole records     (conversations) are its .json and each line of its .jsonl, objects as they are
 *   with pictures     (texts of models that see, source.h) those of a sample are counted and passed over, and a .txt
 *                     alone is the caption of them
 *   pictures, sound   are refused by name, unless the column is an extension: then only that text is wanted
 *
 * Other extensions (labels, numbers) are passed over, and so are names that begin with a dot (what Macs put beside each
 * file). Members that say more than is read are bad records: two of a kind in one sample, a sample that comes again
 * behind others; members without a key are told. A sample without text is a bad record. An archive is one part: shards
 * are many files. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "source/record_format.h"
#include "source/sample_field.h"
#include "source/seen_keys.h"
#include "source/tar_members.h"

enum kind { OTHER, TEXT, JSON, JSONL, MEDIA };
static const struct {
    const char *extension;
    enum kind kind;
    const char *is;
} extensions[] = {
    {"txt", TEXT, ""},          {"text", TEXT, ""},          {"md", TEXT, ""},           {"json", JSON, ""},
    {"jsonl", JSONL, ""},       {"ndjson", JSONL, ""},       {"jpg", MEDIA, "an image"}, {"jpeg", MEDIA, "an image"},
    {"png", MEDIA, "an image"}, {"webp", MEDIA, "an image"}, {"gif", MEDIA, "an image"}, {"bmp", MEDIA, "an image"},
    {"tif", MEDIA, "an image"}, {"tiff", MEDIA, "an image"}, {"ppm", MEDIA, "an image"}, {"pgm", MEDIA, "an image"},
    {"wav", MEDIA, "a sound"},  {"flac", MEDIA, "a sound"},  {"mp3", MEDIA, "a sound"},  {"ogg", MEDIA, "a sound"},
    {"opus", MEDIA, "a sound"}, {"m4a", MEDIA, "a sound"},   {"mp4", MEDIA, "a video"},  {"webm", MEDIA, "a video"},
    {"mkv", MEDIA, "a video"},  {"avi", MEDIA, "a video"},   {"mov", MEDIA, "a video"},  {"mjpeg", MEDIA, "a video"},
};
enum { N_EXTENSIONS = sizeof extensions / sizeof *extensions };

struct shard {
    struct record_file *file;
    struct tar *tar;
    const char *only;        /* the column, where it is an extension */
    struct tar_member ahead; /* the first member of the next sample */
    bool has_ahead, at_end;
    bool looked;                 /* the sample that is gathered was not handed out yet */
    bool no_shard;               /* a sample had no text, or was of pictures or sound */
    int pictures;                /* of the sample */
    struct str key, text, lines; /* the sample's key; its text; its .jsonl */
    int64_t offset;              /* of the sample's first member */
    size_t line_at;              /* in lines: what was not handed out begins here */
    int64_t line;
    struct json *record;
    struct str caption; /* its .txt, where pictures are wanted */
    bool captioned;
    struct seen_keys seen;
    char *took[JSONL + 1];       /* of the sample, by kind: the extension of the member that was taken; NULL: none */
    int64_t n_keyless, n_hidden; /* members of no sample; a sample's .json behind the one that is read; the first: */
    struct str keyless, hidden;
    struct str found; /* the sample's extensions, for errors */
    struct err held;  /* what was wrong with the first sample */
    struct err later; /* what is wrong behind a sample that is bad itself */
};

static bool shard_begins(const unsigned char *p, size_t n) { return n >= 512 && !memcmp(p + 257, "ustar", 5); }

/* The last part of an extension, in small letters: "seg.JPG" is a jpg. -1: none that is known. */
static int row_of(const char *extension)
{
    const char *dot = strrchr(extension, '.');
    const char *last = dot ? dot + 1 : extension;
    for (int i = 0; i < N_EXTENSIONS; i++) {
        const char *a = extensions[i].extension, *b = last;
        while (*a && tolower((unsigned char)*b) == *a) a++, b++;
        if (!*a && !*b) return i;
    }
    return -1;
}

/* What a person calls the column is an extension rather than a member of a member: txt, en.txt, but message.text is
 * none. */
static bool is_extension(const char *column)
{
    const char *dot = strrchr(column, '.');
    return !dot || strcmp(dot, ".text") != 0;
}

static int next_sample(struct shard *r, struct err *e);
static void shard_close(void *reader);

/* In a folder lie archives that are no shards: told by their first sample, which is handed out first where it is one.
 */
static int look_ahead(struct shard *r, struct err *e)
{
    int got = next_sample(r, e);
    r->looked = got > 0;
    if (got < 0 && !r->no_shard) r->held = *e; /* it is one, and wrong: shard_next says so */
    if (got >= 0 || !r->no_shard) return 1;
    err_set(e, ERR_REQUEST, "is a tar archive whose first sample, %.80s, has %.60s and no text", str_text(&r->key),
            str_text(&r->found));
    return 0;
}

static int shard_open(void **reader, struct record_file *f, struct err *e)
{
    struct shard *r = xcalloc(1, sizeof *r);
    r->file = f;
    int row = f->chosen ? row_of(f->column) : -1;
    if (row >= 0 && extensions[row].kind != MEDIA && is_extension(f->column)) r->only = f->column;
    r->tar = tar_new(&f->buffer);
    int got = f->listed->named ? 1 : look_ahead(r, e);
    if (got == 1) *reader = r;
    else shard_close(r);
    return got;
}

static void shard_place(const void *reader, char out[RECORD_PLACE])
{
    const struct shard *r = reader;
    snprintf(out, RECORD_PLACE, "%.300s: sample %.200s at byte %lld", r->file->listed->path, str_text(&r->key),
             (long long)r->offset);
}

static int bad(const struct shard *r, const char *what, struct err *e)
{
    char where[RECORD_PLACE];
    shard_place(r, where);
    return err_set(e, ERR_CORRUPT, "%s: %s", where, what);
}

/* The text of the object in [p, p + n): 1; 0: there is none, and nothing wrong; < 0. It stays with r->record. */
static int text_of_json(struct shard *r, const char *p, size_t n, const char **text, size_t *text_n, struct err *e)
{
    char where[RECORD_PLACE];
    shard_place(r, where);
    json_free(r->record);
    r->record = NULL;
    int code = json_parse_published(&r->record, p, n, where, e);
    if (code) return code;
    *text = p;
    *text_n = n;
    if (r->file->whole) return json_kind(r->record) == JSON_OBJECT;
    const struct json *v = record_member(r->record, r->only ? "text" : r->file->column);
    bool null = v && json_kind(v) == JSON_NULL; /* an empty text, which is no document */
    if (null) *text_n = 0;
    *text = null ? "" : json_string(v, text_n, NULL);
    return *text != NULL;
}

/* Members of one kind of which one would hide the other, or become one text with it. */
static int ambiguous(const struct shard *r, enum kind kind, struct err *e)
{
    static const char *const is[] = {[TEXT] = ".txt", [JSON] = ".json", [JSONL] = ".jsonl"};
    char what[400];
    snprintf(what, sizeof what,
             "has two members that are %s (%.150s); which is the text? Name one by its extension as the column: en.txt",
             is[kind], str_text(&r->found));
    return bad(r, what, e);
}

/* A second object beside the one that is read, under another name (x.json and x.meta.json): it is told that there are
 * such. */
static int hide(struct shard *r, const char *name)
{
    if (r->n_hidden++ == 0) str_puts(&r->hidden, name);
    return OK;
}

/* One member of the sample. The text is taken from the best of its members: a .txt before a .json. */
static int take_member(struct shard *r, const struct tar_member *m, bool *has_text, bool *has_json, struct err *e)
{
    const char *extension = m->name + r->key.n + 1, *text;
    int row = row_of(extension);
    enum kind kind = row < 0 ? OTHER : extensions[row].kind;
    size_t n;
    if (r->found.n < 100) str_printf(&r->found, "%s.%.40s", r->found.n ? ", " : "", extension);
    if (r->only && strcmp(extension, r->only) != 0) return OK;
    if (kind == MEDIA && r->file->pictures && !strcmp(extensions[row].is, "an image")) {
        if (!m->is_file) return bad(r, "is a link or a device, no file", e);
        r->pictures++;
        return OK;
    }
    if (kind == MEDIA) {
        r->no_shard = true;
        return err_set(e, ERR_REQUEST,
                       "%s: member %.200s at byte %lld is %s, and this is read as text. A model of pictures "
                       "(model.family: vit) takes images and their classes; none takes sound or video yet. To train on "
                       "the texts beside them alone, name their extension as the column: txt",
                       r->file->listed->path, m->name, (long long)m->offset, extensions[row].is);
    }
    bool caption = r->file->pictures && kind == TEXT;
    bool other_column = (r->file->chosen && !r->only) || (r->file->whole && !caption);
    if (kind == OTHER || (kind == TEXT && other_column) || (kind == JSON && *has_text && !*has_json)) return OK;
    if (!m->is_file) return bad(r, "is a link or a device, no file", e);
    if (r->took[kind] && (kind != JSON || !strcmp(r->took[kind], extension))) return ambiguous(r, kind, e);
    if (kind == JSON && *has_json) return hide(r, m->name);
    if (!r->took[kind]) r->took[kind] = xstrdup(extension);
    if (m->bytes > SOURCE_RECORD_MAX) return bad(r, "has a member of more than 256 MiB", e);
    struct str whole = {0};
    int code = tar_read(r->tar, m, &whole, e), got = 1;
    if (!code && caption) {
        str_clear(&r->caption);
        str_add(&r->caption, whole.p ? whole.p : "", whole.n);
        r->captioned = true;
    } else if (!code && kind == TEXT) {
        str_clear(&r->text);
        str_add(&r->text, whole.p ? whole.p : "", whole.n);
        *has_text = true;
    } else if (!code && kind == JSONL) {
        str_add(&r->lines, whole.p ? whole.p : "", whole.n);
        *has_text = true;
    } else if (!code) {
        got = text_of_json(r, str_text(&whole), whole.n, &text, &n, e);
        if (got < 0) code = got;
        if (got > 0) {
            str_add(&r->text, text, n);
            *has_json = true;
        }
    }
    str_free(&whole);
    return code;
}

/* The sample's text tells of its pictures: the record that says so. */
static int take_caption(struct shard *r, struct err *e)
{
    size_t n = r->caption.n;
    struct str marks = {0};
    struct json_out o = {.s = &r->text};
    while (n && strchr(" \t\r\n", r->caption.p[n - 1])) n--;
    if (strlen(str_text(&r->caption)) < n) return bad(r, "its .txt holds a NUL", e);
    if (!n) return bad(r, "its .txt is empty", e);
    r->caption.p[n] = 0;
    for (int i = 0; i < r->pictures; i++) str_puts(&marks, "<image>");
    json_begin_object(&o, NULL);
    json_put_string(&o, "prompt", str_text(&marks));
    json_put_string(&o, "completion", str_text(&r->caption));
    json_end_object(&o);
    str_free(&marks);
    return OK;
}

/* A member that no sample has. Names that begin with a dot are nobody's text in folders, either. */
static void pass_keyless(struct shard *r, const char *name)
{
    const char *slash = strrchr(name, '/');
    if ((slash ? slash[1] : *name) == '.') return;
    if (r->n_keyless++ == 0) str_puts(&r->keyless, name);
}

static void forget_took(struct shard *r)
{
    for (int i = 0; i <= JSONL; i++) {
        xfree(r->took[i]);
        r->took[i] = NULL;
    }
}

static void say_passed(struct shard *r)
{
    if (r->n_hidden && !r->file->quiet)
        log_info("data: %s: in %lld samples a .json was read and another passed over: %.200s", r->file->listed->path,
                 (long long)r->n_hidden, str_text(&r->hidden));
    r->n_hidden = 0;
    if (r->n_keyless && !r->file->quiet)
        log_info("data: %s: %lld members have no name of a sample (KEY.EXTENSION) and were passed over: %.200s",
                 r->file->listed->path, (long long)r->n_keyless, str_text(&r->keyless));
    r->n_keyless = 0;
}

/* Gathers the next sample: 1; 0: the archive is at its end; < 0. Where what is wrong is the sample's own the rest of
 * its members are passed over. */
static int next_sample(struct shard *r, struct err *e)
{
    struct tar_member m = r->ahead;
    bool has_text = false, has_json = false;
    int got = r->has_ahead ? 1 : tar_next(r->tar, &m, e), code = OK;
    for (; got > 0 && !sample_key(m.name); got = tar_next(r->tar, &m, e)) pass_keyless(r, m.name);
    r->has_ahead = false;
    if (got <= 0) return r->at_end = true, say_passed(r), got;
    forget_took(r);
    str_clear(&r->key);
    str_clear(&r->text);
    str_clear(&r->lines);
    str_clear(&r->found);
    r->pictures = 0;
    r->captioned = false;
    str_add(&r->key, m.name, sample_key(m.name));
    r->offset = m.offset;
    r->line_at = 0;
    r->line = 0;
    if (seen_keys_add(&r->seen, r->key.p, r->key.n)) code = bad(r, SEEN_KEYS_AGAIN, e);
    for (;;) {
        size_t n = sample_key(m.name);
        if (!n) pass_keyless(r, m.name);
        else if (!code) code = take_member(r, &m, &has_text, &has_json, e);
        got = tar_next(r->tar, &m, code ? &r->later : e);
        if (got <= 0) break;
        n = sample_key(m.name);
        if (!n || (n == r->key.n && !memcmp(m.name, r->key.p, n))) continue;
        r->ahead = m;
        r->has_ahead = true;
        break;
    }
    r->at_end = got <= 0;
    if (!got) say_passed(r);
    if (code) return code;
    if (got < 0) return got;
    if (has_text || has_json) return 1;
    if (r->captioned) return (code = take_caption(r, e)) ? code : 1;
    r->no_shard = true;
    char what[400];
    if (r->file->whole)
        snprintf(what, sizeof what, "has no record: no .json that is an object, nor .jsonl (it has %.200s)",
                 str_text(&r->found));
    else if (r->only) snprintf(what, sizeof what, "has no member .%s (it has %.200s)", r->only, str_text(&r->found));
    else
        snprintf(what, sizeof what, "has no text: no member %s.json with a string \"%.100s\" (it has %.200s)",
                 r->file->chosen ? "" : ".txt, nor ", r->file->column, str_text(&r->found));
    return bad(r, what, e);
}

/* The next document of the sample's .jsonl: 1; 0: there are no more. */
static int next_line(struct shard *r, struct record *out, struct err *e)
{
    while (r->line_at < r->lines.n) {
        const char *p = r->lines.p + r->line_at, *newline = memchr(p, '\n', r->lines.n - r->line_at);
        size_t n = newline ? (size_t)(newline - p) : r->lines.n - r->line_at;
        r->line_at += n + (newline != NULL);
        r->line++;
        if (record_blank(p, n)) continue;
        int got = text_of_json(r, p, n, &out->text, &out->n, e);
        if (got == 0) {
            char what[300];
            if (r->file->whole) snprintf(what, sizeof what, "line %lld of its .jsonl is no object", (long long)r->line);
            else
                snprintf(what, sizeof what, "line %lld of its .jsonl is no object with a string \"%.100s\"",
                         (long long)r->line, r->only ? "text" : r->file->column);
            got = bad(r, what, e);
        }
        if (got < 0 && (got = bad_record(r->file->bad, got, e))) return got;
        if (got > 0 && out->n) return 1;
    }
    return 0;
}

static int shard_next(void *reader, struct record *out, struct err *e)
{
    struct shard *r = reader;
    for (;;) {
        *out = (struct record){.offset = r->offset, .pictures = r->pictures};
        if (r->held.code) {
            *e = r->held;
            r->held = (struct err){0};
            int code = bad_record(r->file->bad, e->code, e);
            if (code) return code;
            str_clear(&r->lines);
            continue;
        }
        int got = next_line(r, out, e);
        if (got) return got;
        if (r->at_end && r->later.code && !r->looked) {
            *e = r->later;
            r->later = (struct err){0};
            return bad_record(r->file->bad, e->code, e);
        }
        if (r->at_end && !r->looked) return 0;
        got = r->looked ? 1 : next_sample(r, e);
        r->looked = false;
        if (got < 0 && (got = bad_record(r->file->bad, got, e)) < 0) return got;
        if (got == 0) {
            str_clear(&r->lines);
            continue;
        }
        if (r->text.n) {
            *out = (struct record){.text = r->text.p, .n = r->text.n, .offset = r->offset, .pictures = r->pictures};
            return 1;
        }
    }
}

static void shard_close(void *reader)
{
    struct shard *r = reader;
    if (!r) return;
    tar_free(r->tar);
    json_free(r->record);
    str_free(&r->key);
    str_free(&r->text);
    str_free(&r->lines);
    str_free(&r->found);
    str_free(&r->keyless);
    str_free(&r->hidden);
    forget_took(r);
    seen_keys_free(&r->seen);
    str_free(&r->caption);
    xfree(r);
}

const struct record_format format_tar = {
    .name = "tar",
    .endings = ".tar .tgz",
    .begins = shard_begins,
    .open = shard_open,
    .next = shard_next,
    .place = shard_place,
    .close = shard_close,
};
