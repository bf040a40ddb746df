/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: looking into documents (json_read.c makes them), and writing.
 *
 * Writing straight onto a str needs no document in memory: one flag says whether a comma is due. Text that is
 * not UTF-8 (half a character from a tokenizer, say) becomes U+FFFD, so that what we write always parses.
 */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json_read.h"
#include "base/magic.h"
#include "base/mem.h"
#include "base/shown.h"

static bool is(const struct json *v, enum json_kind kind) { return v && v->kind == kind; }

int json_parse(struct json **root, const char *text, size_t n, const char *what, struct err *e)
{
    return json_read(root, text ? text : "", text ? n : 0, false, what, e);
}

int json_parse_published(struct json **root, const char *text, size_t n, const char *what, struct err *e)
{
    if (!text) text = "", n = 0;
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) text += 3, n -= 3;
    return json_read(root, text, n, true, what, e);
}

static int parse_file(struct json **root, const char *path, size_t limit, bool published, struct err *e)
{
    *root = NULL;
    char *text;
    size_t n;
    int code = fs_read_all(path, limit, &text, &n, e);
    if (code) return code;
    code = published ? json_parse_published(root, text, n, path, e) : json_parse(root, text, n, path, e);
    const struct magic *m = code && n ? magic_of(text, n) : NULL;
    if (m) code = err_set(e, ERR_CORRUPT, "%s: is %s; JSON was wanted%s", path, m->name, m->remedy ? m->remedy : "");
    if (code && !n) code = err_set(e, ERR_CORRUPT, "%s: is empty; JSON was wanted", path);
    xfree(text);
    return code;
}

int json_parse_file(struct json **root, const char *path, size_t limit, struct err *e)
{
    return parse_file(root, path, limit, false, e);
}

int json_parse_published_file(struct json **root, const char *path, size_t limit, struct err *e)
{
    return parse_file(root, path, limit, true, e);
}

enum json_kind json_kind(const struct json *v) { return (enum json_kind)v->kind; }

static const char *kind_name(const struct json *v)
{
    static const char *const names[] = {
        [JSON_NULL] = "null",       [JSON_BOOL] = "true",      [JSON_INT] = "an integer",   [JSON_REAL] = "a fraction",
        [JSON_STRING] = "a string", [JSON_ARRAY] = "an array", [JSON_OBJECT] = "an object",
    };
    return is(v, JSON_BOOL) && !v->truth ? "false" : names[v->kind];
}

const struct json *json_get(const struct json *object, const char *key)
{
    const struct json_member *m = is(object, JSON_OBJECT) && key ? json_find(object, key, strlen(key)) : NULL;
    return m ? &m->value : NULL;
}

size_t json_size(const struct json *v) { return is(v, JSON_OBJECT) || is(v, JSON_ARRAY) ? v->n : 0; }

const struct json *json_at(const struct json *array, size_t i)
{
    return is(array, JSON_ARRAY) && i < array->n ? &array->items[i] : NULL;
}

void *json_iter(const struct json *object) { return is(object, JSON_OBJECT) && object->n ? object->members : NULL; }

void *json_iter_next(const struct json *object, void *it)
{
    struct json_member *next = (struct json_member *)it + 1;
    return next < object->members + object->n ? next : NULL;
}

const char *json_iter_key(void *it)
{
    const struct json_member *m = it;
    return memchr(m->key, 0, m->key_n) ? m->key + m->key_n + 1 : m->key;
}

const char *json_iter_key_bytes(void *it, size_t *n)
{
    const struct json_member *m = it;
    *n = m->key_n;
    return m->key;
}

void json_iter_key_text(void *it, struct str *out)
{
    const struct json_member *m = it;
    str_clear(out);
    str_add(out, m->key, m->key_n);
}

const struct json *json_iter_value(void *it) { return &((struct json_member *)it)->value; }

void json_ask(const struct json *object, struct json_asked *asked, size_t n)
{
    if (is(object, JSON_OBJECT)) json_find_many(object, asked, n);
    else
        for (size_t i = 0; i < n; i++) asked[i].it = NULL;
}

