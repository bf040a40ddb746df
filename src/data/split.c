/* SPDX-License-Identifier: Apache-2.0 */
/* split.c: pieces by one of two matchers.
 *
 * An expression that pattern.h knows, as all common ones are, is matched there: fast, and streaming is exact, because a
 * match that comes near the end of what is there is "undecided" instead of a guess, look-ahead included. Any other goes
 * to Oniguruma, which needs the whole text: then text waits until its end is there, SPLIT_TEXT_MAX at most. Later
 * stages cut pieces that are complete already.
 *
 * Cost: one call per piece, about 0.05 microseconds by pattern.h, ten times that by Oniguruma. Rejected: PCRE2, which
 * was here before: it means other things by the same text ({1,3}+, \w, $, \h, POSIX classes), and its tables are its
 * own.
 */
#include "data/split.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "data/oniguruma.h"
#include "data/pattern.h"
#include "data/utf8.h"

const char *const SPLIT_GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char *const SPLIT_LLAMA3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

enum { MAX_STAGES = 8, PATTERN_MAX = 16 << 10 };

struct stage {
    struct pattern *fast; /* or: */
    struct onig *general;
};

struct split {
    struct stage stages[MAX_STAGES];
    int n;
};

struct split_work {
    struct onig_work *onig;
};

struct split *split_new(void) { return xcalloc(1, sizeof(struct split)); }

void split_free(struct split *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        pattern_free(s->stages[i].fast);
        onig_free_pattern(s->stages[i].general);
    }
    xfree(s);
}

int split_n_stages(const struct split *s) { return s->n; }

bool split_needs_whole_text(const struct split *s) { return s->n > 0 && s->stages[0].general; }

/* A stage in which nothing begins there may have the cut inside what it leaves over; a later one cuts it. */
bool split_parts_before(const struct split *s, int k, uint32_t before)
{
    bool any = false;
    for (int i = 0; i < s->n; i++) {
        bool begins;
        if (!s->stages[i].fast || !pattern_parts_before(s->stages[i].fast, k, before, &begins)) return false;
        any = any || begins;
    }
    return any;
}

static int add(struct split *s, const char *pattern, size_t n, bool general, const char *what, struct err *e)
{
    if (s->n == MAX_STAGES) return err_set(e, ERR_REQUEST, "%s: more than %d splits in sequence", what, MAX_STAGES);
    if (n > PATTERN_MAX)
        return err_set(e, ERR_REQUEST, "%s: a regular expression of %zu bytes; at most %d are read", what, n,
                       PATTERN_MAX);
    struct stage x = {.fast = NULL};
    struct err why = {0};
    int code = general ? OK : pattern_new(&x.fast, pattern, n, &why);
    if (!code && !x.fast) code = onig_new_pattern(&x.general, pattern, n, &why);
    if (code) return err_set(e, code, "%s: regular expression %.200s: not supported: %s", what, pattern, why.text);
    s->stages[s->n++] = x;
    return OK;
}

int split_add(struct split *s, const char *pattern, size_t n, const char *what, struct err *e)
{
    return add(s, pattern, n, false, what, e);
}

int split_add_general(struct split *s, const char *pattern, size_t n, const char *what, struct err *e)
{
    return add(s, pattern, n, true, what, e);
}

struct split_work *split_work_new(const struct split *s)
{
    struct split_work *w = xcalloc(1, sizeof *w);
    for (int i = 0; i < s->n && !w->onig; i++)
        if (s->stages[i].general) w->onig = onig_work_new();
    return w;
}

void split_work_free(struct split_work *w)
{
    if (!w) return;
    onig_work_free(w->onig);
    xfree(w);
}

/* One search in p[at..n): OK with found, undecided, or neither (no match at all). */
struct found {
    bool match, undecided;
    size_t from, to;
};

