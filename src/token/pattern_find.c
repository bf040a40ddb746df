/* SPDX-License-Identifier: Apache-2.0 */
/* pattern_find.c: matching by backtracking along the graph. Classes cost one table look-up per character; a fork looks
 * at the first byte before it tries; a repetition at the end of the pattern is taken without ceremony. Work is bounded,
 * as Oniguruma's is.
 */
#include <string.h>

#include "text/utf8.h"
#include "token/pattern_impl.h"

enum { FAIL = -1, UNDECIDED = -2, GAVE_UP = -3, STEPS_MAX = 10000000 };

struct walk {
    const struct pattern *x;
    const unsigned char *p;
    size_t n;
    bool final;
    int64_t left; /* of STEPS_MAX */
};

static inline uint32_t mask_at(const struct pattern *x, const unsigned char *p, int *len)
{
    *len = 1;
    if (p[0] < 0x80) return x->pages[0][p[0]]; /* ASCII's page is the first */
    uint32_t c = utf8_code(p, len);
    return x->pages[x->page_of[c / PAGE]][c % PAGE];
}

static inline bool may_begin(const struct pattern_step *s, const unsigned char *p)
{
    return *p >= 0x80 ? s->beyond_ascii : s->first[*p >> 6] >> (*p & 63) & 1;
}

static int64_t walk(struct walk *w, int i, size_t at);

/* What follows a repetition of which the longest run ends at `at`: tried from there, then from one character less,
 * ... */
static int64_t walk_back(struct walk *w, const struct pattern_step *s, size_t at, int64_t count)
{
    for (;;) {
        int64_t end = walk(w, s->next, at);
        if (end != FAIL || count == s->min) return end;
        if (--w->left < 0) return GAVE_UP;
        count--;
        at--;
        while ((w->p[at] & 0xC0) == 0x80) at--;
    }
}

/* The end of the match that goes on with step i at p[at], FAIL, UNDECIDED or GAVE_UP. */
static int64_t walk(struct walk *w, int i, size_t at)
{
    for (;;) {
        const struct pattern_step *s = &w->x->steps[i];
        int len;
        int64_t count = 0, got;
        if (--w->left < 0) return GAVE_UP;
        switch (s->kind) {
        case STEP_ACCEPT: return (int64_t)at;
        case STEP_CHAR:
            if (at == w->n) return w->final ? FAIL : UNDECIDED;
            if (!(mask_at(w->x, w->p + at, &len) >> s->set & 1)) return FAIL;
            at += (size_t)len;
            break;
        case STEP_LOOP:
            while (count < s->max && at < w->n && mask_at(w->x, w->p + at, &len) >> s->set & 1) {
                at += (size_t)len;
                count++;
            }
            w->left -= count;
            if (at == w->n && count < s->max && !w->final) return UNDECIDED;
            if (count < s->min) return FAIL;
            if (!s->flag) return walk_back(w, s, at, count);
            break;
        case STEP_FORK:
            if (at < w->n && !may_begin(&w->x->steps[s->other], w->p + at)) break;
            got = walk(w, s->other, at);
            if (got != FAIL) return got;
            break;
        case STEP_LOOK:
            got = walk(w, s->other, at);
            if (got < FAIL) return got;
            if ((got == FAIL) != s->flag) return FAIL;
            break;
        }
        i = s->next;
    }
}

enum pattern_result pattern_find(const struct pattern *x, const unsigned char *p, size_t n, size_t from, bool final,
                                 int64_t *left, size_t *at, size_t *end)
{
    struct walk w = {.x = x, .p = p, .n = n, .final = final};
    const struct pattern_step *start = &x->steps[x->start];
    for (*at = from; *at <= n; ++*at) {
        while (*at < n && ((p[*at] & 0xC0) == 0x80 || !may_begin(start, p + *at))) ++*at;
        int64_t most = *left < STEPS_MAX ? *left : STEPS_MAX;
        w.left = most;
        int64_t got = walk(&w, *at < n && p[*at] < 0x80 ? x->enter[p[*at]] : x->start, *at);
        *left -= most - w.left;
        if (got == UNDECIDED) return PATTERN_UNDECIDED;
        if (got == GAVE_UP) return PATTERN_GAVE_UP;
        if (got >= 0) {
            *end = (size_t)got;
            return PATTERN_MATCH;
        }
    }
    return PATTERN_NONE;
}
