/* SPDX-License-Identifier: Apache-2.0 */
/* normal_form.c: text in groups that do not touch each other, each decomposed, ordered and composed by itself.
 *
 * A group begins with a character that nothing before it can change: its full decomposition begins with a code point of
 * combining class 0 that is no mark and no Hangul vowel or final (all that composes with what is before it is one of
 * these). ASCII is copied as it is, all but the last character before something else, which a mark may follow. The
 * library decomposes and composes; marks are ordered here, by counting, since the library's own ordering takes
 * quadratic time on hostile runs.
 */
#include "text/normal_form.h"

#include <string.h>
#include <utf8proc.h>

#include "base/err.h"
#include "base/mem.h"
#include "text/unicode_legacy.h"
#include "text/utf8.h"

enum { DECOMPOSED_MAX = 32, GROUP = NORMAL_MARKS_MAX + DECOMPOSED_MAX };

struct group {
    enum normal_form form;
    struct str *out;
    int32_t *codes; /* [2 * GROUP]: the group, and room to order it in; NULL until it is needed */
    int n;
    int32_t first[DECOMPOSED_MAX]; /* the group while it is short: no memory is asked for ordinary text */
    normal_form_told_fn *told;     /* NULL: nobody asks (any more) */
    void *arg;
    signed char *changes; /* [GROUP], of the group's codes, while somebody asks */
};

static bool composes(enum normal_form f) { return f == NORMAL_NFC || f == NORMAL_NFKC; }

static int class_of(int32_t code) { return utf8proc_get_property(code)->combining_class; }

static void put(struct str *out, int32_t code)
{
    unsigned char utf8[4];
    str_add(out, utf8, (size_t)utf8_put(utf8, (uint32_t)code));
}

/* Orders every run of marks by class, equal ones as they came; `changes`, where they are kept, with them. */
static void order_marks(int32_t *c, int n, int32_t *scratch, signed char *changes)
{
    for (int from = 0; from < n;) {
        int to = from, count[257] = {0};
        bool ordered = true;
        for (int k; to < n && (k = class_of(c[to])) > 0; to++) {
            ordered = ordered && (to == from || class_of(c[to - 1]) <= k);
            count[k + 1]++;
        }
        if (!ordered) {
            for (int k = 1; k < 257; k++) count[k] += count[k - 1];
            signed char moved[GROUP];
            for (int i = from; i < to; i++) {
                int place = count[class_of(c[i])]++;
                scratch[place] = c[i];
                if (changes) moved[place] = changes[i];
            }
            if (changes) memcpy(changes + from, moved, (size_t)(to - from));
            memcpy(c + from, scratch, (size_t)(to - from) * sizeof *c);
        }
        from = to > from ? to : from + 1;
    }
}

static void tell(struct group *g, int change)
{
    if (g->told && !g->told(g->arg, change)) g->told = NULL;
}

/* What two code points become together; -1: nothing. */
static int32_t pair(int32_t a, int32_t b)
{
    int32_t both[2] = {a, b};
    utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return utf8proc_normalize_utf32(both, 2, options) == 1 ? both[0] : -1;
}

/* Composes c[0..n), which is ordered, only to tell of what comes out: a code point that is taken into the starter
 * before it counts with that one. */
static void tell_composed(struct group *g, const int32_t *c)
{
    int starter = -1, last_class = -1, change = 0; /* last_class: of the last mark that stays between; -1: none */
    int32_t code = 0;
    signed char stay[GROUP];
    int n_stay = 0;
    for (int i = 0; i < g->n; i++) {
        int k = class_of(c[i]);
        int32_t both = starter >= 0 && last_class < (last_class < 0 ? 1 : k) ? pair(code, c[i]) : -1;
        if (both >= 0) {
            code = both;
            change += g->changes[i] - 1;
        } else if (k == 0) {
            if (starter >= 0) tell(g, change);
            for (int m = 0; m < n_stay; m++) tell(g, stay[m]);
            n_stay = 0;
            starter = i;
            code = c[i];
            change = g->changes[i];
            last_class = -1;
        } else {
            stay[n_stay++] = g->changes[i];
            last_class = k;
        }
    }
    if (starter >= 0) tell(g, change);
    for (int m = 0; m < n_stay; m++) tell(g, stay[m]);
}

static void flush(struct group *g)
{
    int32_t *c = g->codes ? g->codes : g->first;
    if (g->n > 1) {
        int32_t few[DECOMPOSED_MAX];
        order_marks(c, g->n, g->codes ? g->codes + GROUP : few, g->told ? g->changes : NULL);
    }
    if (g->told && composes(g->form)) tell_composed(g, c);
    for (int i = 0; i < g->n && !composes(g->form); i++) tell(g, g->told ? g->changes[i] : 0);
    if (g->n > 1) {
        utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (composes(g->form)) g->n = (int)utf8proc_normalize_utf32(c, g->n, options);
        CHECK(g->n >= 0, "libutf8proc: %s", utf8proc_errmsg(g->n));
    }
    for (int i = 0; i < g->n; i++) put(g->out, c[i]);
    g->n = 0;
}

