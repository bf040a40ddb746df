/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image_scan.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/mem.h"
#include "media/media.h"
#include "source/sample_field.h"
#include "source/seen_keys.h"
#include "source/source_buffer.h"
#include "source/tar_members.h"

enum { LABEL_BYTES = 1 << 20 };

struct image_scan {
    struct source_buffer buffer;
    struct tar *tar;
    struct image_scan_options o;
    struct sample_field field; /* where labels may be; n 0: they are not looked for */
    struct tar_member ahead;   /* the first member of the next sample; its name is the tar's */
    bool has_ahead, at_end, goes_on;
    struct seen_keys seen;
    struct str key, label, found; /* found: the sample's extensions, for errors */
    int label_way;                /* field.n: none yet */
    struct image_found image;
    bool has_image, other; /* other: the sample has sound or video */
};

int image_scan_open(struct image_scan **out, struct blob *blob, const struct image_scan_options *o, struct err *e)
{
    struct image_scan *s = xcalloc(1, sizeof *s);
    *out = NULL;
    s->o = *o;
    source_buffer_init(&s->buffer, blob, blob->bytes);
    int code = o->no_label ? OK : sample_field_read(&s->field, o->label, "a label", e);
    if (!code) code = source_buffer_begin(&s->buffer, e);
    if (!code && source_buffer_packed(&s->buffer))
        code =
            err_set(e, ERR_REQUEST,
                    "%s: is packed by %s, and samples are read from the middle of a shard; unpack it (pictures hardly "
                    "get smaller by packing)",
                    blob->path, unpack_format(s->buffer.unpack));
    if (!code && (s->buffer.n < 512 || memcmp(s->buffer.buf + 257, "ustar", 5) != 0))
        code = err_set(e, ERR_REQUEST, "%s: is no tar archive; pictures are read from tar shards (WebDataset)",
                       blob->path);
    if (code) {
        image_scan_close(s);
        return code;
    }
    s->tar = tar_new_seeking(&s->buffer);
    *out = s;
    return OK;
}

void image_scan_close(struct image_scan *s)
{
    if (!s) return;
    tar_free(s->tar);
    source_buffer_fini(&s->buffer);
    seen_keys_free(&s->seen);
    str_free(&s->key);
    str_free(&s->label);
    str_free(&s->found);
    xfree(s);
}

bool image_scan_goes_on(const struct image_scan *s) { return s->goes_on; }

const char *image_scan_key(const struct image_scan *s) { return str_text(&s->key); }

static int bad(struct image_scan *s, int64_t at, const char *what, struct err *e)
{
    s->goes_on = true;
    return err_set(e, ERR_CORRUPT, "%s: sample %.200s at byte %lld: %s", s->buffer.blob->path, str_text(&s->key),
                   (long long)at, what);
}

/* A member of the sample: the picture's place, or the label's text where none of a better place came before. */
static int take_member(struct image_scan *s, const struct tar_member *m, struct err *e)
{
    const char *extension = m->name + s->key.n + 1;
    const struct media_row *row = media_of_name(extension);
    if (s->found.n < 100) str_printf(&s->found, "%s.%.40s", s->found.n ? ", " : "", extension);
    bool picture =
        !s->o.no_image && (s->o.image ? field_names(s->o.image, extension) : row && row->kind == MEDIA_IMAGE);
    s->other |= row && row->kind != MEDIA_IMAGE;
    if (picture && s->has_image) return bad(s, m->offset, "has two pictures; name the extension of one", e);
    int way = 0;
    while (way < s->field.n && strcasecmp(s->field.way[way].extension, extension)) way++;
    if (!picture && way == s->label_way && way < s->field.n)
        return bad(s, m->offset, "has two members that its label may be in, of one extension", e);
    if (!picture && way >= s->label_way) return OK;
    if (!m->is_file) return bad(s, m->offset, "is a link or a device, no file", e);
    if (picture && m->bytes > SOURCE_RECORD_MAX) return bad(s, m->offset, "has a picture of more than 256 MiB", e);
    if (picture) {
        s->has_image = true;
        s->image.header = m->offset;
        s->image.bytes = m->bytes;
        return tar_data_offset(s->tar, m, &s->image.offset, e);
    }
    if (m->bytes > LABEL_BYTES) return bad(s, m->offset, "has a label of more than 1 MiB", e);
    s->label_way = way;
    return tar_read(s->tar, m, &s->label, e);
}

