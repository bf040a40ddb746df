/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_value.c: values: making them, comparing them, and characters in text.
 *
 * Maps are lists of pairs in the order they were made, searched from the front: a message has a handful of members.
 */
#include "jinja/jinja_value.h"

#include <math.h>
#include <string.h>

struct jv jv_word(const char *p) { return jv_text((struct jtext){.p = p, .n = strlen(p)}); }

struct jv jv_list_of(struct jv *item, int64_t n)
{
    return (struct jv){.kind = JV_LIST, .list = {.item = item, .n = n}};
}

static struct jtext data_text(struct arena *a, const char *p, size_t n)
{
    char *own = arena_alloc(a, n + 1);
    memcpy(own, p, n);
    return (struct jtext){.p = own, .n = n, .data = true};
}

static struct jv map_from_json(struct arena *a, const struct json *v)
{
    struct jmap *m = arena_alloc(a, sizeof *m);
    struct str key = {0};
    m->room = (int64_t)json_size(v);
    m->pair = arena_alloc(a, to_size(m->room) * sizeof *m->pair);
    for (void *it = json_iter(v); it; it = json_iter_next(v, it)) { /* the parser left one of equal keys */
        str_clear(&key);
        json_iter_key_text(it, &key);
        struct jpair *p = &m->pair[m->n++];
        p->key = jv_text(data_text(a, str_text(&key), key.n));
        p->value = jv_from_json(a, json_iter_value(it));
    }
    str_free(&key);
    return (struct jv){.kind = JV_MAP, .map = m};
}

struct jv jv_from_json(struct arena *a, const struct json *v)
{
    switch (json_kind(v)) {
    case JSON_NULL: return jv_none();
    case JSON_BOOL: return jv_bool(json_bool(v, false));
    case JSON_INT: return jv_int(json_int(v, 0));
    case JSON_REAL: return jv_real(json_real(v, 0));
    case JSON_STRING: {
        size_t n;
        const char *p = json_string(v, &n, "");
        return jv_text(data_text(a, p, n));
    }
    case JSON_ARRAY: {
        int64_t n = (int64_t)json_size(v);
        struct jv *item = arena_alloc(a, to_size(n) * sizeof *item);
        for (int64_t i = 0; i < n; i++) item[i] = jv_from_json(a, json_at(v, (size_t)i));
        return jv_list_of(item, n);
    }
    case JSON_OBJECT: return map_from_json(a, v);
    }
    return jv_none();
}

struct jtext jtext_part(struct jtext t, size_t from, size_t to)
{
    CHECK(from <= to && to <= t.n, "bytes [%zu, %zu) of %zu", from, to, t.n);
    return (struct jtext){.p = t.p + from,
                          .who = t.who ? t.who + from : NULL,
                          .n = to - from,
                          .data = t.data,
                          .safe = t.safe};
}

void jmap_put(struct jwork *w, struct arena *a, struct jmap *m, struct jv key, struct jv value)
{
    for (int64_t i = 0; i < m->n; i++)
        if (jv_equal(w, &m->pair[i].key, &key, 0)) {
            m->pair[i].value = value;
            return;
        }
    if (m->n == m->room) {
        struct jpair *old = m->pair;
        m->room = m->room ? 2 * m->room : 4;
        m->pair = arena_alloc(a, to_size(m->room) * sizeof *m->pair);
        w->bytes += m->room * (int64_t)sizeof *m->pair;
        if (m->n) memcpy(m->pair, old, to_size(m->n) * sizeof *m->pair);
    }
    m->pair[m->n++] = (struct jpair){key, value};
}

/* -- asking ------------------------------------------------------------------------------------------------- */

const char *jv_type(const struct jv *v)
{
    static const char *const names[] = {
        [JV_UNDEFINED] = "undefined",
        [JV_NONE] = "None",
        [JV_BOOL] = "bool",
        [JV_INT] = "int",
        [JV_REAL] = "float",
        [JV_TEXT] = "str",
        [JV_LIST] = "list",
        [JV_TUPLE] = "tuple",
        [JV_MAP] = "dict",
        [JV_NAMESPACE] = "namespace",
        [JV_MACRO] = "macro",
        [JV_LOOP] = "loop",
        [JV_FUNCTION] = "function",
        [JV_METHOD] = "method",
    };
    return names[v->kind];
}

