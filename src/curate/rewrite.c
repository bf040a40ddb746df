/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite.c: only the value that changed is written anew, so numbers keep their digits and members their order. */
#include "curate/rewrite.h"

#include <string.h>

#include "text/utf8.h"

void rewrite_string(struct str *out, const char *p, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    str_putc(out, '"');
    for (size_t at = 0; at < n;) {
        size_t end = at;
        while (end < n && (unsigned char)p[end] >= ' ' && (unsigned char)p[end] < 0x7F && p[end] != '"' &&
               p[end] != '\\')
            end++;
        str_add(out, p + at, end - at);
        if ((at = end) == n) break;
        unsigned char c = (unsigned char)p[at];
        int len = c < 0x80 ? 1 : utf8_char((const unsigned char *)p + at, n - at);
        if (c >= 0x80 || c == 0x7F) {
            if (len > 0) str_add(out, p + at, (size_t)len);
            else str_puts(out, "\xEF\xBF\xBD");
        } else if (c == '"' || c == '\\') {
            str_putc(out, '\\');
            str_putc(out, (char)c);
        } else if (c == '\n') {
            str_puts(out, "\\n");
        } else if (c == '\t') {
            str_puts(out, "\\t");
        } else if (c == '\r') {
            str_puts(out, "\\r");
        } else {
            char u[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            str_add(out, u, sizeof u);
        }
        at += len > 0 ? (size_t)len : 1;
    }
    str_putc(out, '"');
}

/* Behind the string that begins at p[at], which is a quote; n where it does not end. */
static size_t string_end(const char *p, size_t at, size_t n)
{
    for (at++; at < n && p[at] != '"'; at++) at += p[at] == '\\';
    return at < n ? at + 1 : n;
}

/* Behind the value that begins at p[at]. */
static size_t value_end(const char *p, size_t at, size_t n)
{
    int depth = 0;
    while (at < n) {
        char c = p[at];
        if (c == '"') {
            at = string_end(p, at, n);
            if (!depth) return at;
            continue;
        }
        if ((c == ',' || c == '}' || c == ']') && !depth) return at;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        at++;
        if (!depth && (c == '}' || c == ']')) return at;
    }
    return n;
}

static size_t skip(const char *p, size_t at, size_t n)
{
    while (at < n && memchr(" \t\r\n", p[at], 4)) at++;
    return at;
}

bool rewrite_record(struct str *out, const char *record, size_t record_n, const char *column, const char *text,
                    size_t n)
{
    size_t from = 0, to = 0, key_n = strlen(column), at = 0;
    const char *p = record;
    if (record_n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3)) at = 3;
    at = skip(p, at, record_n);
    if (at == record_n || p[at] != '{') return false;
    /* Of equal members the last one counts, as source/source.h reads them. */
    for (at = skip(p, at + 1, record_n); at < record_n && p[at] == '"';) {
        size_t key = at + 1, end = string_end(p, at, record_n);
        at = skip(p, end, record_n);
        if (at == record_n || p[at] != ':') return false;
        at = skip(p, at + 1, record_n);
        size_t value = at;
        at = value_end(p, at, record_n);
        if (end - 1 - key == key_n && !memcmp(p + key, column, key_n)) {
            from = value;
            to = at;
        }
        at = skip(p, at, record_n);
        if (at < record_n && p[at] == ',') at = skip(p, at + 1, record_n);
    }
    if (from == to) return false;
    str_add(out, p, from);
    rewrite_string(out, text, n);
    str_add(out, p + to, record_n - to);
    return true;
}
