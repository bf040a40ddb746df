/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_text.c: what Python's str does, on text that knows who wrote it.
 *
 * Letters beyond ASCII change case by the C library's C.UTF-8, one character for one; the few that become several (ß)
 * or depend on what is around them are refused: templates change the case of roles and names, not of prose.
 */
#include <locale.h>
#include <string.h>
#include <wctype.h>

#include "jinja/jinja_run.h"

bool jtext_who(struct jtext t, size_t at) { return t.who ? t.who[at] : t.data; }

/* -- case --------------------------------------------------------------------------------------------------- */

static bool is_upper(uint32_t c) { return c >= 'A' && c <= 'Z'; }
static bool is_lower(uint32_t c) { return c >= 'a' && c <= 'z'; }

/* Letters whose case is no matter of one character for one, or that have a third case. */
static bool special_case(uint32_t c)
{
    return c == 0xDF || c == 0x130 || c == 0x149 || (c >= 0x1C4 && c <= 0x1CC) || c == 0x1F0 ||
           (c >= 0x1F1 && c <= 0x1F3) || c == 0x390 || c == 0x3A3 || c == 0x3B0 || c == 0x587 ||
           (c >= 0x10D0 && c <= 0x10FF) || (c >= 0x1C80 && c <= 0x1CBF) || (c >= 0x13A0 && c <= 0x13FF) ||
           (c >= 0x1E96 && c <= 0x1E9E) || (c >= 0x1F50 && c <= 0x1FFF) || (c >= 0xAB70 && c <= 0xABBF) ||
           (c >= 0xFB00 && c <= 0xFB17);
}

struct casing {
    struct jrun *r;
    const struct jnode *at;
    locale_t locale; /* 0: not needed yet */
    bool inside;     /* of a word */
    enum jcase how;
};

static uint32_t change(struct casing *k, uint32_t c, bool up)
{
    if (c < 0x80) return up && is_lower(c) ? c - 32 : !up && is_upper(c) ? c + 32 : c;
    if (special_case(c)) {
        jfail(k->r, k->at, "the case of U+%04X is not changed here: it needs more than one character for one", c);
        return c;
    }
    if (!k->locale && !jspend(k->r, k->at, 64)) return c;
    if (!k->locale) k->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!k->locale) {
        jfail(k->r, k->at, "the case of U+%04X cannot be changed: this system has no locale C.UTF-8", c);
        return c;
    }
    return (uint32_t)(up ? towupper_l((wint_t)c, k->locale) : towlower_l((wint_t)c, k->locale));
}

static bool cased(struct casing *k, uint32_t c)
{
    if (c < 0x80) return is_upper(c) || is_lower(c);
    return change(k, c, true) != c || change(k, c, false) != c;
}

/* Whether this character is to be upper case. */
static bool goes_up(struct casing *k, uint32_t c, bool first)
{
    bool up = k->how == JCASE_UPPER || (k->how == JCASE_CAPITALIZE && first);
    if (k->how == JCASE_TITLE) { /* what follows a letter is lower case */
        up = !k->inside;
        k->inside = cased(k, c);
    }
    if (k->how == JCASE_WORDS) { /* words end at white space, "-", "(", "{", "[", "<" */
        up = !k->inside;
        k->inside = !((c < 0x80 && c && strchr("-({[<", (int)c)) || c == ' ' || (c >= 9 && c <= 13));
    }
    return up;
}

static size_t put_utf8(char out[4], uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(first[more] | c >> (6 * more));
    for (size_t i = 1; i <= more; i++) out[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3F));
    return more + 1;
}

struct jtext jtext_case(struct jrun *r, const struct jnode *at, struct jtext t, enum jcase how)
{
    struct casing k = {.r = r, .at = at, .how = how};
    struct jbuild b = {0};
    if (!jspend(r, at, (int64_t)(t.n / 2))) return (struct jtext){.p = ""};
    for (size_t i = 0; i < t.n && !r->code;) {
        uint32_t c = (unsigned char)t.p[i];
        int len = c < 0x80 ? 1 : str_utf8(t.p + i, &c);
        if (len < 1) len = 1;
        char changed[4];
        size_t n = put_utf8(changed, change(&k, c, goes_up(&k, c, i == 0)));
        jbuild_bytes(&b, changed, n, jtext_who(t, i));
        i += (size_t)len;
    }
    if (k.locale) freelocale(k.locale);
    struct jv done = jdone(r, at, &b);
    return done.kind == JV_TEXT ? done.text : (struct jtext){.p = ""};
}

int jtext_kind(struct jwork *w, struct jtext t, const char *what)
{
    if (!jwork_add(w, (int64_t)t.n)) return 0;
    bool any_cased = false, good = t.n > 0;
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.p[i];
        if (c >= 0x80) return -1;
        bool letter = is_upper(c) || is_lower(c), digit = c >= '0' && c <= '9';
        if (!strcmp(what, "isdigit") || !strcmp(what, "isnumeric") || !strcmp(what, "isdecimal")) good = good && digit;
        if (!strcmp(what, "isalpha")) good = good && letter;
        if (!strcmp(what, "isalnum")) good = good && (letter || digit);
        if (!strcmp(what, "isspace")) good = good && jtext_space(t, i);
        if (!strcmp(what, "isupper")) good = good && !is_lower(c);
        if (!strcmp(what, "islower")) good = good && !is_upper(c);
        any_cased = any_cased || letter;
    }
    return good && (any_cased || (strcmp(what, "isupper") && strcmp(what, "islower")));
}