const char *json_string(const struct json *v, size_t *n, const char *otherwise)
{
    bool text = is(v, JSON_STRING);
    if (n) *n = text ? v->n : otherwise ? strlen(otherwise) : 0;
    return text ? v->text : otherwise;
}

int64_t json_int(const struct json *v, int64_t otherwise) { return is(v, JSON_INT) ? v->integer : otherwise; }

double json_real(const struct json *v, double otherwise)
{
    if (is(v, JSON_INT)) return (double)v->integer;
    if (!is(v, JSON_REAL)) return otherwise;
    double x = strtod(v->text, NULL);
    return isfinite(x) ? x : NAN;
}

const char *json_real_text(const struct json *v) { return is(v, JSON_REAL) ? v->text : NULL; }

bool json_bool(const struct json *v, bool otherwise) { return is(v, JSON_BOOL) ? v->truth : otherwise; }

/* The member, or an error that says what was wanted of it. */
static int need(const struct json *object, const char *key, const char *wanted, const struct json **v, const char *what,
                struct err *e)
{
    *v = json_get(object, key);
    if (*v) return OK;
    if (!is(object, JSON_OBJECT))
        return err_set(e, ERR_CORRUPT, "%s: wanted an object with the key \"%s\", got %s", what, key,
                       object ? kind_name(object) : "nothing");
    return err_set(e, ERR_CORRUPT, "%s: %s: missing; wanted %s", what, key, wanted);
}

int json_need_int(const struct json *object, const char *key, int64_t lo, int64_t hi, int64_t *out, const char *what,
                  struct err *e)
{
    const struct json *v;
    int code = need(object, key, "an integer", &v, what, e);
    if (code) return code;
    if (is(v, JSON_REAL))
        return err_set(e, ERR_CORRUPT, "%s: %s: wanted an integer from %lld to %lld, got %.9g", what, key,
                       (long long)lo, (long long)hi, json_real(v, 0));
    if (!is(v, JSON_INT)) return err_set(e, ERR_CORRUPT, "%s: %s: wanted an integer, got %s", what, key, kind_name(v));
    int64_t got = v->integer;
    if (got < lo || got > hi)
        return err_set(e, ERR_CORRUPT, "%s: %s: wanted an integer from %lld to %lld, got %lld", what, key,
                       (long long)lo, (long long)hi, (long long)got);
    *out = got;
    return OK;
}

int json_need_string(const struct json *object, const char *key, const char **out, const char *what, struct err *e)
{
    const struct json *v;
    int code = need(object, key, "a string", &v, what, e);
    if (code) return code;
    if (!is(v, JSON_STRING)) return err_set(e, ERR_CORRUPT, "%s: %s: wanted a string, got %s", what, key, kind_name(v));
    if (strlen(v->text) != v->n) return err_set(e, ERR_CORRUPT, "%s: %s: the string holds a NUL character", what, key);
    *out = v->text;
    return OK;
}

static void new_line(struct json_out *o)
{
    str_putc(o->s, '\n');
    for (int i = 0; i < o->depth; i++) str_puts(o->s, "  ");
}

