/* SPDX-License-Identifier: Apache-2.0 */
/* charset.c: a reader of classes by descent. What has no meaning that we are sure of is refused, since a class that is
 * read otherwise than the reference reads it gives other ids and no error.
 */
#include "token/charset.h"

#include <string.h>
#include <strings.h>

#include "text/unicode_table.h"
#include "text/utf8.h"

enum { NOT_THIS = 1, DEPTH_MAX = 16 };

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Digits of a hexadecimal number at p[*at..n), at least 1, at most `most`; -1 when there are none or it is no
 * character. */
static int64_t number(const char *p, size_t n, size_t *at, int most)
{
    int64_t v = -1;
    for (int i = 0; i < most && *at < n && hex(p[*at]) >= 0; i++, ++*at) v = (v < 0 ? 0 : v) * 16 + hex(p[*at]);
    return v > UNICODE_MAX || (v >= 0xD800 && v < 0xE000) ? -1 : v;
}

static int escaped_char(uint32_t *code, const char *p, size_t n, size_t *at, bool in_class)
{
    static const char letters[] = "tnrfvae", means[] = "\t\n\r\f\v\a\033";
    size_t i = *at + 1;
    if (i >= n) return NOT_THIS;
    char c = p[i++];
    const char *letter = c ? strchr(letters, c) : NULL;
    int64_t v = -1;
    if (letter) {
        v = means[letter - letters];
    } else if (c == 'b' && in_class) {
        v = '\b';
    } else if (c == 'x' && i < n && p[i] == '{') {
        i++;
        v = number(p, n, &i, 8);
        if (i >= n || p[i++] != '}') return NOT_THIS;
    } else if (c == 'x') {
        v = number(p, n, &i, 2);
        if (v > 0x7F) return NOT_THIS; /* a byte, not a character */
    } else if (c == 'u') {
        size_t from = i;
        v = number(p, n, &i, 4);
        if (i - from != 4) return NOT_THIS;
    } else if (c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')) {
        v = c;
    }
    if (v < 0) return NOT_THIS;
    *code = (uint32_t)v;
    *at = i;
    return OK;
}

int charset_char(uint32_t *code, const char *p, size_t n, size_t *at, bool in_class)
{
    if (*at >= n) return NOT_THIS;
    if (p[*at] == '\\') return escaped_char(code, p, n, at, in_class);
    if (p[*at] && strchr(in_class ? "[]" : ".^$|()[*+?{", p[*at])) return NOT_THIS;
    int len = utf8_char((const unsigned char *)p + *at, n - *at);
    if (len <= 0) return NOT_THIS;
    *code = utf8_code((const unsigned char *)p + *at, &len);
    *at += (size_t)len;
    return OK;
}

/* Oniguruma's word characters, outside of a class, have six numbers more than inside: superscripts and fractions of
 * Latin-1, which it looks up in another table. */
static void less_numbers(struct ranges *word)
{
    static const struct range six[] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}};
    struct ranges others = {0};
    for (size_t i = 0; i < sizeof six / sizeof *six; i++) ranges_add(&others, six[i].lo, six[i].hi);
    ranges_settle(&others);
    ranges_invert(&others);
    ranges_intersect(word, &others);
    ranges_free(&others);
}

static bool names_word(const char *name, size_t n) { return n == 4 && !strncasecmp(name, "word", 4); }

/* \p{Name}, \P{Name}, \p{^Name}: adds its code points. */
static int property(struct ranges *s, const char *p, size_t n, size_t *at, bool in_class, struct err *e)
{
    bool negated = p[*at + 1] == 'P';
    size_t from = *at + 3;
    const char *close = from <= n ? memchr(p + from, '}', n - from) : NULL;
    if (!close) return err_set(e, ERR_REQUEST, "a property without its }");
    if (p[from] == '^') {
        negated = !negated;
        from++;
    }
    size_t length = (size_t)(close - (p + from));
    struct ranges set = {0};
    if (!unicode_property(&set, p + from, length)) {
        ranges_free(&set);
        return err_set(e, ERR_REQUEST, "the property {%.*s} is not known here", (int)(length < 40 ? length : 40),
                       p + from);
    }
    if (in_class && names_word(p + from, length)) less_numbers(&set);
    if (negated) ranges_invert(&set);
    ranges_union(s, &set);
    ranges_free(&set);
    *at = (size_t)(close + 1 - p);
    return OK;
}

static void hex_digits(struct ranges *s)
{
    ranges_add(s, '0', '9');
    ranges_add(s, 'A', 'F');
    ranges_add(s, 'a', 'f');
}

/* An escape that stands for a set: adds it. */
static int escaped_set(struct ranges *s, const char *p, size_t n, size_t *at, bool in_class, struct err *e)
{
    if (*at + 1 >= n || p[*at] != '\\') return NOT_THIS;
    char c = p[*at + 1];
    if ((c == 'p' || c == 'P') && *at + 2 < n && p[*at + 2] == '{') return property(s, p, n, at, in_class, e);
    struct ranges set = {0};
    switch (c) {
    case 's':
    case 'S': unicode_white_space(&set); break;
    case 'w':
    case 'W': unicode_with(&set, UNI_WORD); break;
    case 'd':
    case 'D': (void)unicode_property(&set, "Nd", 2); break;
    case 'h':
    case 'H': hex_digits(&set); break;
    default: return NOT_THIS;
    }
    if (in_class && (c | 32) == 'w') less_numbers(&set);
    if (c < 'a') ranges_invert(&set);
    ranges_union(s, &set);
    ranges_free(&set);
    *at += 2;
    return OK;
}

