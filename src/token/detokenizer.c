/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer.c: a chain of small machines. What a step holds back is what it cannot decide yet: a token that may be
 * the last, the beginning of a text to replace, characters that may be stripped from the end.
 */
#include "token/detokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "token/token_bounds.h"
#include "token/byte_level.h"
#include "token/matcher.h"

struct machine {
    const struct detok_step *step;
    bool fused;       /* what comes is one token in pieces */
    int64_t n_tokens; /* so far */
    int64_t stripped; /* STRIP when fused: from the left; -1: no more */
    struct str held;
    bool holds;
    struct str work;
    struct matcher_work *matching; /* REPLACE_PATTERN */
};

struct detok_state {
    const struct detokenizer *d;
    struct machine *machines;
};

static bool fuses(enum detok_kind k) { return k == DETOK_FUSE || k == DETOK_BYTE_LEVEL; }

/* How many bytes a step makes of one; what is put between tokens is a byte. */
static size_t growth_of(const struct detok_step *x)
{
    size_t of = x->kind == DETOK_REPLACE && x->text.n ? x->text.n : 1; /* no text: a step that is refused */
    if (x->kind != DETOK_REPLACE && x->kind != DETOK_REPLACE_PATTERN) return 1;
    return x->content.n > of ? (x->content.n + of - 1) / of : 1;
}

static int check_bounds(const struct detokenizer *d, const char *what, struct err *e)
{
    if (d->n > CHAIN_MAX) return err_set(e, ERR_REQUEST, "%s: decoder: more than %d steps", what, CHAIN_MAX);
    if (d->growth <= GROWTH_MAX) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: decoder: its steps up to the %d. make up to %zu bytes of one; at most %d are made: is this "
                   "tokenizer.json what it should be?",
                   what, d->n, d->growth, GROWTH_MAX);
}

int detok_add(struct detokenizer *d, struct detok_step step, const char *what, struct err *e)
{
    bool fused = false;
    for (int i = 0; i < d->n; i++) fused = fused || fuses(d->steps[i].kind);
    bool fits = step.kind == DETOK_REPLACE || step.kind == DETOK_STRIP || step.kind == DETOK_FUSE;
    GROW(d->steps, d->n, d->room, 1);
    d->steps[d->n++] = step;
    d->growth = (d->growth ? d->growth : 1) * growth_of(&step);
    if (fused && !fits)
        return err_set(e, ERR_REQUEST,
                       "%s: decoder: only Replace with a String, Strip and Fuse are supported after Fuse", what);
    return check_bounds(d, what, e);
}

void detok_free(struct detokenizer *d)
{
    if (!d) return;
    for (int i = 0; i < d->n; i++) {
        str_free(&d->steps[i].text);
        str_free(&d->steps[i].content);
        matcher_free(d->steps[i].pattern);
    }
    xfree(d->steps);
    xfree(d);
}

struct detok_state *detok_state_new(const struct detokenizer *d)
{
    struct detok_state *s = xcalloc(1, sizeof *s);
    s->d = d;
    s->machines = xcalloc((size_t)d->n + 1, sizeof *s->machines);
    for (int i = 0; i < d->n; i++) {
        s->machines[i].step = &d->steps[i];
        if (d->steps[i].pattern) s->machines[i].matching = matcher_work_new();
        s->machines[i].fused = i && (s->machines[i - 1].fused || fuses(d->steps[i - 1].kind));
    }
    return s;
}

void detok_state_free(struct detok_state *s)
{
    if (!s) return;
    for (int i = 0; i < s->d->n; i++) {
        str_free(&s->machines[i].held);
        str_free(&s->machines[i].work);
        matcher_work_free(s->machines[i].matching);
    }
    xfree(s->machines);
    xfree(s);
}

/* -- one token ----------------------------------------------------------------------------------------------- */

