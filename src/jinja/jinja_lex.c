/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_lex.c: one walk over the template. Outside of marks everything up to the next "{{", "{%" or "{#" is text;
 * inside, names, numbers, strings and operators, and what ends a mark does so only where no bracket is open.
 *
 * White space: "-" on a mark takes all of it on that side. Else a newline right behind "%}" and "#}" goes
 * (trim_blocks), and what stands before "{%" and "{#" on their line, if it is nothing but white space
 * (lstrip_blocks); "+" on a mark keeps it.
 */
#include "jinja/jinja_lex.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "jinja/jinja_value.h"

enum { DEPTH_MAX = 200 };

struct lex {
    struct arena *a;
    const char *name;
    char *p; /* the text, newlines made one byte */
    size_t at, n;
    int line;
    size_t line_at;     /* where it begins */
    bool line_starting; /* what was read last ended with a newline, or nothing was read */
    struct jtoken *token;
    int64_t n_tokens, room;
    char open[DEPTH_MAX]; /* brackets */
    int n_open;
    struct err *e;
};

static int complain(const struct lex *l, size_t at, const char *what)
{
    int line = 1;
    size_t begin = 0;
    for (size_t i = 0; i < at && i < l->n; i++)
        if (l->p[i] == '\n') {
            line++;
            begin = i + 1;
        }
    return err_set(l->e, ERR_CORRUPT, "%s:%d:%zu: %s", l->name, line, at - begin + 1, what);
}

static void forward(struct lex *l, size_t to)
{
    for (; l->at < to; l->at++)
        if (l->p[l->at] == '\n') {
            l->line++;
            l->line_at = l->at + 1;
        }
}

static void put(struct lex *l, enum jtoken_kind kind, size_t at, const char *p, size_t n)
{
    GROW(l->token, l->n_tokens, l->room, 1);
    char *own = arena_alloc(l->a, n + 1);
    if (n) memcpy(own, p, n);
    l->token[l->n_tokens++] =
        (struct jtoken){.kind = kind, .line = l->line, .column = (int)(at - l->line_at) + 1, .p = own, .n = n};
}

static struct jtext rest_text(const struct lex *l) { return (struct jtext){.p = l->p, .n = l->n}; }

static size_t skip_space(const struct lex *l, size_t at)
{
    for (size_t len; (len = jtext_space(rest_text(l), at)); at += len) {}
    return at;
}

/* The end of the text p[from..to) that stands before a mark with this sign; variable: it is "{{". */
static size_t text_end(const struct lex *l, size_t from, size_t to, char sign, bool variable)
{
    size_t end = to, line = to, len;
    if (sign == '-') {
        while (end > from && (len = jtext_space_before(rest_text(l), end)) && end - len >= from) end -= len;
        return end;
    }
    if (sign == '+' || variable) return to;
    while (line > from && l->p[line - 1] != '\n') line--;
    if (line == from && !l->line_starting) return to;
    return skip_space(l, line) >= to ? line : to;
}

/* The first of the three marks from `at` on, or n. */
static size_t next_mark(const struct lex *l, size_t at)
{
    for (; at + 1 < l->n; at++) {
        const char *hit = memchr(l->p + at, '{', l->n - 1 - at);
        if (!hit) break;
        at = (size_t)(hit - l->p);
        if (strchr("{%#", l->p[at + 1]) && l->p[at + 1]) return at;
    }
    return l->n;
}

/* Behind a mark's end at p[at]: its sign ("-" or "+" or 0) stood before it. trims: it is no "}}". */
static size_t after_mark(const struct lex *l, size_t at, char sign, bool trims)
{
    if (sign == '-') return skip_space(l, at);
    return trims && sign != '+' && at < l->n && l->p[at] == '\n' ? at + 1 : at;
}

/* What ends a comment; the sign belongs to the end where there is room for one. */
static int skip_comment(struct lex *l, size_t from)
{
    for (size_t at = from; at + 1 < l->n; at++) {
        char sign = l->p[at] == '-' || l->p[at] == '+' ? l->p[at] : 0;
        size_t end = at + (sign != 0);
        if (end + 1 >= l->n || l->p[end] != '#' || l->p[end + 1] != '}') continue;
        size_t to = after_mark(l, end + 2, sign, true);
        l->line_starting = l->p[to - 1] == '\n';
        forward(l, to);
        return OK;
    }
    return complain(l, l->at, "a comment that does not end");
}

