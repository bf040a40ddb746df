/* SPDX-License-Identifier: Apache-2.0 */
#include "source/json_record.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

void json_record_fini(struct json_record *r)
{
    json_free(r->record);
    str_free(&r->line.text);
    *r = (struct json_record){0};
}

/* What the record has where its text should be; NULL: nothing. */
static const char *instead_of_text(const struct json *v)
{
    if (!v) return NULL;
    switch (json_kind(v)) {
    case JSON_INT:
    case JSON_REAL: return "a number";
    case JSON_ARRAY: return "a list";
    case JSON_OBJECT: return "an object";
    case JSON_STRING: return NULL;
    default: return "true or false";
    }
}

static int no_text(const struct json *record, const struct record_file *f, const char *where, struct err *e)
{
    struct str names = {0};
    const char *has = instead_of_text(record_member(record, f->column));
    for (void *it = json_kind(record) == JSON_OBJECT ? json_iter(record) : NULL; it && names.n < 200;
         it = json_iter_next(record, it))
        str_printf(&names, "%s%.60s", names.n ? ", " : "", json_iter_key(it));
    int code = f->whole ? err_set(e, ERR_CORRUPT, "%s: wanted an object", where)
                        : err_set(e, ERR_CORRUPT, "%s: wanted an object with a string member \"%s\"%s%s%s%s", where,
                                  f->column, has ? ", which is " : "", has ? has : "", names.n ? "; this one has " : "",
                                  str_text(&names));
    str_free(&names);
    return code;
}

static bool is_null(const struct json *v) { return v && json_kind(v) == JSON_NULL; }

int json_record_take(struct json_record *r, const struct record_file *f, const char *where, const char *p, size_t n,
                     struct record *out, struct err *e)
{
    json_free(r->record);
    r->record = NULL;
    out->line = p;
    out->line_n = n;
    bool read = json_line_read(&r->line, p, n, f->whole ? NULL : f->column);
    if (read && r->line.twice)
        return err_set(e, ERR_CORRUPT, "%s: has the member \"%s\" twice; which is the text?", where, f->column);
    if (read && (f->whole || r->line.has_text)) {
        out->text = f->whole ? p : str_text(&r->line.text);
        out->n = f->whole ? n : r->line.text.n;
        out->members = r->line.n_members;
        return out->n > 0;
    }
    int code = json_parse_published(&r->record, p, n, where, e);
    if (code) return code;
    out->members = (int64_t)json_size(r->record);
    if (f->whole) {
        if (json_kind(r->record) != JSON_OBJECT) return no_text(r->record, f, where, e);
        out->text = p;
        out->n = n;
        return 1;
    }
    const struct json *v = record_member(r->record, f->column);
    if (is_null(v)) return 0;
    out->text = json_string(v, &out->n, NULL);
    return out->text ? out->n > 0 : no_text(r->record, f, where, e);
}

bool json_record_fits(const struct record_file *f, const char *p, size_t n)
{
    struct json *record = NULL;
    struct err e;
    bool fits = !json_parse_published(&record, p, n, "", &e) && json_kind(record) == JSON_OBJECT;
    if (fits && !f->whole) {
        const struct json *v = record_member(record, f->column);
        fits = is_null(v) || json_string(v, NULL, NULL);
    }
    json_free(record);
    return fits;
}