/* Adds p[0..n) with `text` replaced by `by`. */
static void replace(struct str *out, const char *p, size_t n, const char *text, size_t text_n, const char *by,
                    size_t by_n)
{
    const char *hit;
    while (text_n && n >= text_n && (hit = memmem(p, n, text, text_n))) {
        str_add(out, p, (size_t)(hit - p));
        str_add(out, by, by_n);
        n -= (size_t)(hit - p) + text_n;
        p = hit + text_n;
    }
    str_add(out, p, n);
}

static void replace_pattern(const struct machine *m, struct str *out, const char *p, size_t n)
{
    const struct detok_step *x = m->step;
    const unsigned char *text = (const unsigned char *)p;
    size_t at = 0;
    struct found f;
    struct err e;
    while (at < n && !matcher_find(x->pattern, m->matching, text, n, at, true, &f, &e) && f.match && f.to > f.from) {
        str_add(out, p + at, f.from - at);
        str_add(out, str_text(&x->content), x->content.n);
        at = f.to;
    }
    str_add(out, p + at, n - at);
}

/* The reference's cleaning of English, in its order. */
static void clean(struct str *text)
{
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct str next = {0};
        replace(&next, str_text(text), text->n, pairs[i][0], strlen(pairs[i][0]), pairs[i][1], strlen(pairs[i][1]));
        str_free(text);
        *text = next;
    }
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void bytes(struct str *out, const char *p, size_t n)
{
    bool is_byte = n == 6 && !memcmp(p, "<0x", 3) && p[5] == '>' && hex(p[3]) >= 0 && hex(p[4]) >= 0;
    if (is_byte) str_putc(out, (char)(hex(p[3]) * 16 + hex(p[4])));
    else str_add(out, p, n);
}

static void strip(const struct detok_step *x, struct str *out, const char *p, size_t n)
{
    size_t m = x->text.n;
    for (int64_t i = 0; i < x->start && n >= m && !memcmp(p, x->text.p, m); i++) {
        p += m;
        n -= m;
    }
    for (int64_t i = 0; i < x->stop && n >= m && !memcmp(p + n - m, x->text.p, m); i++) n -= m;
    str_add(out, p, n);
}

static void word_piece(const struct detok_step *x, struct str *out, const char *p, size_t n, bool first)
{
    bool goes_on = !first && n >= x->text.n && !memcmp(p, str_text(&x->text), x->text.n);
    if (!first && !goes_on) str_putc(out, ' ');
    str_add(out, goes_on ? p + x->text.n : p, goes_on ? n - x->text.n : n);
    if (x->cleans) clean(out);
}

static void ctc(const struct detok_step *x, struct str *out, const char *p, size_t n)
{
    struct str cleaned = {0};
    replace(&cleaned, p, n, str_text(&x->text), x->text.n, "", 0);
    if (x->cleans) clean(&cleaned);
    if (x->cleans) replace(out, str_text(&cleaned), cleaned.n, str_text(&x->content), x->content.n, " ", 1);
    else str_add(out, str_text(&cleaned), cleaned.n);
    str_free(&cleaned);
}

/* The token as this step changes it. */
static void change(struct machine *m, struct str *out, const char *p, size_t n)
{
    const struct detok_step *x = m->step;
    bool first = m->n_tokens == 0;
    switch (x->kind) {
    case DETOK_REPLACE: replace(out, p, n, x->text.p, x->text.n, str_text(&x->content), x->content.n); break;
    case DETOK_REPLACE_PATTERN: replace_pattern(m, out, p, n); break;
    case DETOK_BYTES: bytes(out, p, n); break;
    case DETOK_STRIP: strip(x, out, p, n); break;
    case DETOK_METASPACE: replace(out, p, n, x->text.p, x->text.n, " ", first && x->drops_first ? 0 : 1); break;
    case DETOK_WORD_PIECE: word_piece(x, out, p, n, first); break;
    case DETOK_BYTE_LEVEL:
        if (!byte_level_read(out, p, n)) str_add(out, p, n);
        break;
    case DETOK_CTC: ctc(x, out, p, n); break;
    case DETOK_SPACES:
        if (!first) str_putc(out, ' ');
        str_add(out, p, n);
        break;
    default: str_add(out, p, n);
    }
}