/* -- ends and parts ------------------------------------------------------------------------------------------ */

/* Bytes of the character at p[at] (last: that ends there) if it is one of chars, else 0. */
static size_t one_of(struct jwork *w, struct jtext t, size_t at, const struct jtext *chars, bool last)
{
    if (!jwork_add(w, 1)) return 0;
    if (!chars) return last ? jtext_space_before(t, at) : jtext_space(t, at);
    size_t from = at, to = at;
    if (last) {
        if (!at) return 0;
        do from--;
        while (from > 0 && ((unsigned char)t.p[from] & 0xC0) == 0x80);
    } else {
        if (at >= t.n) return 0;
        do to++;
        while (to < t.n && ((unsigned char)t.p[to] & 0xC0) == 0x80);
    }
    return jtext_find(w, *chars, 0, jtext_part(t, from, to)) <= chars->n ? to - from : 0;
}

struct jtext jtext_strip(struct jwork *w, struct jtext t, const struct jtext *chars, bool left, bool right)
{
    size_t from = 0, to = t.n, len;
    while (left && (len = one_of(w, t, from, chars, false))) from += len;
    while (right && to > from && (len = one_of(w, t, to, chars, true))) to -= len;
    return jtext_part(t, from, to);
}

size_t jtext_find(struct jwork *w, struct jtext t, size_t from, struct jtext what)
{
    if (from > t.n || what.n > t.n - from) return t.n + 1;
    if (!what.n) return from;
    const char *hit = memmem(t.p + from, t.n - from, what.p, what.n);
    size_t at = hit ? (size_t)(hit - t.p) : t.n + 1;
    return jwork_add(w, 1 + (int64_t)((hit ? at - from : t.n - from) / 64 + what.n / 64)) ? at : t.n + 1;
}

/* "" stands before each character and at the end. */
static void replace_nothing(struct jwork *w, struct jbuild *b, struct jtext t, struct jtext with, int64_t most)
{
    size_t at = 0;
    for (; most != 0 && b->text.n <= JINJA_BYTES && jwork_add(w, 1); most--) {
        jbuild_add(b, with);
        if (at >= t.n) return;
        size_t end = at + 1;
        while (end < t.n && ((unsigned char)t.p[end] & 0xC0) == 0x80) end++;
        jbuild_add(b, jtext_part(t, at, end));
        at = end;
    }
    jbuild_add(b, jtext_part(t, at, t.n));
}

struct jtext jtext_replace(struct jrun *r, const struct jnode *at, struct jtext t, struct jtext old, struct jtext with,
                           int64_t most)
{
    struct jbuild b = {0};
    size_t done = 0, hit;
    if (!old.n) replace_nothing(&r->work, &b, t, with, most);
    while (old.n && most != 0 && b.text.n <= JINJA_BYTES && (hit = jtext_find(&r->work, t, done, old)) <= t.n) {
        jbuild_add(&b, jtext_part(t, done, hit));
        jbuild_add(&b, with);
        done = hit + old.n;
        most--;
    }
    if (old.n) jbuild_add(&b, jtext_part(t, done, t.n));
    struct jv v = jdone(r, at, &b);
    return v.kind == JV_TEXT ? v.text : (struct jtext){.p = ""};
}

/* Bytes of what ends a line at t.p[at], 0: nothing does. */
static size_t line_break(struct jtext t, size_t at)
{
    unsigned char c = (unsigned char)t.p[at];
    if (c == '\r') return at + 1 < t.n && t.p[at + 1] == '\n' ? 2 : 1;
    if ((c >= 0x0A && c <= 0x0C) || (c >= 0x1C && c <= 0x1E)) return 1;
    if (c == 0xC2 && at + 1 < t.n && (unsigned char)t.p[at + 1] == 0x85) return 2;
    bool separator = c == 0xE2 && at + 2 < t.n && (unsigned char)t.p[at + 1] == 0x80 &&
                     ((unsigned char)t.p[at + 2] == 0xA8 || (unsigned char)t.p[at + 2] == 0xA9);
    return separator ? 3 : 0;
}

size_t jtext_line(struct jwork *w, struct jtext t, size_t from, size_t *next)
{
    size_t end = from, n = 0;
    while (end < t.n && !(n = line_break(t, end))) end++;
    *next = end + n;
    (void)jwork_add(w, 1 + (int64_t)((end - from) / 16));
    return end;
}

bool jtext_ends_line(struct jtext t)
{
    for (size_t back = 1; back <= 3 && back <= t.n; back++)
        if (line_break(t, t.n - back) == back) return true;
    return false;
}

struct jv jtext_chars(struct jrun *r, const struct jnode *at, struct jtext t)
{
    int64_t n = jtext_length(&r->work, t), k = 0;
    if (!jspend(r, at, n) || !jtake(r, at, to_size(n) * sizeof(struct jv))) return jv_undefined("");
    struct jv *item = jalloc(r, to_size(n) * sizeof *item);
    for (size_t from = 0; from < t.n;) {
        size_t to = from + 1;
        while (to < t.n && ((unsigned char)t.p[to] & 0xC0) == 0x80) to++;
        item[k++] = jv_text(jtext_part(t, from, to));
        from = to;
    }
    return jv_list_of(item, k);
}
