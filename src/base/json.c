/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: reading with jansson, writing by hand.
 *
 * Reading: the library's values are our values (struct json is its json_t by another name), so a document of
 * 128,000 vocabulary entries is not copied. Strings may hold NUL, keys too (json_keys.h), and the library stops at a
 * depth of 2,048.
 *
 * What others write is read as Python reads it (json_parse_published): of two equal keys the later one counts, and
 * numbers that the library has no room for are respelt (json_numbers.h).
 *
 * Writing straight onto a str needs no document in memory: one flag says whether a comma is due. Text that is
 * not UTF-8 (half a character from a tokenizer, say) becomes U+FFFD, so that what we write always parses.
 */

/* Names that the library and json.h both have: within this file the library's go by another one. */
#define JSON_OBJECT LIB_OBJECT
#define JSON_ARRAY LIB_ARRAY
#define JSON_STRING LIB_STRING
#define JSON_REAL LIB_REAL
#define JSON_NULL LIB_NULL
#define json_string lib_string
#define json_real lib_real
#include <jansson.h>
#undef JSON_OBJECT
#undef JSON_ARRAY
#undef JSON_STRING
#undef JSON_REAL
#undef JSON_NULL
#undef json_string
#undef json_real

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json_keys.h"
#include "base/json_numbers.h"
#include "base/magic.h"
#include "base/mem.h"
#include "base/shown.h"

static const json_t *lib(const struct json *v) { return (const json_t *)v; }

static const struct json *ours(const json_t *v) { return (const struct json *)v; }

/* The library's own json_is_x macros would compare with our constants of the same names. */
static bool is(const struct json *v, json_type type) { return v && json_typeof(lib(v)) == type; }

static json_t *load(const char *text, size_t n, size_t flags, json_error_t *bad)
{
    struct str spelt = {0};
    bool other = json_keys_spell(&spelt, text, n);
    json_t *v =
        json_loadb(other ? str_text(&spelt) : text, other ? spelt.n : n, flags | JSON_ALLOW_NUL | JSON_DECODE_ANY, bad);
    str_free(&spelt);
    return v;
}

static int refuse(const json_error_t *bad, const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s:%d: not valid JSON: %s (column %d)", what, bad->line > 0 ? bad->line : 1,
                   bad->text, bad->column > 0 ? bad->column : 1);
}

int json_parse(struct json **root, const char *text, size_t n, const char *what, struct err *e)
{
    json_error_t bad;
    json_t *v = load(text ? text : "", n, JSON_REJECT_DUPLICATES, &bad);
    *root = (struct json *)v;
    return v ? OK : refuse(&bad, what, e);
}

/* Most documents are read at the first try; only where that fails are numbers looked for. */
int json_parse_published(struct json **root, const char *text, size_t n, const char *what, struct err *e)
{
    json_error_t bad;
    struct str spelt = {0};
    if (!text) n = 0;
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) text += 3, n -= 3;
    json_t *v = load(text ? text : "", n, 0, &bad);
    if (!v && n && json_numbers_spell(&spelt, text, n)) v = load(spelt.p, spelt.n, 0, &bad);
    str_free(&spelt);
    *root = (struct json *)v;
    return v ? OK : refuse(&bad, what, e);
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

void json_free(struct json *root) { json_decref((json_t *)root); }

static const struct {
    enum json_kind kind;
    const char *name;
} kinds[] = {
    [LIB_OBJECT] = {JSON_OBJECT, "an object"}, [LIB_ARRAY] = {JSON_ARRAY, "an array"},
    [LIB_STRING] = {JSON_STRING, "a string"},  [JSON_INTEGER] = {JSON_INT, "an integer"},
    [LIB_REAL] = {JSON_REAL, "a fraction"},    [JSON_TRUE] = {JSON_BOOL, "true"},
    [JSON_FALSE] = {JSON_BOOL, "false"},       [LIB_NULL] = {JSON_NULL, "null"},
};

enum json_kind json_kind(const struct json *v) { return kinds[json_typeof(lib(v))].kind; }

const struct json *json_get(const struct json *object, const char *key)
{
    return ours(json_object_get(lib(object), key));
}

