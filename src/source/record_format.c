/* SPDX-License-Identifier: Apache-2.0 */
/* record_format.c: the table of formats; the last row is for what is no other's. */
#include "source/record_format.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

static const struct record_format *const formats[] = {&format_parquet, &format_tar,  &format_jsonl,
                                                      &format_csv,     &format_json, &format_text};
enum { N_FORMATS = sizeof formats / sizeof *formats };

int bad_record(struct bad_records *b, int code, const struct err *e)
{
    if (!b->skip || (code != ERR_CORRUPT && code != ERR_REQUEST)) return code;
    b->n++;
    if (b->tell) b->tell(b->ctx, e->text);
    return OK;
}

void unit_list_add(struct unit_list *l, int64_t from, int64_t to)
{
    GROW(l->part, l->n, l->room, 1);
    l->part[l->n][0] = from;
    l->part[l->n++][1] = to;
}

bool record_file_ends(const struct record_file *f, const char *ending)
{
    const char *path = f->listed->path;
    size_t n = strlen(path), m = strlen(ending);
    if (source_buffer_packed(&f->buffer)) {
        static const char *const packed[] = {".gz", ".zst", ".zstd"};
        for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
            if (str_ends(path, packed[i])) {
                n -= strlen(packed[i]);
                break;
            }
    }
    return n >= m && !memcmp(path + n - m, ending, m);
}

static bool ends_as(const struct record_file *f, const char *endings)
{
    char ending[20];
    for (const char *p = endings; *p;) {
        size_t n = strcspn(p, " ");
        CHECK(n < sizeof ending, "an ending in \"%s\" is too long", endings);
        memcpy(ending, p, n);
        ending[n] = 0;
        if (record_file_ends(f, ending)) return true;
        p += n + strspn(p + n, " ");
    }
    return false;
}

const struct record_format *record_format_of(const struct record_file *f)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i]->begins && formats[i]->begins((unsigned char *)f->buffer.buf, f->buffer.n)) return formats[i];
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i] != &format_json && ends_as(f, formats[i]->endings)) return formats[i];
    switch (json_shape_of(f)) {
    case JSON_LINES: return &format_jsonl;
    case JSON_VALUES: return &format_json;
    default: return &format_text;
    }
}

const struct json *record_member(const struct json *v, const char *name)
{
    const struct json *found = json_get(v, name);
    const char *dot = strchr(name, '.');
    if (found || !dot) return found;
    char *first = xstrndup(name, (size_t)(dot - name));
    const struct json *in = json_get(v, first);
    xfree(first);
    return in ? record_member(in, dot + 1) : NULL;
}

bool record_blank(const char *p, size_t n)
{
    while (n && strchr(" \t\r\n", p[n - 1])) n--;
    return n == 0;
}
