/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_print.c: values as text: Python's str and repr, and JSON as its json.dumps writes it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja_run.h"

void jprint_real(double v, char out[40])
{
    char digits[32];
    if (isnan(v) || isinf(v)) {
        snprintf(out, 40, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    int n = 0;
    do snprintf(digits, sizeof digits, "%.*e", n++, v);
    while (strtod(digits, NULL) != v && n < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) { /* 1e+16, 1.5e-05 */
        *strchr(digits, 'e') = 0;
        snprintf(out, 40, "%.24se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    int decimals = n - 1 - exponent;
    snprintf(out, 40, "%.*f", decimals > 1 ? decimals : 1, v);
}

/* -- repr --------------------------------------------------------------------------------------------------- */

/* Characters that Python's repr escapes although they are no ASCII: spaces, formatting, private use, noncharacters. */
static bool unprintable(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x7F, 0xA0},     {0xAD, 0xAD},     {0x600, 0x605},   {0x61C, 0x61C},   {0x6DD, 0x6DD},     {0x1680, 0x1680},
        {0x180E, 0x180E}, {0x2000, 0x200F}, {0x2028, 0x202F}, {0x205F, 0x206F}, {0x3000, 0x3000},   {0xE000, 0xF8FF},
        {0xFDD0, 0xFDEF}, {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF}, {0xE0000, 0xE00FF}, {0xE01F0, 0x10FFFF},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

static void print_repr_char(struct jbuild *b, struct jtext t, size_t at, size_t len, uint32_t c, char quote)
{
    char escape[16] = "";
    bool data = jtext_who(t, at);
    if (c == '\\' || c == (unsigned char)quote) snprintf(escape, sizeof escape, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c < 0x20 || (c < 0x100 && unprintable(c))) snprintf(escape, sizeof escape, "\\x%02x", c);
    else if (c < 0x10000 && unprintable(c)) snprintf(escape, sizeof escape, "\\u%04x", c);
    else if (unprintable(c)) snprintf(escape, sizeof escape, "\\U%08x", c);
    if (*escape) jbuild_bytes(b, escape, strlen(escape), data);
    else jbuild_add(b, jtext_part(t, at, at + len));
}

static void print_repr_text(struct jbuild *b, struct jtext t)
{
    char quote = memchr(t.p, '\'', t.n) && !memchr(t.p, '"', t.n) ? '"' : '\'';
    jbuild_bytes(b, &quote, 1, false);
    for (size_t at = 0; at < t.n;) {
        uint32_t c = (unsigned char)t.p[at];
        int len = c < 0x80 ? 1 : str_utf8(t.p + at, &c);
        if (len < 1) len = 1;
        print_repr_char(b, t, at, (size_t)len, c, quote);
        at += (size_t)len;
    }
    jbuild_bytes(b, &quote, 1, false);
}

static void print_repr(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v, int depth);

static void print_list(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v, int depth)
{
    bool tuple = v->kind == JV_TUPLE;
    jbuild_puts(b, tuple ? "(" : "[");
    for (int64_t i = 0; i < v->list.n && !r->code; i++) {
        if (i) jbuild_puts(b, ", ");
        print_repr(r, at, b, &v->list.item[i], depth + 1);
    }
    jbuild_puts(b, tuple ? v->list.n == 1 ? ",)" : ")" : "]");
}

static void print_map(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jmap *m, int depth)
{
    jbuild_puts(b, "{");
    for (int64_t i = 0; i < m->n && !r->code; i++) {
        if (i) jbuild_puts(b, ", ");
        print_repr(r, at, b, &m->pair[i].key, depth + 1);
        jbuild_puts(b, ": ");
        print_repr(r, at, b, &m->pair[i].value, depth + 1);
    }
    jbuild_puts(b, "}");
}

static void print_repr(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v, int depth)
{
    if (!jspend(r, at, 1)) return;
    if (b->text.n > JINJA_BYTES || depth > JV_DEPTH) {
        jfail(r, at, depth > JV_DEPTH ? "a value nested deeper than %d" : "a text of more than %d bytes",
              depth > JV_DEPTH ? JV_DEPTH : JINJA_BYTES);
        return;
    }
    if (v->kind == JV_TEXT && jspend(r, at, (int64_t)v->text.n)) print_repr_text(b, v->text);
    else if (v->kind == JV_LIST || v->kind == JV_TUPLE) print_list(r, at, b, v, depth);
    else if (v->kind == JV_MAP) print_map(r, at, b, v->map, depth);
    else if (v->kind == JV_UNDEFINED) jbuild_puts(b, "Undefined");
    else jprint(r, at, b, v);
}

void jprint_repr(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v)
{
    print_repr(r, at, b, v, 0);
}

/* -- str ---------------------------------------------------------------------------------------------------- */

void jprint(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v)
{
    char number[40];
    switch (v->kind) {
    case JV_UNDEFINED:
        if (r->strict) (void)jdefined(r, at, v);
        break;
    case JV_NONE: jbuild_puts(b, "None"); break;
    case JV_BOOL: jbuild_puts(b, v->b ? "True" : "False"); break;
    case JV_INT:
        snprintf(number, sizeof number, "%lld", (long long)v->i);
        jbuild_puts(b, number);
        break;
    case JV_REAL:
        if (!jspend(r, at, 64)) break; /* up to 17 tries */
        jprint_real(v->r, number);
        jbuild_puts(b, number);
        break;
    case JV_TEXT:
        if (jspend(r, at, (int64_t)(v->text.n / 64))) jbuild_add(b, v->text);
        break;
    case JV_LIST:
    case JV_TUPLE:
    case JV_MAP: print_repr(r, at, b, v, 0); break;
    default: jfail(r, at, "a %s cannot be written out", jv_type(v));
    }
}

struct jtext jstring(struct jrun *r, const struct jnode *at, const struct jv *v)
{
    if (v->kind == JV_TEXT) return v->text;
    struct jbuild b = {0};
    jprint(r, at, &b, v);
    struct jv done = jdone(r, at, &b);
    return done.kind == JV_TEXT ? done.text : (struct jtext){.p = ""};
}

/* -- JSON --------------------------------------------------------------------------------------------------- */

static void json_text(struct jbuild *b, struct jtext t, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    size_t done = 0, len = 1;
    jbuild_puts(b, "\"");
    for (size_t i = 0; i < t.n; i += len) {
        char escape[16];
        uint32_t c = (unsigned char)t.p[i];
        const char *known = c ? strchr(from, (int)c) : NULL;
        len = 1;
        if (!known && c >= 0x20 && (!ascii || c < 0x7F)) continue;
        if (c >= 0x80 && str_utf8(t.p + i, &c) > 0) len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (known) snprintf(escape, sizeof escape, "\\%c", to[known - from]);
        else if (c < 0x10000) snprintf(escape, sizeof escape, "\\u%04x", c);
        else snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
        jbuild_add(b, jtext_part(t, done, i));
        jbuild_bytes(b, escape, strlen(escape), jtext_who(t, i));
        done = i + len;
    }
    jbuild_add(b, jtext_part(t, done, t.n));
    jbuild_puts(b, "\"");
}

static void json_newline(struct jbuild *b, const struct jjson_style *s, int depth)
{
    if (!s->lines) return;
    jbuild_puts(b, "\n");
    for (int i = 0; i < depth && b->text.n <= JINJA_BYTES; i++) jbuild_add(b, s->indent);
}

static void json_value(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v,
                       const struct jjson_style *s, int depth);

static void json_key(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *key,
                     const struct jjson_style *s)
{
    if (key->kind == JV_TEXT) {
        json_value(r, at, b, key, s, 0);
        return;
    }
    if (key->kind != JV_NONE && !jv_is_number(key)) {
        jfail(r, at, "tojson: a key that is a %s", jv_type(key));
        return;
    }
    jbuild_puts(b, "\"");
    json_value(r, at, b, key, s, 0);
    jbuild_puts(b, "\"");
}

static void json_map(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jmap *m,
                     const struct jjson_style *s, int depth)
{
    if (!jtake(r, at, to_size(m->n) * sizeof(struct jsorted))) return;
    struct jsorted *order = jalloc(r, to_size(m->n) * sizeof *order);
    for (int64_t i = 0; i < m->n; i++) order[i] = (struct jsorted){m->pair[i].key, m->pair[i].value};
    if (s->sorted && !jsort(r, at, order, m->n, false)) return;
    jbuild_puts(b, "{");
    for (int64_t i = 0; i < m->n && !r->code; i++) {
        if (i) jbuild_add(b, s->between);
        json_newline(b, s, depth + 1);
        json_key(r, at, b, &order[i].key, s);
        jbuild_add(b, s->colon);
        json_value(r, at, b, &order[i].value, s, depth + 1);
    }
    if (m->n) json_newline(b, s, depth);
    jbuild_puts(b, "}");
}

static void json_list(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jlist *l,
                      const struct jjson_style *s, int depth)
{
    jbuild_puts(b, "[");
    for (int64_t i = 0; i < l->n && !r->code; i++) {
        if (i) jbuild_add(b, s->between);
        json_newline(b, s, depth + 1);
        json_value(r, at, b, &l->item[i], s, depth + 1);
    }
    if (l->n) json_newline(b, s, depth);
    jbuild_puts(b, "]");
}

static void json_value(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v,
                       const struct jjson_style *s, int depth)
{
    if (!jspend(r, at, 1)) return;
    if (b->text.n > JINJA_BYTES || depth > JV_DEPTH) {
        jfail(r, at, "tojson: a value nested too deep, or too long");
        return;
    }
    switch (v->kind) {
    case JV_NONE: jbuild_puts(b, "null"); break;
    case JV_BOOL: jbuild_puts(b, v->b ? "true" : "false"); break;
    case JV_REAL:
        if (isnan(v->r) || isinf(v->r)) jbuild_puts(b, isnan(v->r) ? "NaN" : v->r > 0 ? "Infinity" : "-Infinity");
        else jprint(r, at, b, v);
        break;
    case JV_INT: jprint(r, at, b, v); break;
    case JV_TEXT:
        if (jspend(r, at, (int64_t)(v->text.n / 8))) json_text(b, v->text, s->ascii);
        break;
    case JV_LIST:
    case JV_TUPLE: json_list(r, at, b, &v->list, s, depth); break;
    case JV_MAP: json_map(r, at, b, v->map, s, depth); break;
    default:
        jfail(r, at, "tojson: %s%s cannot be JSON", v->kind == JV_UNDEFINED ? "undefined " : "a ",
              v->kind == JV_UNDEFINED && v->name ? v->name : jv_type(v));
    }
}

void jprint_json(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v,
                 const struct jjson_style *s)
{
    json_value(r, at, b, v, s, 0);
}