static void add_quoted(struct str *s, const char *text)
{
    static const char short_escapes[][2] = {{'"', '"'}, {'\\', '\\'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    str_putc(s, '"');
    for (const char *p = text; *p;) {
        uint32_t c;
        int n = str_utf8(p, &c);
        size_t k = 0;
        while (k < 5 && *p != short_escapes[k][0]) k++;
        if (k < 5) str_printf(s, "\\%c", short_escapes[k][1]);
        else if (n == 0) str_puts(s, "\xEF\xBF\xBD");
        else if (shown_spelt(c)) str_printf(s, "\\u%04x", (unsigned)c);
        else str_add(s, p, (size_t)n);
        p += n ? n : 1;
    }
    str_putc(s, '"');
}

/* Comma, line break and key: what comes before every value. */
static void start(struct json_out *o, const char *key)
{
    if (o->need_comma) str_putc(o->s, ',');
    if (o->pretty && o->depth > 0) new_line(o);
    if (key) {
        add_quoted(o->s, key);
        str_puts(o->s, o->pretty ? ": " : ":");
    }
    o->need_comma = true;
}

static void begin(struct json_out *o, const char *key, char bracket)
{
    start(o, key);
    str_putc(o->s, bracket);
    o->depth++;
    o->need_comma = false;
}

static void end(struct json_out *o, char bracket)
{
    CHECK(o->depth > 0, "'%c' without a beginning", bracket);
    o->depth--;
    if (o->pretty && o->need_comma) new_line(o); /* something is inside */
    str_putc(o->s, bracket);
    o->need_comma = true;
}

void json_begin_object(struct json_out *o, const char *key) { begin(o, key, '{'); }

void json_begin_document(struct json_out *o, const char *name, int version)
{
    char schema[80];
    snprintf(schema, sizeof schema, "tutti.%s.%d", name, version);
    json_begin_object(o, NULL);
    json_put_string(o, "schema", schema);
}

void json_end_object(struct json_out *o) { end(o, '}'); }

void json_begin_array(struct json_out *o, const char *key) { begin(o, key, '['); }

void json_end_array(struct json_out *o) { end(o, ']'); }

void json_put_int(struct json_out *o, const char *key, int64_t v)
{
    start(o, key);
    str_printf(o->s, "%lld", (long long)v);
}

void json_put_real_digits(struct json_out *o, const char *key, double v, int significant_digits)
{
    start(o, key);
    if (v == 0 && signbit(v)) str_puts(o->s, "-0.0"); /* "-0" would be read as an integer, which has no sign there */
    else if (isfinite(v)) str_printf(o->s, "%.*g", significant_digits, v);
    else str_puts(o->s, "null");
}

void json_put_real(struct json_out *o, const char *key, double v)
{
    int digits = 1;
    char text[40];
    for (; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    json_put_real_digits(o, key, v, digits);
}

void json_put_bool(struct json_out *o, const char *key, bool v)
{
    start(o, key);
    str_puts(o->s, v ? "true" : "false");
}

void json_put_string(struct json_out *o, const char *key, const char *v)
{
    start(o, key);
    add_quoted(o->s, v);
}

void json_put_null(struct json_out *o, const char *key)
{
    start(o, key);
    str_puts(o->s, "null");
}

void json_put_value(struct json_out *o, const char *key, const struct json *v)
{
    struct str name = {0};
    switch (json_kind(v)) {
    case JSON_NULL: json_put_null(o, key); break;
    case JSON_BOOL: json_put_bool(o, key, json_bool(v, false)); break;
    case JSON_INT: json_put_int(o, key, json_int(v, 0)); break;
    case JSON_REAL: json_put_real(o, key, json_real(v, 0)); break;
    case JSON_STRING: json_put_string(o, key, json_string(v, NULL, "")); break;
    case JSON_ARRAY:
        json_begin_array(o, key);
        for (size_t i = 0; i < json_size(v); i++) json_put_value(o, NULL, json_at(v, i));
        json_end_array(o);
        break;
    case JSON_OBJECT:
        json_begin_object(o, key);
        for (void *it = json_iter(v); it; it = json_iter_next(v, it)) {
            json_iter_key_text(it, &name);
            json_put_value(o, str_text(&name), json_iter_value(it));
        }
        json_end_object(o);
        break;
    }
    str_free(&name);
}

bool json_holds_nul(const struct json *v)
{
    size_t n;
    const char *text = json_string(v, &n, NULL);
    if (text) return memchr(text, 0, n) != NULL;
    bool holds = false;
    for (size_t i = 0; !holds && json_kind(v) == JSON_ARRAY && i < json_size(v); i++)
        holds = json_holds_nul(json_at(v, i));
    if (json_kind(v) != JSON_OBJECT) return holds;
    for (void *it = json_iter(v); it && !holds; it = json_iter_next(v, it)) {
        size_t key_n;
        const char *key = json_iter_key_bytes(it, &key_n);
        holds = memchr(key, 0, key_n) != NULL || json_holds_nul(json_iter_value(it));
    }
    return holds;
}