/* -- inside of a mark --------------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static void add_code(struct str *s, uint32_t c)
{
    if (c < 0x80) {
        str_putc(s, (char)c);
        return;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    str_putc(s, (char)(first[more] | c >> (6 * more)));
    while (more--) str_putc(s, (char)(0x80 | (c >> (6 * more) & 0x3F)));
}

static int hex(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: `digits` of them at p[*at]. */
static int add_hex(struct lex *l, struct str *s, size_t *at, size_t end, int digits)
{
    uint32_t c = 0;
    for (int i = 0; i < digits; i++, (*at)++) {
        int d = *at < end ? hex(l->p[*at]) : -1;
        if (d < 0) return complain(l, *at, "an escape of too few hexadecimal digits");
        c = c << 4 | (uint32_t)d;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return complain(l, *at, "an escape that is no character");
    add_code(s, c);
    return OK;
}

/* The escape behind a backslash at p[*at], as Python reads it in a string. */
static int add_escape(struct lex *l, struct str *s, size_t *at, size_t end)
{
    static const char letters[] = "ntr\\'\"abfv", values[] = "\n\t\r\\'\"\a\b\f\v";
    char c = l->p[(*at)++];
    const char *known = c ? strchr(letters, c) : NULL;
    if (known) str_putc(s, values[known - letters]);
    else if (c == '\n') return OK;
    else if (c == 'x' || c == 'u' || c == 'U') return add_hex(l, s, at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    else if (c == 'N') return complain(l, *at - 2, "\\N{...} in a string is not known here; write the character");
    else if (c >= '0' && c <= '7') {
        uint32_t code = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *at < end && l->p[*at] >= '0' && l->p[*at] <= '7'; i++)
            code = code * 8 + (uint32_t)(l->p[(*at)++] - '0');
        add_code(s, code);
    } else {
        str_putc(s, '\\');
        str_putc(s, c);
    }
    return OK;
}

static int lex_string(struct lex *l)
{
    size_t begin = l->at, end = begin + 1;
    char quote = l->p[begin];
    while (end < l->n && l->p[end] != quote) end += l->p[end] == '\\' ? 2 : 1;
    if (end >= l->n) return complain(l, begin, "a string that does not end");
    struct str s = {0};
    int code = OK;
    for (size_t at = begin + 1; !code && at < end;) {
        if (l->p[at] == '\\') {
            at++;
            code = add_escape(l, &s, &at, end);
        } else {
            str_putc(&s, l->p[at++]);
        }
    }
    if (!code) put(l, JT_STRING, begin, str_text(&s), s.n);
    str_free(&s);
    forward(l, end + 1);
    return code;
}

static size_t digits(const struct lex *l, size_t at)
{
    while (at < l->n && (is_digit(l->p[at]) || (l->p[at] == '_' && at + 1 < l->n && is_digit(l->p[at + 1])))) at++;
    return at;
}

static int lex_number(struct lex *l)
{
    size_t begin = l->at, end = digits(l, begin), more = end;
    bool real = false;
    struct str s = {0};
    if (l->p[begin] == '0' && begin + 1 < l->n && strchr("xXoObB", l->p[begin + 1]) && l->p[begin + 1])
        return complain(l, begin, "a number that is not written in decimal");
    if (end + 1 < l->n && l->p[end] == '.' && is_digit(l->p[end + 1])) {
        end = more = digits(l, end + 1);
        real = true;
    }
    if (more < l->n && (l->p[more] | 32) == 'e') {
        more++;
        if (more < l->n && strchr("+-", l->p[more]) && l->p[more]) more++;
        if (more < l->n && is_digit(l->p[more])) {
            end = digits(l, more);
            real = true;
        }
    }
    for (size_t i = begin; i < end; i++)
        if (l->p[i] != '_') str_putc(&s, l->p[i]);
    put(l, real ? JT_REAL : JT_INT, begin, str_text(&s), s.n);
    str_free(&s);
    forward(l, end);
    return OK;
}

static int lex_operator(struct lex *l)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = l->p[l->at], message[80];
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (l->at + 1 < l->n && !memcmp(l->p + l->at, two[i], 2)) n = 2;
    if (n == 1 && (!c || !strchr("+-/*%~[](){}><=.:|,;", c))) {
        snprintf(message, sizeof message, c > ' ' && c < 127 ? "the sign %c is not known" : "a byte of value %d",
                 c > ' ' && c < 127 ? c : (unsigned char)c);
        return complain(l, l->at, message);
    }
    if (strchr("([{", c)) {
        if (l->n_open == DEPTH_MAX) return complain(l, l->at, "more than 200 brackets in each other");
        l->open[l->n_open++] = c;
    }
    if (strchr(")]}", c)) {
        char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
        if (!l->n_open || l->open[l->n_open - 1] != wanted) return complain(l, l->at, "a bracket that was not opened");
        l->n_open--;
    }
    put(l, JT_OP, l->at, l->p + l->at, n);
    forward(l, l->at + n);
    return OK;
}

/* Whether the mark's end ("%}" or "}}", with or without a sign) stands at l->at. */
static bool ends_here(const struct lex *l, bool block, char *sign)
{
    const char *end = block ? "%}" : "}}";
    size_t at = l->at;
    *sign = at < l->n && (l->p[at] == '-' || (block && l->p[at] == '+')) ? l->p[at] : 0;
    at += *sign != 0;
    return at + 1 < l->n && l->p[at] == end[0] && l->p[at + 1] == '}';
}

