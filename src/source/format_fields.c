/* SPDX-License-Identifier: Apache-2.0 */
/* format_fields.c: a shard whose samples have fields of a name each (source_fields): a picture with a caption, or with
 * a question and its answers. What comes of a sample are the records that a conversation with a picture is written as,
 * one for each answer, so that whoever reads records needs to know of nothing else:
 *
 *     {"prompt": "<image>", "completion": CAPTION}
 *     {"conversations": [{"from": "human", "value": "<image>\nQUESTION"}, {"from": "gpt", "value": ANSWER}]}
 *
 * A question that says itself where its picture is ("<image>") stays as it is. Texts lose the white space at their end.
 * Members that no field names are passed over, unread. A sample without one of its fields is a bad record; one that is
 * left out is none, whatever it holds. How many samples a shard has is compared at its end. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "source/record_format.h"
#include "source/sample_field.h"
#include "source/seen_keys.h"
#include "source/source.h"
#include "source/tar_members.h"

enum { CAPTION, CONTEXT, ANSWERS, N_FIELDS, MEMBERS = N_FIELDS * FIELD_WAYS };
static const char *const names[N_FIELDS] = {"caption", "context", "answers"};
#define MARK "<image>"

/* A member that a field may be in. */
struct member {
    const char *extension;
    struct str text;
    struct json *root; /* of a .json into which a field has steps */
    bool there;
};

struct fields {
    struct record_file *file;
    struct tar *tar;
    struct sample_field field[N_FIELDS]; /* n 0: samples have none of this name */
    struct member member[MEMBERS];
    int n_members;
    struct tar_member ahead;      /* the first member of the next sample */
    bool has_ahead, over, at_end; /* over: no member follows */
    struct str key, found;        /* of the sample; its extensions, for errors */
    struct seen_keys keys;
    int64_t offset, seen;
    int pictures;
    /* What is handed out of it: */
    struct str context, answer, record;
    const struct json *answers; /* a list that is left from `next_answer` on; NULL: there is none */
    size_t next_answer;
    struct err later; /* what is wrong behind a sample that is bad itself */
};

static void fields_place(const void *reader, char out[RECORD_PLACE])
{
    const struct fields *r = reader;
    snprintf(out, RECORD_PLACE, "%.300s: sample %.200s at byte %lld", r->file->listed->path, str_text(&r->key),
             (long long)r->offset);
}

static int bad(const struct fields *r, const char *what, struct err *e)
{
    char where[RECORD_PLACE];
    fields_place(r, where);
    return err_set(e, ERR_CORRUPT, "%s: %s", where, what);
}

/* ---- opening ---- */

static struct member *member_of(struct fields *r, const char *extension)
{
    for (int i = 0; i < r->n_members; i++)
        if (!strcasecmp(r->member[i].extension, extension)) return &r->member[i];
    return NULL;
}

static int read_fields(struct fields *r, struct err *e)
{
    const struct source_fields *x = r->file->fields;
    const char *text[N_FIELDS] = {x->caption, x->context, x->answers};
    for (int i = 0; i < N_FIELDS; i++) {
        char what[32];
        snprintf(what, sizeof what, "its field %s", names[i]);
        int code = text[i] ? sample_field_read(&r->field[i], text[i], what, e) : OK;
        if (code) return err_prefix(e, "%s", r->file->listed->path);
        for (int k = 0; k < r->field[i].n; k++)
            if (!member_of(r, r->field[i].way[k].extension))
                r->member[r->n_members++] = (struct member){.extension = r->field[i].way[k].extension};
    }
    return OK;
}

static void fields_close(void *reader)
{
    struct fields *r = reader;
    if (!r) return;
    tar_free(r->tar);
    for (int i = 0; i < r->n_members; i++) {
        str_free(&r->member[i].text);
        json_free(r->member[i].root);
    }
    seen_keys_free(&r->keys);
    str_free(&r->key);
    str_free(&r->found);
    str_free(&r->context);
    str_free(&r->answer);
    str_free(&r->record);
    xfree(r);
}

static int fields_open(void **reader, struct record_file *f, struct err *e)
{
    struct fields *r = xcalloc(1, sizeof *r);
    r->file = f;
    int code = read_fields(r, e);
    if (!code && !format_tar.begins((const unsigned char *)f->buffer.buf, f->buffer.n))
        code = err_set(e, ERR_REQUEST, "%s: is no tar archive; samples are read from tar shards (WebDataset)",
                       f->listed->path);
    if (code) {
        fields_close(r);
        return code;
    }
    r->tar = tar_new(&f->buffer);
    *reader = r;
    return 1;
}