/* -- the chain ------------------------------------------------------------------------------------------------ */

static void push(struct detok_state *s, int i, const char *p, size_t n, struct str *out);

/* One token in pieces: what of m->held is certain goes on; all of it at the end. */
static void flow(struct detok_state *s, int i, bool end, struct str *out)
{
    struct machine *m = &s->machines[i];
    const struct detok_step *x = m->step;
    struct str *held = &m->held;
    size_t keep = 0, at = 0, text_n = x->text.n;
    str_clear(&m->work);
    if (x->kind == DETOK_REPLACE) {
        const char *hit;
        while (held->n - at >= text_n && (hit = memmem(held->p + at, held->n - at, x->text.p, text_n))) {
            str_add(&m->work, held->p + at, (size_t)(hit - held->p) - at);
            str_add(&m->work, str_text(&x->content), x->content.n);
            at = (size_t)(hit - held->p) + text_n;
        }
        keep = end ? 0 : text_n - 1 < held->n - at ? text_n - 1 : held->n - at;
    } else if (x->kind == DETOK_STRIP) {
        while (m->stripped >= 0 && m->stripped < x->start && held->n - at >= text_n) {
            if (memcmp(held->p + at, x->text.p, text_n)) m->stripped = -1;
            else m->stripped++, at += text_n;
        }
        bool waits =
            m->stripped >= 0 && m->stripped < x->start && !end && !memcmp(str_text(held) + at, x->text.p, held->n - at);
        size_t tail = 0;
        for (int64_t k = 0; k < x->stop && held->n - at - tail >= text_n &&
                            !memcmp(held->p + held->n - tail - text_n, x->text.p, text_n);
             k++)
            tail += text_n;
        keep = waits ? held->n - at : tail;
    }
    str_add(&m->work, str_text(held) + at, held->n - at - keep);
    struct str rest = {0};
    if (!end) str_add(&rest, str_text(held) + held->n - keep, keep); /* at the end it is what was stripped */
    str_free(held);
    *held = rest;
    if (m->work.n) push(s, i + 1, m->work.p, m->work.n, out);
}

static void push(struct detok_state *s, int i, const char *p, size_t n, struct str *out)
{
    if (i == s->d->n) {
        str_add(out, p, n);
        return;
    }
    struct machine *m = &s->machines[i];
    if (m->fused) {
        str_add(&m->held, p, n);
        flow(s, i, false, out);
        return;
    }
    if (m->step->kind == DETOK_CTC && m->holds && m->held.n == n && !memcmp(str_text(&m->held), p, n)) return;
    str_clear(&m->work);
    if (m->step->kind == DETOK_SUFFIX) { /* the token before is not the last */
        replace(&m->work, str_text(&m->held), m->held.n, m->step->text.p, m->step->text.n, " ", 1);
    } else {
        change(m, &m->work, p, n);
    }
    bool hands_on = m->step->kind != DETOK_SUFFIX || m->holds;
    if (m->step->kind == DETOK_CTC || m->step->kind == DETOK_SUFFIX) {
        str_clear(&m->held);
        str_add(&m->held, p, n);
        m->holds = true;
    }
    m->n_tokens++;
    if (m->step->kind == DETOK_CTC && !m->work.n) return;
    if (hands_on) push(s, i + 1, str_text(&m->work), m->work.n, out);
}

void detok_push(struct detok_state *s, const char *token, size_t n, struct str *out) { push(s, 0, token, n, out); }

void detok_end(struct detok_state *s, struct str *out)
{
    for (int i = 0; i < s->d->n; i++) {
        struct machine *m = &s->machines[i];
        if (m->fused) {
            flow(s, i, true, out);
        } else if (m->step->kind == DETOK_SUFFIX && m->holds) {
            str_clear(&m->work);
            replace(&m->work, str_text(&m->held), m->held.n, m->step->text.p, m->step->text.n, "", 0);
            push(s, i + 1, str_text(&m->work), m->work.n, out);
        }
    }
}