/* A whole number, with white space around it. */
static bool whole_number(const char *text, int64_t *v)
{
    char *end;
    errno = 0;
    *v = strtoll(text, &end, 10);
    bool some = end != text && !errno;
    while (isspace((unsigned char)*end)) end++;
    return some && !*end;
}

static bool number_in_json(const struct field_way *w, const struct json *v, int64_t *label)
{
    v = field_way_value(w, v);
    if (!v) return false;
    if (json_kind(v) == JSON_INT) return *label = json_int(v, -1), true;
    const char *text = json_string(v, NULL, NULL);
    return text && whole_number(text, label);
}

/* The label, of the place that it was found in. A sample of several .json ways has them in one text. */
static int read_label(struct image_scan *s, int64_t at, struct err *e)
{
    char what[300];
    int64_t label = -1;
    bool is = false;
    if (s->label_way == s->field.n) {
        snprintf(what, sizeof what, "has no label: no member %s (it has %.150s)", s->o.label, str_text(&s->found));
        return bad(s, at, what, e);
    }
    const struct field_way *w = &s->field.way[s->label_way];
    if (w->n_steps) {
        struct json *root;
        if (json_parse_published(&root, str_text(&s->label), s->label.n, "its .json", e)) {
            snprintf(what, sizeof what, "%.290s", e->text);
            return bad(s, at, what, e);
        }
        for (int i = s->label_way; i < s->field.n && !is; i++)
            if (s->field.way[i].n_steps && !strcasecmp(s->field.way[i].extension, w->extension))
                is = number_in_json(&s->field.way[i], root, &label);
        json_free(root);
    } else {
        is = strlen(str_text(&s->label)) == s->label.n && whole_number(str_text(&s->label), &label);
    }
    if (is && label >= 0 && label < s->o.classes) {
        s->image.label = (int32_t)label;
        return OK;
    }
    if (is)
        snprintf(what, sizeof what, "its label is %lld; wanted 0 to %lld (model.classes)", (long long)label,
                 (long long)s->o.classes - 1);
    else if (w->n_steps) snprintf(what, sizeof what, "its .json has no whole number at %.200s", s->o.label);
    else
        snprintf(what, sizeof what,
                 "its label .%.60s is \"%.60s\", no whole number; classes are numbers here (captions train llava)",
                 w->extension, str_text(&s->label));
    for (char *p = what; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    return bad(s, at, what, e);
}

static int first_member(struct image_scan *s, struct tar_member *m, struct err *e)
{
    int got = 1;
    if (s->has_ahead) *m = s->ahead;
    else got = s->at_end ? 0 : tar_next(s->tar, m, e);
    while (got > 0 && !sample_key(m->name)) got = tar_next(s->tar, m, e);
    s->has_ahead = false;
    return got;
}

int image_scan_next(struct image_scan *s, struct image_found *f, struct err *e)
{
    struct tar_member m;
    struct err later;
    s->goes_on = false;
    int got = first_member(s, &m, e), code = OK;
    if (got <= 0) return s->at_end = true, got;
    str_clear(&s->key);
    str_clear(&s->found);
    str_clear(&s->label);
    str_add(&s->key, m.name, sample_key(m.name));
    s->has_image = s->other = false;
    s->label_way = s->field.n;
    s->image = (struct image_found){.header = m.offset};
    int64_t at = m.offset;
    if (seen_keys_add(&s->seen, s->key.p, s->key.n)) code = bad(s, at, SEEN_KEYS_AGAIN, e);
    for (;;) {
        if (!code && sample_key(m.name)) code = take_member(s, &m, e);
        if (code && !s->goes_on) return code;
        got = tar_next(s->tar, &m, code ? &later : e);
        if (got <= 0) break;
        size_t n = sample_key(m.name);
        if (!n || (n == s->key.n && !memcmp(m.name, s->key.p, n))) continue;
        s->ahead = m;
        s->has_ahead = true;
        break;
    }
    if (got < 0) return s->goes_on = false, code ? (*e = later, later.code) : got;
    s->at_end = got == 0;
    if (code) return code;
    if (!s->has_image && !s->o.no_image) {
        char what[300];
        snprintf(what, sizeof what, "has no picture (it has %.150s)%s", str_text(&s->found),
                 s->other ? "; no model here trains on sound or video yet" : "");
        return bad(s, at, what, e);
    }
    if (!s->o.no_label) code = read_label(s, at, e);
    if (code) return code;
    *f = s->image;
    f->key = str_text(&s->key);
    return 1;
}