/* From behind "{{" or "{%" to behind what ends it. */
static int lex_inside(struct lex *l, bool block)
{
    size_t begin = l->at;
    int code = OK;
    l->n_open = 0;
    while (!code && l->at < l->n) {
        char c = l->p[l->at], sign;
        if (!l->n_open && ends_here(l, block, &sign)) {
            put(l, block ? JT_BLOCK_END : JT_OUT_END, l->at, "", 0);
            size_t to = after_mark(l, l->at + 2 + (sign != 0), sign, block);
            l->line_starting = l->p[to - 1] == '\n';
            forward(l, to);
            return OK;
        }
        size_t space = skip_space(l, l->at);
        if (space > l->at) {
            forward(l, space);
        } else if (is_name(c)) {
            size_t end = l->at;
            while (end < l->n && (is_name(l->p[end]) || is_digit(l->p[end]))) end++;
            put(l, JT_NAME, l->at, l->p + l->at, end - l->at);
            forward(l, end);
        } else if (is_digit(c)) {
            code = lex_number(l);
        } else if (c == '"' || c == '\'') {
            code = lex_string(l);
        } else {
            code = lex_operator(l);
        }
    }
    return code ? code : complain(l, begin, block ? "a {% that does not end" : "a {{ that does not end");
}

/* -- raw ---------------------------------------------------------------------------------------------------- */

/* "{% WORD %}" at p[at] (behind its "{%" and sign): where it ends and with which sign; 0: it is something else. */
static size_t word_mark(const struct lex *l, size_t at, const char *word, char *sign)
{
    at = skip_space(l, at);
    size_t n = strlen(word);
    if (l->n - at < n || memcmp(l->p + at, word, n)) return 0;
    at = skip_space(l, at + n);
    *sign = at < l->n && (l->p[at] == '-' || l->p[at] == '+') ? l->p[at] : 0;
    at += *sign != 0;
    return at + 1 < l->n && l->p[at] == '%' && l->p[at + 1] == '}' ? at + 2 : 0;
}

/* What stands between {% raw %}, whose end is at `from`, and {% endraw %}. */
static int lex_raw(struct lex *l, size_t from)
{
    for (size_t at = from; at + 1 < l->n; at++) {
        if (l->p[at] != '{' || l->p[at + 1] != '%') continue;
        char before = at + 2 < l->n && strchr("-+", l->p[at + 2]) ? l->p[at + 2] : 0, sign;
        size_t end = word_mark(l, at + 2 + (before != 0), "endraw", &sign);
        if (!end) continue;
        size_t stop = text_end(l, from, at, before, false);
        forward(l, from);
        if (stop > from) put(l, JT_TEXT, from, l->p + from, stop - from);
        size_t to = after_mark(l, end, sign, true);
        l->line_starting = l->p[to - 1] == '\n';
        forward(l, to);
        return OK;
    }
    return complain(l, l->at, "a {% raw %} without {% endraw %}");
}

/* -- the whole ---------------------------------------------------------------------------------------------- */

static int lex_mark(struct lex *l, size_t mark)
{
    char kind = l->p[mark + 1], sign = mark + 2 < l->n ? l->p[mark + 2] : 0, raw_sign;
    if (sign != '-' && sign != '+') sign = 0;
    size_t end = text_end(l, l->at, mark, sign, kind == '{'), inside = mark + 2 + (sign != 0);
    if (end > l->at) put(l, JT_TEXT, l->at, l->p + l->at, end - l->at);
    forward(l, mark);
    if (kind == '#') return skip_comment(l, inside);
    size_t raw = kind == '%' ? word_mark(l, inside, "raw", &raw_sign) : 0;
    if (raw && raw_sign != '+') {
        if (raw_sign == '-') raw = skip_space(l, raw);
        l->line_starting = l->p[raw - 1] == '\n';
        return lex_raw(l, raw);
    }
    put(l, kind == '%' ? JT_BLOCK_BEGIN : JT_OUT_BEGIN, mark, "", 0);
    forward(l, inside);
    return lex_inside(l, kind == '%');
}

/* Newlines become one byte each; one at the very end goes. */
static void take_text(struct lex *l, const char *text, size_t n)
{
    l->p = arena_alloc(l->a, n + 1);
    for (size_t i = 0; i < n; i++) {
        bool pair = text[i] == '\r' && i + 1 < n && text[i + 1] == '\n';
        l->p[l->n++] = text[i] == '\r' ? '\n' : text[i];
        i += pair;
    }
    if (l->n && l->p[l->n - 1] == '\n') l->n--;
    l->p[l->n] = 0;
}

int jinja_lex(struct jlexed *out, struct arena *a, const char *text, size_t n, const char *name, struct err *e)
{
    struct lex l = {.a = a, .name = name, .line = 1, .line_starting = true, .e = e};
    int code = OK;
    take_text(&l, text, n);
    while (!code && l.at < l.n) {
        size_t mark = next_mark(&l, l.at);
        if (mark < l.n) {
            code = lex_mark(&l, mark);
        } else {
            put(&l, JT_TEXT, l.at, l.p + l.at, l.n - l.at);
            forward(&l, l.n);
        }
    }
    put(&l, JT_END, l.at, "", 0);
    out->n = l.n_tokens;
    out->token = arena_alloc(a, to_size(l.n_tokens) * sizeof *l.token);
    memcpy(out->token, l.token, to_size(l.n_tokens) * sizeof *l.token);
    xfree(l.token);
    return code;
}
