/* SPDX-License-Identifier: Apache-2.0 */
/* oniguruma.c: expressions rewritten, then compiled and matched by the library.
 *
 * Two things are spelt out before the library sees them: classes (\w, \p{Han}, [[:alpha:]], ...) become ranges of code
 * points, since the reference carries its own copy of the library with newer tables; \b and \B become the look-around
 * that they mean, for the same reason. Everything else keeps its meaning: ^ and $ match at every line, . is all but \n,
 * (?m:.) is all, {n,m}+ repeats the interval.
 */
#include "token/oniguruma.h"

#include <oniguruma.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "text/utf8.h"
#include "token/token_bounds.h"
#include "token/charset.h"

struct onig {
    regex_t *code;
};

struct onig_work {
    OnigRegion *region;
    OnigMatchParam *limits;
};

enum { SHORT = 1024, STACK_MAX = 4 << 20 /* places to go back to, some 50 bytes each */ };

/* -- rewriting ---------------------------------------------------------------------------------------------- */

static void put_set(struct str *out, const struct ranges *s, bool negated)
{
    str_puts(out, negated ? "[^" : "[");
    for (int i = 0; i < s->n; i++) {
        /* No character is a surrogate, and the library takes none in a range's end. */
        uint32_t lo = s->r[i].lo, hi = s->r[i].hi;
        if (lo >= 0xD800 && lo < 0xE000) lo = 0xE000;
        if (hi >= 0xD800 && hi < 0xE000) hi = 0xD7FF;
        if (lo <= hi) str_printf(out, "\\x{%x}-\\x{%x}", lo, hi);
    }
    str_putc(out, ']');
}

/* Folds of whole sets are the library's own when nothing is negated inside; otherwise a set does not say what is
 * meant. */
static int rewrite_class(struct str *out, const char *p, size_t n, size_t *at, bool folds, struct err *e)
{
    struct charset c;
    int rc = charset_read(&c, p, n, at, e);
    if (rc) return rc;
    if (folds && c.inner_negation) rc = err_set(e, ERR_REQUEST, "a negated class or && inside a class, under (?i)");
    else if (c.set.n == 0) rc = err_set(e, ERR_REQUEST, "a class of no characters");
    else put_set(out, &c.set, c.negated);
    charset_free(&c);
    return rc;
}

static void rewrite_boundary(struct str *out, bool boundary)
{
    struct ranges word = {0};
    struct str w = {0};
    (void)unicode_property(&word, "word", 4);
    put_set(&w, &word, false);
    str_printf(out, boundary ? "(?:(?<=%s)(?!%s)|(?<!%s)(?=%s))" : "(?:(?<=%s)(?=%s)|(?<!%s)(?!%s))", w.p, w.p, w.p,
               w.p);
    str_free(&w);
    ranges_free(&word);
}

/* Options that a group may set: i and m. */
static int check_options(const char *p, size_t n, size_t at, bool *folds, struct err *e)
{
    size_t i = at + 2;
    if (p[at] != '(' || i >= n || p[at + 1] != '?' || strchr(":=!<>|(~#", p[i]) || p[i] == '\'') return OK;
    for (; i < n && p[i] != ')' && p[i] != ':'; i++) {
        if (p[i] != 'i' && p[i] != 'm' && p[i] != '-') return err_set(e, ERR_REQUEST, "the option %c of (?...)", p[i]);
        *folds = *folds || p[i] == 'i';
    }
    return OK;
}

static int rewrite(struct str *out, const char *p, size_t n, struct err *e)
{
    bool folds = false;
    int rc = OK;
    for (size_t i = 0; i < n && !rc; i++)
        rc = p[i] == '\\' ? (i++, OK) : p[i] == '(' ? check_options(p, n, i, &folds, e) : OK;
    for (size_t at = 0; at < n && !rc;) {
        rc = rewrite_class(out, p, n, &at, folds, e);
        if (rc <= 0) continue;
        rc = OK;
        size_t length = p[at] == '\\' && at + 1 < n ? 2 : 1;
        char c = length == 2 ? p[at + 1] : 0;
        if (c == 'b' || c == 'B') rewrite_boundary(out, c == 'b');
        else if (c && strchr("XyYpP", c)) rc = err_set(e, ERR_REQUEST, "\\%c, which hangs on Unicode's version", c);
        else str_add(out, p + at, length);
        at += length;
        if (out->n > SPELT_PATTERN_MAX) return err_set(e, ERR_REQUEST, "too many classes of characters");
    }
    return rc;
}

/* -- the library -------------------------------------------------------------------------------------------- */

static void set_up(void)
{
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
}

static int failed(int code, OnigErrorInfo *info, struct err *e)
{
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(text, code, info);
    return err_set(e, ERR_REQUEST, "%s", (char *)text);
}

int onig_new_pattern(struct onig **out, const char *text, size_t n, struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
    *out = NULL;
    struct str spelt = {0};
    int rc = rewrite(&spelt, text, n, e);
    if (!rc && utf8_run((const unsigned char *)str_text(&spelt), spelt.n) < spelt.n)
        rc = err_set(e, ERR_REQUEST, "not valid UTF-8");
    if (!rc) {
        const OnigUChar *p = (const OnigUChar *)str_text(&spelt);
        OnigErrorInfo info;
        struct onig *x = xcalloc(1, sizeof *x);
        int code =
            onig_new(&x->code, p, p + spelt.n, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
        if (code != ONIG_NORMAL) {
            rc = failed(code, &info, e);
            xfree(x);
        } else {
            *out = x;
        }
    }
    str_free(&spelt);
    return rc;
}

void onig_free_pattern(struct onig *x)
{
    if (!x) return;
    onig_free(x->code);
    xfree(x);
}

struct onig_work *onig_work_new(void)
{
    struct onig_work *w = xcalloc(1, sizeof *w);
    w->region = onig_region_new();
    w->limits = onig_new_match_param();
    CHECK(w->region && w->limits, "no memory for a matcher");
    onig_set_match_stack_limit_size_of_match_param(w->limits, STACK_MAX);
    return w;
}

void onig_work_free(struct onig_work *w)
{
    if (!w) return;
    onig_region_free(w->region, 1);
    onig_free_match_param(w->limits);
    xfree(w);
}

int onig_find(const struct onig *x, struct onig_work *w, const unsigned char *p, size_t n, size_t from, int64_t *left,
              bool *found, size_t *at, size_t *end, struct err *e)
{
    int where = ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
    /* The library does not tell how often it went back: it is asked again with more where that was not enough. */
    for (int64_t most = SHORT; where == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER && *left > 0; most *= 4) {
        if (most > SHORT) *left -= most;
        onig_region_clear(w->region);
        onig_set_retry_limit_in_search_of_match_param(w->limits, (unsigned long)most);
        where = onig_search_with_param(x->code, p, p + n, p + from, p + n, w->region, ONIG_OPTION_NONE, w->limits);
    }
    *found = where >= 0;
    if (*found) {
        *at = (size_t)w->region->beg[0];
        *end = (size_t)w->region->end[0];
    }
    return where >= 0 || where == ONIG_MISMATCH ? OK : failed(where, NULL, e);
}
