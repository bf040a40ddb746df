/* SPDX-License-Identifier: Apache-2.0 */
/* matcher.c: one of two.
 *
 * An expression that pattern.h knows, as all common ones are, is matched there: fast, and streaming is exact, because a
 * match that comes near the end of what is there is "undecided" instead of a guess, look-ahead included. Any other goes
 * to Oniguruma, which needs the whole text. Rejected: PCRE2, which was here before: it means other things by the same
 * text ({1,3}+, \w, $, \h, POSIX classes), and its tables are its own.
 */
#include "token/matcher.h"

#include "base/mem.h"
#include "token/token_bounds.h"
#include "token/oniguruma.h"
#include "token/pattern.h"

enum { PATTERN_MAX = 16 << 10 };

struct matcher {
    struct pattern *fast; /* or: */
    struct onig *general;
};

int matcher_new(struct matcher **m, const char *pattern, size_t n, bool general, const char *what, struct err *e)
{
    *m = NULL;
    if (n > PATTERN_MAX)
        return err_set(e, ERR_REQUEST, "%s: a regular expression of %zu bytes; at most %d are read", what, n,
                       PATTERN_MAX);
    struct matcher x = {.fast = NULL};
    struct err why = {0};
    int code = general ? OK : pattern_new(&x.fast, pattern, n, &why);
    if (!code && !x.fast) code = onig_new_pattern(&x.general, pattern, n, &why);
    if (code) return err_set(e, code, "%s: regular expression %.200s: not supported: %s", what, pattern, why.text);
    *m = xmalloc(sizeof **m);
    **m = x;
    return OK;
}

void matcher_free(struct matcher *m)
{
    if (!m) return;
    pattern_free(m->fast);
    onig_free_pattern(m->general);
    xfree(m);
}

bool matcher_needs_whole_text(const struct matcher *m) { return m->general; }

bool matcher_parts_before(const struct matcher *m, int k, uint32_t before, bool *begins)
{
    return m->fast && pattern_parts_before(m->fast, k, before, begins);
}

struct matcher_work {
    struct onig_work *onig; /* made when it is needed */
    int64_t saved; /* steps that may be taken beyond what the text to come is worth; it can be less than none */
};

struct matcher_work *matcher_work_new(void)
{
    struct matcher_work *w = xcalloc(1, sizeof *w);
    w->saved = MATCH_SAVED;
    return w;
}

void matcher_work_free(struct matcher_work *w)
{
    if (!w) return;
    onig_work_free(w->onig);
    xfree(w);
}

/* A search that had `had` steps and has `left` passed so many bytes. */
static void account(struct matcher_work *w, int64_t had, int64_t left, size_t passed)
{
    w->saved += (int64_t)passed * MATCH_STEPS - (had - left);
    if (w->saved > MATCH_SAVED) w->saved = MATCH_SAVED;
}

int matcher_find(const struct matcher *m, struct matcher_work *w, const unsigned char *p, size_t n, size_t at,
                 bool final, struct found *f, struct err *e)
{
    int64_t had = w->saved + (int64_t)(n - at) * MATCH_STEPS, left = had;
    *f = (struct found){0};
    if (m->general) {
        if (!w->onig) w->onig = onig_work_new();
        int code = onig_find(m->general, w->onig, p, n, at, &left, &f->match, &f->from, &f->to, e);
        account(w, had, left, (f->match ? f->to : n) - at);
        return code ? err_prefix(e, "the tokenizer's regular expression gave up on this text") : OK;
    }
    enum pattern_result r = pattern_find(m->fast, p, n, at, final, &left, &f->from, &f->to);
    if (r == PATTERN_MATCH || r == PATTERN_NONE) account(w, had, left, (r == PATTERN_MATCH ? f->to : n) - at);
    f->match = r == PATTERN_MATCH;
    f->undecided = r == PATTERN_UNDECIDED;
    if (r != PATTERN_GAVE_UP) return OK;
    return err_set(e, ERR_REQUEST, "the tokenizer's regular expression gave up on this text: too much backtracking");
}