size_t json_size(const struct json *v)
{
    return is(v, LIB_OBJECT) ? json_object_size(lib(v)) : json_array_size(lib(v));
}

const struct json *json_at(const struct json *array, size_t i) { return ours(json_array_get(lib(array), i)); }

void *json_iter(const struct json *object) { return json_object_iter((json_t *)(uintptr_t)object); }

void *json_iter_next(const struct json *object, void *it)
{
    return json_object_iter_next((json_t *)(uintptr_t)object, it);
}

const char *json_iter_key(void *it) { return json_object_iter_key(it); }

void json_iter_key_text(void *it, struct str *out)
{
    str_clear(out);
    json_keys_read(out, json_object_iter_key(it));
}

const struct json *json_iter_value(void *it) { return ours(json_object_iter_value(it)); }

const char *json_string(const struct json *v, size_t *n, const char *otherwise)
{
    bool text = is(v, LIB_STRING);
    if (n) *n = text ? json_string_length(lib(v)) : otherwise ? strlen(otherwise) : 0;
    return text ? json_string_value(lib(v)) : otherwise;
}

int64_t json_int(const struct json *v, int64_t otherwise)
{
    return is(v, JSON_INTEGER) ? (int64_t)json_integer_value(lib(v)) : otherwise;
}

double json_real(const struct json *v, double otherwise)
{
    double x = is(v, JSON_INTEGER) || is(v, LIB_REAL) ? json_number_value(lib(v)) : otherwise;
    return x == JSON_NOT_FINITE && is(v, LIB_REAL) ? NAN : x;
}

bool json_bool(const struct json *v, bool otherwise) { return is(v, JSON_TRUE) || (!is(v, JSON_FALSE) && otherwise); }

/* The member, or an error that says what was wanted of it. */
static int need(const struct json *object, const char *key, const char *wanted, const json_t **v, const char *what,
                struct err *e)
{
    *v = json_object_get(lib(object), key);
    if (*v) return OK;
    if (!is(object, LIB_OBJECT))
        return err_set(e, ERR_CORRUPT, "%s: wanted an object with the key \"%s\", got %s", what, key,
                       object ? kinds[json_typeof(lib(object))].name : "nothing");
    return err_set(e, ERR_CORRUPT, "%s: %s: missing; wanted %s", what, key, wanted);
}

int json_need_int(const struct json *object, const char *key, int64_t lo, int64_t hi, int64_t *out, const char *what,
                  struct err *e)
{
    const json_t *v;
    int code = need(object, key, "an integer", &v, what, e);
    if (code) return code;
    if (json_typeof(v) == LIB_REAL)
        return err_set(e, ERR_CORRUPT, "%s: %s: wanted an integer from %lld to %lld, got %.9g", what, key,
                       (long long)lo, (long long)hi, json_real(ours(v), 0));
    if (json_typeof(v) != JSON_INTEGER)
        return err_set(e, ERR_CORRUPT, "%s: %s: wanted an integer, got %s", what, key, kinds[json_typeof(v)].name);
    int64_t got = (int64_t)json_integer_value(v);
    if (got < lo || got > hi)
        return err_set(e, ERR_CORRUPT, "%s: %s: wanted an integer from %lld to %lld, got %lld", what, key,
                       (long long)lo, (long long)hi, (long long)got);
    *out = got;
    return OK;
}

int json_need_string(const struct json *object, const char *key, const char **out, const char *what, struct err *e)
{
    const json_t *v;
    int code = need(object, key, "a string", &v, what, e);
    if (code) return code;
    if (json_typeof(v) != LIB_STRING)
        return err_set(e, ERR_CORRUPT, "%s: %s: wanted a string, got %s", what, key, kinds[json_typeof(v)].name);
    const char *s = json_string_value(v);
    if (strlen(s) != json_string_length(v))
        return err_set(e, ERR_CORRUPT, "%s: %s: the string holds a NUL character", what, key);
    *out = s;
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
    struct str key = {0};
    for (void *it = json_iter(v); it && !holds; it = json_iter_next(v, it)) {
        str_clear(&key);
        json_iter_key_text(it, &key);
        holds = memchr(str_text(&key), 0, key.n) != NULL || json_holds_nul(json_iter_value(it));
    }
    str_free(&key);
    return holds;
}
