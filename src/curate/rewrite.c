/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite.c: only the value that changed is written anew, so numbers keep their digits and members their order. */
#include "curate/rewrite.h"

#include <string.h>

#include "base/json.h"
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

/* The members of a record, one after the other, as places in it. */
struct member {
    size_t key, key_end, value, end; /* of the key, without its quotes; of the value */
};
struct members {
    const char *p;
    size_t n, at;
};

static bool members_begin(struct members *m, const char *p, size_t n)
{
    *m = (struct members){p, n, n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3) ? 3 : 0};
    m->at = skip(p, m->at, n);
    if (m->at == n || p[m->at] != '{') return false;
    m->at = skip(p, m->at + 1, n);
    return true;
}

static bool members_next(struct members *m, struct member *x)
{
    if (m->at >= m->n || m->p[m->at] != '"') return false;
    size_t end = string_end(m->p, m->at, m->n);
    x->key = m->at + 1;
    x->key_end = end - 1;
    m->at = skip(m->p, end, m->n);
    if (m->at == m->n || m->p[m->at] != ':') return false;
    x->value = m->at = skip(m->p, m->at + 1, m->n);
    x->end = m->at = value_end(m->p, m->at, m->n);
    m->at = skip(m->p, m->at, m->n);
    if (m->at < m->n && m->p[m->at] == ',') m->at = skip(m->p, m->at + 1, m->n);
    return true;
}

/* The member's name: as it stands, or where it is spelt with escapes as these read. */
static void name_of(const struct members *m, const struct member *x, struct str *out)
{
    struct str list = {0};
    struct json *root = NULL;
    const char *key = m->p + x->key, *text;
    size_t n = x->key_end - x->key;
    str_clear(out);
    if (memchr(key, '\\', n)) {
        str_printf(&list, "[\"%.*s\"]", (int)n, key);
        if (!json_parse_published(&root, list.p, list.n, "", NULL) && (text = json_string(json_at(root, 0), &n, NULL)))
            key = text;
    }
    str_add(out, key, n);
    json_free(root);
    str_free(&list);
}

static bool has_member(const char *p, size_t n, const char *name)
{
    struct members m;
    struct member x;
    struct str key = {0};
    bool found = false;
    if (members_begin(&m, p, n))
        while (!found && members_next(&m, &x)) {
            name_of(&m, &x, &key);
            found = !strcmp(str_text(&key), name);
        }
    str_free(&key);
    return found;
}

void rewrite_others(struct str *out, const char *record, size_t record_n, const char *column, const char *const *ours)
{
    struct members m;
    struct member x;
    struct str key = {0}, original = {0}, text = {0};
    str_puts(&text, column);
    if (strchr(column, '.') && !has_member(record, record_n, column)) text.p[text.n = strcspn(column, ".")] = 0;
    if (members_begin(&m, record, record_n))
        while (members_next(&m, &x)) {
            name_of(&m, &x, &key);
            if (!strcmp(str_text(&key), str_text(&text))) continue;
            int i = 0;
            while (ours[i] && strcmp(ours[i], str_text(&key))) i++;
            str_clear(&original);
            str_printf(&original, "%s%s", ours[i] ? "original_" : "", str_text(&key));
            if (ours[i] && has_member(record, record_n, str_text(&original))) continue;
            str_puts(out, ", ");
            rewrite_string(out, str_text(&original), original.n);
            str_puts(out, ": ");
            str_add(out, record + x.value, x.end - x.value);
        }
    str_free(&key);
    str_free(&original);
    str_free(&text);
}

bool rewrite_record(struct str *out, const char *record, size_t record_n, const char *column, const char *text,
                    size_t n)
{
    size_t from = 0, to = 0, key_n = strlen(column);
    struct members m;
    struct member x;
    if (!members_begin(&m, record, record_n)) return false;
    /* Of equal members the last one counts, as source/source.h reads them. */
    while (members_next(&m, &x))
        if (x.key_end - x.key == key_n && !memcmp(record + x.key, column, key_n)) {
            from = x.value;
            to = x.end;
        }
    if (from == to) return false;
    str_add(out, record, from);
    rewrite_string(out, text, n);
    str_add(out, record + to, record_n - to);
    return true;
}