/* [:name:] or [:^name:] inside a class. */
static int posix(struct ranges *s, const char *p, size_t n, size_t *at, struct err *e)
{
    static const char *const known[] = {"alpha", "digit", "alnum", "space", "upper", "lower"};
    size_t i = *at + 2;
    bool negated = i < n && p[i] == '^', found = false;
    i += negated;
    size_t from = i;
    while (i < n && p[i] >= 'a' && p[i] <= 'z') i++;
    if (i + 1 >= n || p[i] != ':' || p[i + 1] != ']') return NOT_THIS;
    struct ranges set = {0};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (strlen(known[k]) == i - from && !memcmp(known[k], p + from, i - from))
            found = unicode_property(&set, known[k], i - from);
    if (names_word(p + from, i - from)) {
        unicode_with(&set, UNI_WORD);
        less_numbers(&set);
        found = true;
    } else if (i - from == 5 && !memcmp("punct", p + from, 5)) {
        unicode_with(&set, UNI_PUNCT); /* symbols too; \p{Punct} has none */
        found = true;
    } else if (i - from == 6 && !memcmp("xdigit", p + from, 6)) {
        hex_digits(&set);
        found = true;
    }
    if (!found)
        return err_set(e, ERR_REQUEST, "the class [:%.*s:] is not known here", (int)(i - from < 20 ? i - from : 20),
                       p + from);
    ranges_settle(&set);
    if (negated) ranges_invert(&set);
    ranges_union(s, &set);
    ranges_free(&set);
    *at = i + 2;
    return OK;
}

static int bracket(struct charset *c, const char *p, size_t n, size_t *at, int depth, struct err *e);

static int nested(struct charset *c, struct ranges *s, const char *p, size_t n, size_t *at, int depth, struct err *e)
{
    struct charset inner = {.negated = false};
    int rc = bracket(&inner, p, n, at, depth + 1, e);
    if (!rc) {
        c->inner_negation = c->inner_negation || inner.negated || inner.inner_negation;
        if (inner.negated) ranges_invert(&inner.set);
        ranges_union(s, &inner.set);
    }
    charset_free(&inner);
    return rc;
}

/* A character or a range of them. */
static int characters(struct ranges *s, const char *p, size_t n, size_t *at, struct err *e)
{
    uint32_t lo, hi;
    if (charset_char(&lo, p, n, at, true))
        return err_set(e, ERR_REQUEST, "\"%.6s\" in a class is not understood", p + *at);
    hi = lo;
    if (*at + 1 < n && p[*at] == '-' && p[*at + 1] != ']') {
        ++*at;
        if (charset_char(&hi, p, n, at, true) || hi < lo)
            return err_set(e, ERR_REQUEST, "a range in a class that is not understood");
    }
    ranges_add(s, lo, hi);
    return OK;
}

static int item(struct charset *c, struct ranges *s, const char *p, size_t n, size_t *at, int depth, struct err *e)
{
    int rc = NOT_THIS;
    if (p[*at] == '[' && *at + 1 < n && p[*at + 1] == ':') rc = posix(s, p, n, at, e);
    if (rc == NOT_THIS && p[*at] == '[') return nested(c, s, p, n, at, depth, e);
    bool is_set = rc == OK;
    if (rc == NOT_THIS) {
        rc = escaped_set(s, p, n, at, true, e);
        is_set = rc == OK;
    }
    if (rc == NOT_THIS) rc = characters(s, p, n, at, e);
    if (!rc && is_set && *at + 1 < n && p[*at] == '-' && p[*at + 1] != ']')
        rc = err_set(e, ERR_REQUEST, "a range in a class that begins with a set");
    return rc;
}

/* "[...]" from p[*at], the bracket. */
static int bracket(struct charset *c, const char *p, size_t n, size_t *at, int depth, struct err *e)
{
    if (depth == DEPTH_MAX) return err_set(e, ERR_REQUEST, "classes in classes, more than %d deep", DEPTH_MAX);
    ++*at;
    c->negated = *at < n && p[*at] == '^';
    *at += c->negated;
    struct ranges part = {0};
    bool first = true, any = false; /* first: no && yet; any: something since */
    int rc = OK;
    while (!rc && *at < n && (p[*at] != ']' || !any)) {
        bool both = *at + 1 < n && p[*at] == '&' && p[*at + 1] == '&';
        if (both ? !any : p[*at] == ']') {
            rc = err_set(e, ERR_REQUEST, "an empty class, or a class that begins with ]");
        } else if (both) {
            ranges_settle(&part);
            if (first) ranges_union(&c->set, &part);
            else ranges_intersect(&c->set, &part);
            ranges_free(&part);
            first = any = false;
            c->inner_negation = true;
            *at += 2;
        } else {
            rc = item(c, &part, p, n, at, depth, e);
            any = true;
        }
    }
    ranges_settle(&part);
    if (first) ranges_union(&c->set, &part);
    else ranges_intersect(&c->set, &part);
    ranges_free(&part);
    if (!rc && *at >= n) rc = err_set(e, ERR_REQUEST, "a class without its ]");
    if (!rc) ++*at;
    return rc;
}

int charset_read(struct charset *c, const char *p, size_t n, size_t *at, struct err *e)
{
    *c = (struct charset){.negated = false};
    if (*at >= n) return NOT_THIS;
    int rc = p[*at] == '[' ? bracket(c, p, n, at, 0, e) : escaped_set(&c->set, p, n, at, false, e);
    if (rc) charset_free(c);
    return rc;
}

void charset_free(struct charset *c) { ranges_free(&c->set); }
