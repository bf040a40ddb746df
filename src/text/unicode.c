/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c: the table of runs, asked by binary search for one code point and walked for a set. */
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/unicode_table.h"

uint16_t unicode_kind_of(uint32_t code)
{
    int lo = 0, hi = unicode_n_runs; /* from[lo] <= code < from[hi] */
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (unicode_from[mid] <= code) lo = mid;
        else hi = mid;
    }
    return unicode_kind[lo];
}

/* -- sets --------------------------------------------------------------------------------------------------- */

void ranges_free(struct ranges *s)
{
    xfree(s->r);
    *s = (struct ranges){0};
}

void ranges_add(struct ranges *s, uint32_t lo, uint32_t hi)
{
    GROW(s->r, s->n, s->room, 1);
    s->r[s->n++] = (struct range){lo, hi};
}

static int by_beginning(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->lo != y->lo ? (x->lo < y->lo ? -1 : 1) : 0;
}

void ranges_settle(struct ranges *s)
{
    if (s->n) qsort(s->r, (size_t)s->n, sizeof *s->r, by_beginning);
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (n && s->r[i].lo <= s->r[n - 1].hi + 1) {
            if (s->r[i].hi > s->r[n - 1].hi) s->r[n - 1].hi = s->r[i].hi;
        } else {
            s->r[n++] = s->r[i];
        }
    }
    s->n = n;
}

void ranges_invert(struct ranges *s)
{
    struct ranges out = {0};
    uint32_t next = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->r[i].lo > next) ranges_add(&out, next, s->r[i].lo - 1);
        next = s->r[i].hi + 1;
    }
    if (next <= UNICODE_MAX) ranges_add(&out, next, UNICODE_MAX);
    ranges_free(s);
    *s = out;
}

void ranges_union(struct ranges *s, const struct ranges *with)
{
    for (int i = 0; i < with->n; i++) ranges_add(s, with->r[i].lo, with->r[i].hi);
    ranges_settle(s);
}

void ranges_intersect(struct ranges *s, const struct ranges *with)
{
    struct ranges out = {0};
    for (int i = 0, k = 0; i < s->n && k < with->n;) {
        uint32_t lo = s->r[i].lo > with->r[k].lo ? s->r[i].lo : with->r[k].lo;
        uint32_t hi = s->r[i].hi < with->r[k].hi ? s->r[i].hi : with->r[k].hi;
        if (lo <= hi) ranges_add(&out, lo, hi);
        if (s->r[i].hi < with->r[k].hi) i++;
        else k++;
    }
    ranges_free(s);
    *s = out;
}

bool ranges_has(const struct ranges *s, uint32_t code)
{
    int lo = 0, hi = s->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (s->r[mid].hi < code) lo = mid + 1;
        else hi = mid;
    }
    return lo < s->n && s->r[lo].lo <= code;
}

/* -- names -------------------------------------------------------------------------------------------------- */

/* Categories as a set of bits, one per enum unicode_category. */
static void with_categories(struct ranges *s, uint32_t categories)
{
    for (int i = 0; i < unicode_n_runs; i++)
        if (categories >> (unicode_kind[i] & 31) & 1)
            ranges_add(s, unicode_from[i], i + 1 < unicode_n_runs ? unicode_from[i + 1] - 1 : UNICODE_MAX);
    ranges_settle(s);
}

void unicode_with(struct ranges *s, uint16_t bits)
{
    for (int i = 0; i < unicode_n_runs; i++)
        if (unicode_kind[i] & bits)
            ranges_add(s, unicode_from[i], i + 1 < unicode_n_runs ? unicode_from[i + 1] - 1 : UNICODE_MAX);
    ranges_settle(s);
}