/* ---- a sample ---- */

static int take_member(struct fields *r, const struct tar_member *m, struct err *e)
{
    const char *extension = m->name + r->key.n + 1;
    if (r->found.n < 100) str_printf(&r->found, "%s.%.40s", r->found.n ? ", " : "", extension);
    bool picture = field_names(r->file->fields->image, extension);
    struct member *x = member_of(r, extension);
    if (!picture && !x) return OK;
    if (!m->is_file) return bad(r, "is a link or a device, no file", e);
    if (picture) {
        if (r->pictures++) return bad(r, "has two pictures; name the extension of one (field_map: image)", e);
        return OK;
    }
    if (m->bytes > SOURCE_RECORD_MAX) return bad(r, "has a member of more than 256 MiB", e);
    if (x->there) return bad(r, "has two members of one extension", e);
    x->there = true;
    str_clear(&x->text);
    return tar_read(r->tar, m, &x->text, e);
}

/* Of the field's places the first that the sample has. 1: *text, or *value of a .json; 0: none; < 0. */
static int find(struct fields *r, int field, const struct json **value, struct str *text, struct err *e)
{
    *value = NULL;
    for (int i = 0; i < r->field[field].n; i++) {
        const struct field_way *w = &r->field[field].way[i];
        struct member *x = member_of(r, w->extension);
        if (!x->there) continue;
        if (!w->n_steps) {
            str_clear(text);
            str_add(text, x->text.p ? x->text.p : "", x->text.n);
            return 1;
        }
        char where[RECORD_PLACE];
        fields_place(r, where);
        int code = x->root ? OK : json_parse_published(&x->root, str_text(&x->text), x->text.n, where, e);
        if (code) return code;
        if ((*value = field_way_value(w, x->root)) && json_kind(*value) != JSON_NULL) return 1;
    }
    return 0;
}

/* A text that is no list, without the white space at its end. */
static int take_text(struct fields *r, int field, const struct json *value, struct str *text, struct err *e)
{
    char what[300];
    size_t n;
    if (value) {
        const char *p = json_string(value, &n, NULL);
        snprintf(what, sizeof what, "its %s is no text", names[field]);
        if (!p) return bad(r, what, e);
        str_clear(text);
        str_add(text, p, n);
    }
    for (n = text->n; n && memchr(" \t\r\n", text->p[n - 1], 4);) n--;
    snprintf(what, sizeof what, "its %s is empty", names[field]);
    if (!n) return bad(r, what, e);
    text->p[text->n = n] = 0;
    snprintf(what, sizeof what, "its %s holds a NUL", names[field]);
    return strlen(text->p) == n ? OK : bad(r, what, e);
}

static int take_field(struct fields *r, int field, const struct json **value, struct str *text, struct err *e)
{
    char what[400];
    int got = find(r, field, value, text, e);
    if (got < 0) return got;
    if (got && *value && field == ANSWERS && json_kind(*value) == JSON_ARRAY) return OK;
    if (got) {
        const struct json *v = *value;
        *value = NULL;
        return take_text(r, field, v, text, e);
    }
    const struct source_fields *x = r->file->fields;
    snprintf(what, sizeof what, "has no %s: nothing at %.100s (it has %.200s)", names[field],
             field == CAPTION   ? x->caption
             : field == CONTEXT ? x->context
                                : x->answers,
             str_text(&r->found));
    return bad(r, what, e);
}

/* All members are there: what is handed out of them. */
static int take_sample(struct fields *r, struct err *e)
{
    const struct json *none;
    char what[300];
    snprintf(what, sizeof what, "has no picture: no member %.100s (it has %.150s)", r->file->fields->image,
             str_text(&r->found));
    if (!r->pictures) return bad(r, what, e);
    if (r->field[CAPTION].n) return take_field(r, CAPTION, &none, &r->answer, e);
    int code = take_field(r, CONTEXT, &none, &r->context, e);
    if (!code) code = take_field(r, ANSWERS, &r->answers, &r->answer, e);
    if (!code && r->answers && !json_size(r->answers)) code = bad(r, "its answers are none: an empty list", e);
    if (code) r->answers = NULL;
    return code;
}

static void forget(struct fields *r)
{
    for (int i = 0; i < r->n_members; i++) {
        json_free(r->member[i].root);
        r->member[i].root = NULL;
        r->member[i].there = false;
    }
    r->answers = NULL;
    r->next_answer = 0;
    r->pictures = 0;
    str_clear(&r->key);
    str_clear(&r->found);
}