bool jv_true(const struct jv *v)
{
    switch (v->kind) {
    case JV_UNDEFINED:
    case JV_NONE: return false;
    case JV_BOOL: return v->b;
    case JV_INT: return v->i != 0;
    case JV_REAL: return v->r != 0;
    case JV_TEXT: return v->text.n > 0;
    case JV_LIST:
    case JV_TUPLE: return v->list.n > 0;
    case JV_MAP: return v->map->n > 0;
    default: return true;
    }
}

bool jv_is_number(const struct jv *v) { return v->kind == JV_INT || v->kind == JV_REAL || v->kind == JV_BOOL; }

int64_t jv_as_int(const struct jv *v) { return v->kind == JV_BOOL ? v->b : v->i; }

double jv_as_real(const struct jv *v) { return v->kind == JV_REAL ? v->r : (double)jv_as_int(v); }

bool jtext_same(struct jtext t, const char *word) { return strlen(word) == t.n && !memcmp(t.p, word, t.n); }

static bool lists_equal(struct jwork *w, const struct jv *a, const struct jv *b, int depth)
{
    if (a->list.n != b->list.n) return false;
    for (int64_t i = 0; i < a->list.n; i++)
        if (!jv_equal(w, &a->list.item[i], &b->list.item[i], depth + 1)) return false;
    return true;
}

static bool maps_equal(struct jwork *w, const struct jmap *a, const struct jmap *b, int depth)
{
    if (a->n != b->n) return false;
    for (int64_t i = 0; i < a->n; i++) {
        const struct jv *other = jmap_get(w, b, &a->pair[i].key);
        if (!other || !jv_equal(w, &a->pair[i].value, other, depth + 1)) return false;
    }
    return true;
}

bool jv_equal(struct jwork *w, const struct jv *a, const struct jv *b, int depth)
{
    if (!jwork_add(w, 1) || depth > JV_DEPTH) return false;
    if (jv_is_number(a) && jv_is_number(b)) {
        if (a->kind == JV_REAL || b->kind == JV_REAL) return jv_as_real(a) == jv_as_real(b);
        return jv_as_int(a) == jv_as_int(b);
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case JV_TEXT:
        return a->text.n == b->text.n && jwork_add(w, (int64_t)(a->text.n / 64)) &&
               !memcmp(a->text.p, b->text.p, a->text.n);
    case JV_LIST:
    case JV_TUPLE: return lists_equal(w, a, b, depth);
    case JV_MAP: return maps_equal(w, a->map, b->map, depth);
    case JV_NAMESPACE: return a->map == b->map;
    case JV_MACRO: return a->macro == b->macro;
    case JV_LOOP: return a->loop == b->loop;
    case JV_FUNCTION: return !strcmp(a->name, b->name);
    case JV_METHOD: return a->method == b->method;
    default: return true; /* two that are undefined, two that are None */
    }
}

int jv_compare(struct jwork *w, const struct jv *a, const struct jv *b, bool *fails, int depth)
{
    if (!jwork_add(w, 1)) return 0;
    if (jv_is_number(a) && jv_is_number(b)) {
        if (a->kind != JV_REAL && b->kind != JV_REAL) {
            int64_t x = jv_as_int(a), y = jv_as_int(b);
            return (x > y) - (x < y);
        }
        double x = jv_as_real(a), y = jv_as_real(b);
        if (isnan(x) || isnan(y)) *fails = true; /* Python says no to each of <, > and ==; templates have no NaN */
        return (x > y) - (x < y);
    }
    if (a->kind == JV_TEXT && b->kind == JV_TEXT) { /* the order of bytes is that of code points */
        size_t n = a->text.n < b->text.n ? a->text.n : b->text.n;
        if (!jwork_add(w, (int64_t)(n / 64))) return 0;
        int first = n ? memcmp(a->text.p, b->text.p, n) : 0;
        return first ? first : (a->text.n > b->text.n) - (a->text.n < b->text.n);
    }
    if (a->kind == b->kind && (a->kind == JV_LIST || a->kind == JV_TUPLE) && depth < JV_DEPTH) {
        for (int64_t i = 0; i < a->list.n && i < b->list.n; i++)
            if (!jv_equal(w, &a->list.item[i], &b->list.item[i], depth + 1))
                return jv_compare(w, &a->list.item[i], &b->list.item[i], fails, depth + 1);
        return (a->list.n > b->list.n) - (a->list.n < b->list.n);
    }
    *fails = true;
    return 0;
}