void unicode_white_space(struct ranges *s)
{
    static const struct range spaces[] = {{'\t', '\r'},     {' ', ' '},       {0x85, 0x85},     {0xA0, 0xA0},
                                          {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                          {0x205F, 0x205F}, {0x3000, 0x3000}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) ranges_add(s, spaces[i].lo, spaces[i].hi);
    ranges_settle(s);
}

static const char *const categories[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                         "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                         "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
enum { N_CATEGORIES = sizeof categories / sizeof *categories };
static const struct {
    const char *name, *of; /* of: letters of the categories whose names begin so */
} groups[] = {{"letter", "L"},           {"mark", "M"},
              {"number", "N"},           {"punctuation", "P"},
              {"symbol", "S"},           {"separator", "Z"},
              {"uppercaseletter", "Lu"}, {"lowercaseletter", "Ll"},
              {"titlecaseletter", "Lt"}, {"modifierletter", "Lm"},
              {"otherletter", "Lo"},     {"punct", "P"},
              {"decimalnumber", "Nd"},   {"digit", "Nd"}};
static const struct {
    const char *name;
    uint16_t bits;
} bits_of[] = {{"word", UNI_WORD},       {"alpha", UNI_ALPHA}, {"alphabetic", UNI_ALPHA}, {"upper", UNI_UPPER},
               {"uppercase", UNI_UPPER}, {"lower", UNI_LOWER}, {"lowercase", UNI_LOWER}};

/* Whether the simplified name is this one. */
static bool same(const char *simple, const char *name)
{
    for (; *name; name++) {
        if (*name == '_') continue;
        char c = *name >= 'A' && *name <= 'Z' ? (char)(*name + 32) : *name;
        if (*simple++ != c) return false;
    }
    return *simple == 0;
}

static bool by_category(struct ranges *s, const char *simple)
{
    uint32_t set = 0;
    const char *of = simple;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (same(simple, groups[i].name)) of = groups[i].of;
    char head = *of >= 'a' ? (char)(*of - 32) : *of;
    if (same(of, "lc")) set = 1u << UNI_LU | 1u << UNI_LL | 1u << UNI_LT;
    for (int i = 0; i < N_CATEGORIES && !set; i++)
        if (of[0] && of[1] && categories[i][0] == head && categories[i][1] == of[1] && !of[2]) set = 1u << i;
    for (int i = 0; i < N_CATEGORIES && of[0] && !of[1] && head != 'C'; i++)
        if (categories[i][0] == head) set |= 1u << i;
    if (!set || same(of, "cn")) return false; /* not assigned: changes with every version of Unicode */
    with_categories(s, set);
    return true;
}

bool unicode_property(struct ranges *s, const char *name, size_t n)
{
    char simple[40];
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (c == ' ' || c == '-' || c == '_') continue;
        if (m + 1 == sizeof simple || (unsigned char)c > 0x7F || c == 0) return false;
        simple[m++] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    simple[m] = 0;
    if (m == 0) return false;
    if (by_category(s, simple)) return true;
    for (size_t i = 0; i < sizeof bits_of / sizeof *bits_of; i++)
        if (same(simple, bits_of[i].name)) {
            unicode_with(s, bits_of[i].bits);
            return true;
        }
    if (same(simple, "any") || same(simple, "space") || same(simple, "whitespace")) {
        if (same(simple, "any")) ranges_add(s, 0, UNICODE_MAX);
        else unicode_white_space(s);
        return true;
    }
    if (same(simple, "alnum")) {
        unicode_with(s, UNI_ALPHA);
        with_categories(s, 1u << UNI_ND);
        return true;
    }
    for (int k = 0; k < unicode_n_scripts; k++) {
        if (!same(simple, unicode_scripts[k])) continue;
        for (int i = 0; i < unicode_n_runs; i++)
            if (unicode_script[i] == k + 1)
                ranges_add(s, unicode_from[i], i + 1 < unicode_n_runs ? unicode_from[i + 1] - 1 : UNICODE_MAX);
        ranges_settle(s);
        return true;
    }
    return false;
}