static int find(const struct split *s, struct split_work *w, int stage, const unsigned char *p, size_t n, size_t at,
                bool final, struct found *f, struct err *e)
{
    const struct stage *x = &s->stages[stage];
    *f = (struct found){0};
    if (x->general) {
        int code = onig_find(x->general, w->onig, p, n, at, &f->match, &f->from, &f->to, e);
        return code ? err_prefix(e, "the tokenizer's regular expression gave up on this text") : OK;
    }
    enum pattern_result r = pattern_find(x->fast, p, n, at, final, &f->from, &f->to);
    f->match = r == PATTERN_MATCH;
    f->undecided = r == PATTERN_UNDECIDED;
    if (r != PATTERN_GAVE_UP) return OK;
    return err_set(e, ERR_REQUEST, "the tokenizer's regular expression gave up on this text: too much backtracking");
}

static int run_stage(const struct split *s, struct split_work *w, int stage, const unsigned char *p, size_t n,
                     bool final, split_piece_fn *fn, void *arg, size_t *used, struct err *e);

/* A piece of `stage` goes to the next one, whole; after the last, to the caller. */
static int hand_on(const struct split *s, struct split_work *w, int stage, const unsigned char *p, size_t n,
                   split_piece_fn *fn, void *arg, struct err *e)
{
    size_t used;
    if (n == 0) return OK;
    if (stage + 1 < s->n) return run_stage(s, w, stage + 1, p, n, true, fn, arg, &used, e);
    fn(arg, p, n);
    return OK;
}

/* The window that a piece starting at p[at] is decided in: its end, and whether text beyond cannot matter. */
static size_t window(const unsigned char *p, size_t n, size_t at, bool *final)
{
    if (n - at < SPLIT_PIECE_MAX) return n;
    *final = true;
    return n - at == SPLIT_PIECE_MAX ? n : utf8_cut(p, at + SPLIT_PIECE_MAX);
}

static int run_stage(const struct split *s, struct split_work *w, int stage, const unsigned char *p, size_t n,
                     bool final, split_piece_fn *fn, void *arg, size_t *used, struct err *e)
{
    size_t done = 0; /* everything before is in pieces that were handed on */
    size_t at = 0;   /* where the next search starts: >= done, beyond it only after an empty match */
    bool whole = s->stages[stage].general;
    *used = 0;
    if (whole && !final) return OK;
    while (done < n) {
        bool last = final;
        size_t end = whole ? n : window(p, n, done, &last);
        struct found f = {.match = false};
        int code = at < end ? find(s, w, stage, p, end, at, last, &f, e) : OK;
        if (code) return code;
        if (f.match && f.from == f.to &&
            f.from < end) { /* an empty match is a cut; the next search is one character on */
            int len = utf8_char(p + f.from, end - f.from);
            code = hand_on(s, w, stage, p + done, f.from - done, fn, arg, e);
            if (code) return code;
            *used = done = f.from;
            at = f.from + (size_t)(len > 0 ? len : 1);
            continue;
        }
        if (f.match && f.from < f.to) {
            code = hand_on(s, w, stage, p + done, f.from - done, fn, arg, e);
            if (!code) code = hand_on(s, w, stage, p + f.from, f.to - f.from, fn, arg, e);
            done = f.to;
        } else if (last) {
            code = hand_on(s, w, stage, p + done, end - done, fn, arg, e);
            done = end;
        } else {
            return OK; /* undecided, or no match yet: both wait for more text */
        }
        if (code) return code;
        at = done;
        *used = done;
    }
    return OK;
}

int split_run(const struct split *s, struct split_work *w, const unsigned char *p, size_t n, bool final,
              split_piece_fn *fn, void *arg, size_t *used, struct err *e)
{
    if (s->n) return run_stage(s, w, 0, p, n, final, fn, arg, used, e);
    size_t done = 0;
    while (done < n) {
        bool last = final;
        size_t end = window(p, n, done, &last);
        if (!last) break;
        fn(arg, p + done, end - done);
        done = end;
    }
    *used = done;
    return OK;
}