static void add(struct group *g, const int32_t *codes, int n)
{
    if (!g->codes && g->n + n > DECOMPOSED_MAX) {
        g->codes = xmalloc(2 * (size_t)GROUP * sizeof *g->codes);
        memcpy(g->codes, g->first, (size_t)g->n * sizeof *g->codes);
    }
    memcpy((g->codes ? g->codes : g->first) + g->n, codes, (size_t)n * sizeof *codes);
    for (int i = 0; i < n && g->told; i++) g->changes[g->n + i] = i > 0;
    g->n += n;
}

/* What stands before `code` cannot change it, nor the other way round. */
static bool begins_group(int32_t code)
{
    if ((code >= 0x1161 && code <= 0x1175) || (code >= 0x11A8 && code <= 0x11C2)) return false;
    const utf8proc_property_t *p = utf8proc_get_property(code);
    return p->combining_class == 0 && p->category != UTF8PROC_CATEGORY_MN && p->category != UTF8PROC_CATEGORY_MC &&
           p->category != UTF8PROC_CATEGORY_ME;
}

static int decompose(enum normal_form form, uint32_t code, int32_t out[DECOMPOSED_MAX])
{
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (form == NORMAL_NFKC || form == NORMAL_NFKD) options |= UTF8PROC_COMPAT;
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((int32_t)code, out, DECOMPOSED_MAX, (utf8proc_option_t)options, &boundary);
    CHECK(n > 0 && n <= DECOMPOSED_MAX, "U+%04X decomposes into %ld code points", (unsigned)code, (long)n);
    return (int)n;
}

size_t normal_form_part_told(struct str *out, enum normal_form form, const unsigned char *p, size_t n, bool final,
                             normal_form_told_fn *told, void *arg)
{
    struct group g = {.form = form, .out = out, .told = told, .arg = arg};
    if (told) g.changes = xmalloc(GROUP);
    size_t group_at = 0, at = 0; /* the group in work begins at p[group_at] */
    while (at < n) {
        int32_t codes[DECOMPOSED_MAX];
        int len = 1, k = 1;
        size_t ascii = utf8_ascii(p + at, n - at);
        if (ascii) {
            flush(&g);
            str_add(out, p + at, ascii - 1);
            for (size_t i = 0; i + 1 < ascii && g.told; i++) tell(&g, 0);
            at += ascii - 1;
            codes[0] = p[at];
        } else {
            uint32_t code = utf8_code(p + at, &len);
            if (unicode_in(LEGACY_YOUNG, code)) {
                flush(&g);
                str_add(out, p + at, (size_t)len);
                tell(&g, 0);
                group_at = at += (size_t)len;
                continue;
            }
            k = decompose(form, code, codes);
            if (begins_group(codes[0])) flush(&g);
        }
        if (g.n + k > GROUP) flush(&g); /* a longer run of marks than is kept together */
        if (g.n == 0) group_at = at;
        add(&g, codes, k);
        at += (size_t)len;
    }
    if (final || g.n == 0) {
        flush(&g);
        group_at = n;
    }
    xfree(g.codes);
    xfree(g.changes);
    return group_at;
}

size_t normal_form_part(struct str *out, enum normal_form form, const unsigned char *p, size_t n, bool final)
{
    return normal_form_part_told(out, form, p, n, final, NULL, NULL);
}

void normal_form(struct str *out, enum normal_form form, const unsigned char *p, size_t n)
{
    (void)normal_form_part(out, form, p, n, true);
}

/* Code points that are kept for characters without a look count as controls, of which the library does not know. */
static bool is_reserved(int32_t c)
{
    bool ignorable = c == 0x2065 || (c >= 0xFFF0 && c <= 0xFFF8) || (c >= 0xE0000 && c <= 0xE0FFF);
    return ignorable && utf8proc_category(c) == UTF8PROC_CATEGORY_CN;
}

size_t grapheme_end(const unsigned char *p, size_t n, bool final)
{
    int len, state = 0;
    int32_t before = (int32_t)utf8_code(p, &len);
    size_t at = (size_t)len;
    while (at < n && at < GRAPHEME_MAX) {
        int32_t code = (int32_t)utf8_code(p + at, &len);
        if (is_reserved(before) || is_reserved(code)) return at;
        if (utf8proc_grapheme_break_stateful(before, code, &state)) return at;
        before = code;
        at += (size_t)len;
    }
    return final || at >= GRAPHEME_MAX ? at : 0;
}
