/* SPDX-License-Identifier: Apache-2.0 */
/* json_line.c: most of a line is inside of strings, so strings are passed eight bytes at a time up to what ends or
 * escapes them. Depth is a bit per level: an object or an array. */
#include "source/json_line.h"

#include <string.h>

#include "text/utf8.h"

enum { DEPTH = 64 };

struct scan {
    const char *p, *end;
};

/* Bytes that are below 0x20, a quote or a backslash have their top bit set; bytes above such a one may have it too, so
 * that only the first is sure, which is the one that counts. */
static uint64_t stops(uint64_t v)
{
    const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
    uint64_t quote = v ^ (ones * '"'), slash = v ^ (ones * '\\');
    return (((v - ones * 0x20) & ~v) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & tops;
}

/* Up to the first byte inside of a string that is not itself. */
static void pass_plain(struct scan *s)
{
    uint64_t v;
    for (; s->end - s->p >= 8; s->p += 8) {
        memcpy(&v, s->p, 8);
        if (stops(v)) break;
    }
    while (s->p < s->end && (unsigned char)*s->p >= 0x20 && *s->p != '"' && *s->p != '\\') s->p++;
}

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* \uXXXX, of which s->p is at the u; two of them for a character beyond 0xFFFF. */
static bool read_unicode(struct scan *s, struct str *out)
{
    if (s->end - s->p < 5) return false;
    int c = hex4(s->p + 1);
    s->p += 5;
    if (c <= 0 || (c >= 0xDC00 && c <= 0xDFFF)) return false;
    uint32_t whole = (uint32_t)c;
    if (c >= 0xD800 && c <= 0xDBFF) {
        if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u') return false;
        int low = hex4(s->p + 2);
        s->p += 6;
        if (low < 0xDC00 || low > 0xDFFF) return false;
        whole = 0x10000 + ((uint32_t)(c - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
    }
    unsigned char utf8[4];
    if (out) str_add(out, utf8, (size_t)utf8_put(utf8, whole));
    return true;
}

static bool read_escape(struct scan *s, struct str *out)
{
    static const char names[] = "\"\\/bfnrt", chars[] = "\"\\/\b\f\n\r\t";
    if (++s->p >= s->end) return false;
    if (*s->p == 'u') return read_unicode(s, out);
    const char *at = *s->p ? strchr(names, *s->p) : NULL;
    if (!at) return false;
    if (out) str_putc(out, chars[at - names]);
    s->p++;
    return true;
}

/* A string, whose quote s->p is at. */
static bool read_string(struct scan *s, struct str *out)
{
    s->p++;
    for (;;) {
        const char *from = s->p;
        pass_plain(s);
        if (out) str_add(out, from, (size_t)(s->p - from));
        if (s->p >= s->end) return false;
        if (*s->p == '"') return s->p++, true;
        if (*s->p != '\\' || !read_escape(s, out)) return false;
    }
}

static size_t pass_digits(struct scan *s)
{
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') s->p++;
    return (size_t)(s->p - from);
}

static bool at(const struct scan *s, char c) { return s->p < s->end && *s->p == c; }

static bool read_number(struct scan *s)
{
    if (at(s, '-')) s->p++;
    bool zero = at(s, '0');
    size_t n = pass_digits(s);
    if (!n || (zero && n > 1)) return false;
    if (at(s, '.')) {
        s->p++;
        if (!pass_digits(s)) return false;
    }
    if (!at(s, 'e') && !at(s, 'E')) return true;
    s->p++;
    if (at(s, '+') || at(s, '-')) s->p++;
    return pass_digits(s) > 0;
}

static bool read_word(struct scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) < n || memcmp(s->p, words[i], n) != 0) continue;
        s->p += n;
        return true;
    }
    return false;
}

static void pass_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n')) s->p++;
}

/* A key and its colon; *found: it is the name. */
static bool read_key(struct scan *s, const char *name, bool *found)
{
    if (!at(s, '"')) return false;
    const char *from = ++s->p;
    pass_plain(s);
    if (!at(s, '"')) return false;
    size_t n = (size_t)(s->p - from);
    *found = name && strlen(name) == n && memcmp(from, name, n) == 0;
    s->p++;
    pass_space(s);
    if (!at(s, ':')) return false;
    s->p++;
    pass_space(s);
    return true;
}

/* A value that is neither an array nor an object. */
static bool read_plain(struct scan *s, struct str *out)
{
    if (at(s, '"')) return read_string(s, out);
    if (s->p < s->end && (*s->p == '-' || (*s->p >= '0' && *s->p <= '9'))) return read_number(s);
    return read_word(s);
}

/* Everything from the first brace to the last. */
static bool read_object(struct json_line *l, struct scan *s, const char *name)
{
    uint64_t objects = 1; /* bit 0: the innermost level is an object */
    int depth = 1;
    bool begins = true; /* of the level: nothing was read in it */
    bool seen = false;  /* the member */
    s->p++;
    while (depth) {
        pass_space(s);
        char close = objects & 1 ? '}' : ']';
        if (at(s, close)) {
            s->p++;
            objects >>= 1;
            depth--;
            begins = false;
            continue;
        }
        if (!begins) {
            if (!at(s, ',')) return false;
            s->p++;
            pass_space(s);
        }
        bool found = false;
        if ((objects & 1) && !read_key(s, depth == 1 ? name : NULL, &found)) return false;
        l->n_members += depth == 1;
        if (found) str_clear(&l->text);
        if (found) l->has_text = at(s, '"');
        l->twice |= found && seen;
        seen |= found;
        begins = at(s, '{') || at(s, '[');
        if (begins) {
            if (depth == DEPTH) return false;
            objects = objects << 1 | (*s->p == '{');
            depth++;
            s->p++;
        } else if (!read_plain(s, found ? &l->text : NULL)) {
            return false;
        }
    }
    return true;
}

bool json_line_read(struct json_line *l, const char *p, size_t n, const char *name)
{
    struct scan s = {p, p + n};
    str_clear(&l->text);
    l->has_text = l->twice = false;
    l->n_members = 0;
    pass_space(&s);
    if (!at(&s, '{') || !read_object(l, &s, name)) return false;
    pass_space(&s);
    return s.p == s.end && utf8_run((const unsigned char *)p, n) == n;
}