const struct jv *jmap_get(struct jwork *w, const struct jmap *m, const struct jv *key)
{
    for (int64_t i = 0; i < m->n; i++)
        if (jv_equal(w, &m->pair[i].key, key, 0)) return &m->pair[i].value;
    return NULL;
}

const struct jv *jmap_word(struct jwork *w, const struct jmap *m, const char *key)
{
    if (!jwork_add(w, m->n / 4)) return NULL;
    for (int64_t i = 0; i < m->n; i++)
        if (m->pair[i].key.kind == JV_TEXT && jtext_same(m->pair[i].key.text, key)) return &m->pair[i].value;
    return NULL;
}

/* -- characters --------------------------------------------------------------------------------------------- */

static bool begins(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

int64_t jtext_length(struct jwork *w, struct jtext t)
{
    int64_t n = 0;
    if (!jwork_add(w, (int64_t)(t.n / 32))) return 0;
    for (size_t i = 0; i < t.n; i++) n += begins(t.p[i]);
    return n;
}

size_t jtext_at(struct jwork *w, struct jtext t, int64_t character)
{
    if (!jwork_add(w, (int64_t)(t.n / 32))) return t.n;
    for (size_t i = 0; i < t.n; i++)
        if (begins(t.p[i]) && character-- == 0) return i;
    return t.n;
}

static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* The character at t.p[at], which is whole. */
static size_t character(struct jtext t, size_t at, uint32_t *c)
{
    const unsigned char *p = (const unsigned char *)t.p + at;
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (len > t.n - at) len = t.n - at;
    *c = len == 1 ? p[0] : p[0] & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++) *c = *c << 6 | (p[i] & 0x3F);
    return len;
}

size_t jtext_space(struct jtext t, size_t at)
{
    uint32_t c;
    if (at >= t.n) return 0;
    size_t len = character(t, at, &c);
    return is_space(c) ? len : 0;
}

size_t jtext_space_before(struct jtext t, size_t end)
{
    size_t at = end;
    if (!end) return 0;
    do at--;
    while (at > 0 && !begins(t.p[at]));
    return jtext_space(t, at) ? end - at : 0;
}

/* -- text that grows ---------------------------------------------------------------------------------------- */

void jbuild_bytes(struct jbuild *b, const char *p, size_t n, bool data)
{
    static const char ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                      zeros[64] = {0};
    if (!n) return;
    str_add(&b->text, p, n);
    for (size_t at = 0; at < n; at += sizeof ones)
        str_add(&b->who, data ? ones : zeros, n - at < sizeof ones ? n - at : sizeof ones);
}

void jbuild_add(struct jbuild *b, struct jtext t)
{
    if (!t.who || !t.n) {
        jbuild_bytes(b, t.p, t.n, t.data);
        return;
    }
    str_add(&b->text, t.p, t.n);
    str_add(&b->who, t.who, t.n);
}

struct jtext jbuild_done(struct jbuild *b, struct arena *a)
{
    size_t n = b->text.n;
    char *p = arena_alloc(a, n + 1);
    struct jtext t = {.p = p, .n = n, .data = n && b->who.p[0]};
    if (n) memcpy(p, b->text.p, n);
    if (n && memchr(b->who.p, !b->who.p[0], n)) {
        char *who = arena_alloc(a, n);
        t.who = memcpy(who, b->who.p, n);
    }
    jbuild_free(b);
    return t;
}

void jbuild_free(struct jbuild *b)
{
    str_free(&b->text);
    str_free(&b->who);
}