static int count(const struct fields *r, struct err *e)
{
    const struct source_fields *x = r->file->fields;
    int64_t wanted = x->samples ? x->samples(x->ctx, r->file->number) : r->seen;
    if (wanted == r->seen) return OK;
    r->file->bad->skip = false; /* no record is bad: all of the folder is another one than it says */
    return err_set(e, ERR_CORRUPT,
                   "%s: has %lld samples, .info says %lld: the folder's .nv-meta is of another version of it; prepare "
                   "it again (energon prepare)",
                   r->file->listed->path, (long long)r->seen, (long long)wanted);
}

/* 1; 0: it is left out; < 0. At the archive's end at_end, and 0. Where what is wrong is the sample's own the rest of
 * its members are passed over. */
static int next_sample(struct fields *r, struct err *e)
{
    const struct source_fields *x = r->file->fields;
    struct tar_member m = r->ahead;
    int got = r->has_ahead ? 1 : r->over ? 0 : tar_next(r->tar, &m, e), code = OK;
    while (got > 0 && !sample_key(m.name)) got = tar_next(r->tar, &m, e);
    r->has_ahead = false;
    forget(r);
    if (got <= 0) {
        r->at_end = true;
        return got ? got : count(r, e);
    }
    str_add(&r->key, m.name, sample_key(m.name));
    r->offset = m.offset;
    if (seen_keys_add(&r->keys, r->key.p, r->key.n)) code = bad(r, SEEN_KEYS_AGAIN, e);
    bool out = x->excludes && x->excludes(x->ctx, r->file->number, str_text(&r->key));
    for (;;) {
        if (!code && !out && sample_key(m.name)) code = take_member(r, &m, e);
        got = tar_next(r->tar, &m, code ? &r->later : e);
        if (got <= 0) break;
        size_t n = sample_key(m.name);
        if (!n || (n == r->key.n && !memcmp(m.name, r->key.p, n))) continue;
        r->ahead = m;
        r->has_ahead = true;
        break;
    }
    r->over = got == 0;
    r->at_end = got < 0;
    if (got < 0) return code ? code : got; /* the rest of the archive is not known */
    r->seen++;
    if (code || out) return code;
    return (code = take_sample(r, e)) ? code : 1;
}

/* ---- records ---- */

static void put_message(struct json_out *o, const char *from, const char *mark, const char *text)
{
    struct str value = {0};
    str_printf(&value, "%s%s", mark, text);
    json_begin_object(o, NULL);
    json_put_string(o, "from", from);
    json_put_string(o, "value", str_text(&value));
    json_end_object(o);
    str_free(&value);
}

static void put_record(struct fields *r)
{
    struct json_out o = {.s = &r->record};
    str_clear(&r->record);
    json_begin_object(&o, NULL);
    if (r->field[CAPTION].n) {
        json_put_string(&o, "prompt", MARK);
        json_put_string(&o, "completion", str_text(&r->answer));
    } else {
        json_begin_array(&o, "conversations");
        put_message(&o, "human", strstr(str_text(&r->context), MARK) ? "" : MARK "\n", str_text(&r->context));
        put_message(&o, "gpt", "", str_text(&r->answer));
        json_end_array(&o);
    }
    json_end_object(&o);
}

static int fields_next(void *reader, struct record *out, struct err *e)
{
    struct fields *r = reader;
    for (;;) {
        int got = 1;
        if (r->answers && r->next_answer == json_size(r->answers)) r->answers = NULL;
        if (!r->answers) {
            if (r->at_end && r->later.code) {
                *e = r->later;
                r->later = (struct err){0};
                return bad_record(r->file->bad, e->code, e);
            }
            if (r->at_end) return 0;
            got = next_sample(r, e);
        }
        if (got == 1 && r->answers)
            got = (got = take_text(r, ANSWERS, json_at(r->answers, r->next_answer++), &r->answer, e)) ? got : 1;
        if (got < 0 && (got = bad_record(r->file->bad, got, e)) < 0) return got;
        if (got != 1) continue;
        put_record(r);
        *out = (struct record){.text = r->record.p, .n = r->record.n, .offset = r->offset, .pictures = r->pictures};
        return 1;
    }
}

const struct record_format format_fields = {
    .name = "fields",
    .endings = "", /* chosen by source_options alone */
    .begins = NULL,
    .open = fields_open,
    .next = fields_next,
    .place = fields_place,
    .close = fields_close,
};
