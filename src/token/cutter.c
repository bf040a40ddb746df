/* SPDX-License-Identifier: Apache-2.0 */
/* cutter.c: four nested cuts over one sliding buffer.
 *
 *   document  = sentence (added token  sentence)*  added.h, tokens that are not `normalized`
 *   sentence  = text (added token  text)*          added.h, tokens that are
 *   text      = (valid UTF-8 | one bad byte)*      utf8.h
 *   valid     = pieces                             split.h
 *
 * With a normalizer a second cutter, which knows the second kind of tokens only, gets each sentence normalised.
 *
 * The buffer holds what is not decided yet: at most one piece, plus one feed's step. Each level says how far it is
 * certain, and certainty only grows, so the result does not depend on how the text was parted. buf[at - 1] always
 * exists: that is where add_prefix_space puts its space.
 */
#include "token/cutter.h"

#include <string.h>

#include "base/mem.h"
#include "text/unicode.h"
#include "text/unicode_table.h"
#include "text/utf8.h"
#include "token/normalizer.h"

enum { STEP = 64 << 10, HISTORY = 8 }; /* HISTORY: bytes kept before what is not decided: single_word looks back */

/* A search for one set of added tokens, as the reference does it: from left to right; a token that is no single word
 * though it has to be is passed over whole; lstrip takes white space back to the token before and no further; rstrip
 * takes white space after it, in which the next token may begin all the same. */
struct pass {
    const struct added *tokens;
    size_t begin; /* of the sentence, or some byte of it that is far enough back */
    size_t from;  /* what is before belongs to the last token */
    size_t scan;  /* no more tokens begin before */
    bool strips;  /* the last token takes white space at `from` along */
};

struct cutter {
    const struct cut_rules *rules;
    struct cutter_sink sink;
    struct split_work *split;
    unsigned char *buf;
    size_t at, n, room;    /* undecided: buf[at..n); at >= 1 */
    struct pass raw, left; /* of the document; of a sentence */
    bool sentence_begins;  /* nothing of the current sentence was looked at yet */
    bool text_begins;      /* nothing of the current text has been cut yet */
    int64_t origin;        /* so many characters from `at` on come from where the document begins */
    /* With a normalizer: */
    struct normalizer_run *normalizer;
    struct cutter *inner;
    struct cut_rules inner_rules;
    struct str normal;
    bool sentence_open; /* the normalizer and `inner` have begun a sentence */
    /* With `repairs`: the beginning of a character, or of none. */
    unsigned char held[4];
    size_t n_held;
};

static void pass_begin(struct pass *s, size_t at)
{
    s->begin = s->from = s->scan = at;
    s->strips = false;
}

static void begin_document(struct cutter *c)
{
    c->at = c->n = 1;
    pass_begin(&c->raw, 1);
    pass_begin(&c->left, 1);
    c->sentence_begins = c->text_begins = true;
    c->origin = 1;
    c->sentence_open = false;
    c->n_held = 0;
}

struct cutter *cutter_new(const struct cut_rules *rules, struct cutter_sink sink)
{
    struct cutter *c = xcalloc(1, sizeof *c);
    *c = (struct cutter){.rules = rules,
                         .sink = sink,
                         .split = split_work_new(rules->split),
                         .raw.tokens = &rules->added[0],
                         .left.tokens = &rules->added[1]};
    c->room = 2 * STEP;
    c->buf = xmalloc(c->room);
    begin_document(c);
    if (!rules->normalizer) return c;
    c->inner_rules =
        (struct cut_rules){.added[1] = rules->added[1], .split = rules->split, .prefix_space = rules->prefix_space};
    added_finish(&c->inner_rules.added[0]);
    c->inner = cutter_new(&c->inner_rules, sink);
    c->normalizer = normalizer_run_new(rules->normalizer);
    return c;
}

void cutter_free(struct cutter *c)
{
    if (!c) return;
    cutter_free(c->inner);
    normalizer_run_free(c->normalizer);
    str_free(&c->normal);
    split_work_free(c->split);
    xfree(c->buf);
    xfree(c);
}

/* -- added tokens ------------------------------------------------------------------------------------------- */

/* What a pass found: a token, with the end of the text before it; or none, with the end of what is surely text. */
struct hit {
    const struct added_token *t;
    size_t end, stop; /* stop: where the token ends */
};

static bool is_word(const unsigned char *p, size_t n)
{
    int len;
    return utf8_char(p, n) > 0 && (unicode_kind_of(utf8_code(p, &len)) & UNI_RUST_WORD);
}

enum verdict { ALONE, IN_A_WORD, UNDECIDED };

static enum verdict stands_alone(const struct pass *s, const unsigned char *buf, size_t at, size_t stop, size_t n,
                                 bool final)
{
    size_t back = at;
    while (back > s->begin && at - back < 4 && (back == at || (buf[back] & 0xC0) == 0x80)) back--;
    if (back < at && utf8_char(buf + back, at - back) == (int)(at - back) && is_word(buf + back, at - back))
        return IN_A_WORD;
    if (!final && (stop == n || utf8_char(buf + stop, n - stop) < 0)) return UNDECIDED;
    return stop < n && is_word(buf + stop, n - stop) ? IN_A_WORD : ALONE;
}

/* The end of the text that ends at `end`, when a token behind it takes white space along. */
static size_t without_space(const struct pass *s, const unsigned char *buf, size_t end)
{
    return end > s->from ? s->from + utf8_space_before(buf + s->from, end - s->from) : s->from;
}

/* What is surely text when it is known up to `end` and the next token may take white space along: all but white space,
 * and but a character that `end` cuts, which may become some. */
static size_t surely_text(const struct pass *s, const unsigned char *buf, size_t end)
{
    for (size_t back = 1; back <= 3 && s->from + back <= end; back++) {
        if ((buf[end - back] & 0xC0) == 0x80) continue;
        if (utf8_char(buf + end - back, back) < 0) end -= back;
        break;
    }
    return without_space(s, buf, end);
}

static void strip(struct pass *s, const unsigned char *buf, size_t n, bool final)
{
    int len;
    while (s->from < n && (len = utf8_space(buf + s->from, n - s->from))) s->from += (size_t)len;
    if (final || (s->from < n && utf8_char(buf + s->from, n - s->from) >= 0)) s->strips = false;
}

/* The next token in a sentence of which buf[..n) is there, all of it if `final`. */
static struct hit pass_next(struct pass *s, const unsigned char *buf, size_t n, bool final)
{
    if (s->strips) strip(s, buf, n, final);
    for (;;) {
        size_t at = 0, sure;
        const struct added_token *t = added_find(s->tokens, buf, s->scan, n, final, &at, &sure);
        enum verdict verdict = ALONE;
        if (t && t->single_word) verdict = stands_alone(s, buf, at, at + t->n, n, final);
        if (verdict == IN_A_WORD) {
            s->scan = at + t->n;
            continue;
        }
        if (!t || verdict == UNDECIDED) {
            s->scan = t ? at : sure;
            bool held = s->tokens->any_strips_before && !final;
            size_t end = s->strips ? s->from : held ? surely_text(s, buf, s->scan) : s->scan;
            return (struct hit){.end = end > s->from ? end : s->from};
        }
        size_t end = t->strip_before ? without_space(s, buf, at) : at;
        return (struct hit){.t = t, .end = end > s->from ? end : s->from, .stop = at + t->n};
    }
}

static void pass_over(struct pass *s, const struct hit *h)
{
    s->from = s->scan = h->stop;
    s->strips = h->t->strip_after;
}

/* What is before buf[to) is decided. */
static void pass_to(struct cutter *c, size_t to)
{
    for (; c->origin && c->at < to; c->at++) c->origin -= (c->buf[c->at] & 0xC0) != 0x80;
    c->at = to;
}

/* -- text --------------------------------------------------------------------------------------------------- */

/* Cuts buf[at..end), a text or the beginning of one; moves `at` over what is decided. */
static int cut_text(struct cutter *c, size_t end, bool final, struct err *e)
{
    if (c->at >= end) return OK;
    if (!final && split_needs_whole_text(c->rules->split)) {
        if (end - c->at <= SPLIT_TEXT_MAX) return OK;
        return err_set(e, ERR_REQUEST,
                       "a text of more than %d MiB between two added tokens: the tokenizer's regular expression needs "
                       "it whole; cut the text into documents",
                       SPLIT_TEXT_MAX >> 20);
    }
    if (c->text_begins) split_begin(c->split);
    if (c->text_begins && c->rules->prefix_space && c->buf[c->at] != ' ') {
        c->buf[--c->at] = ' ';
        c->origin += c->origin > 0;
    }
    c->text_begins = false;
    while (c->at < end) {
        const unsigned char *p = c->buf + c->at;
        size_t n = end - c->at, valid = utf8_run(p, n), used;
        int next = valid < n ? utf8_char(p + valid, n - valid) : -1;
        bool ends_here = next == 0 || final; /* a bad byte follows, or nothing: what follows is not part of this run */
        split_origin(c->split, c->origin);
        int code = split_run(c->rules->split, c->split, p, valid, ends_here, c->sink.piece, c->sink.arg, &used, e);
        pass_to(c, c->at + used);
        if (code || used < valid) return code;
        if (valid == n) return OK;
        if (next < 0 && !final) return OK;
        split_goes_on(c->split);
        c->sink.piece(c->sink.arg, c->buf + c->at, 1);
        pass_to(c, c->at + 1);
    }
    return OK;
}

/* Cuts what is between two tokens of the first pass, or its beginning, up to buf[end). */
static int cut_sentence(struct cutter *c, size_t end, bool final, struct err *e)
{
    for (;;) {
        struct hit h = pass_next(&c->left, c->buf, end, final);
        if (c->text_begins) pass_to(c, c->left.from);
        int code = cut_text(c, h.end, h.t || final, e);
        if (code || !h.t) return code;
        c->sink.token(c->sink.arg, h.t->id);
        pass_over(&c->left, &h);
        pass_to(c, h.stop);
        c->text_begins = true;
    }
}

/* The same with a normalizer in between. */
static int cut_normalised(struct cutter *c, size_t end, bool final, struct err *e)
{
    if (end == c->at && !(final && c->sentence_open)) return OK;
    str_clear(&c->normal);
    if (!c->sentence_open) {
        normalizer_begin(c->normalizer, c->origin > 0);
        c->inner->origin = 0;
    }
    int code = normalizer_feed(c->normalizer, c->buf + c->at, end - c->at, final, &c->normal, e);
    c->inner->origin += normalizer_origin(c->normalizer);
    c->sentence_open = !final;
    pass_to(c, end);
    pass_begin(&c->left, end);
    if (!code) code = cutter_feed(c->inner, str_text(&c->normal), c->normal.n, e);
    if (!code && final) code = cutter_end(c->inner, e);
    return code;
}

static int cut(struct cutter *c, bool final, struct err *e)
{
    for (;;) {
        struct hit h = pass_next(&c->raw, c->buf, c->n, final);
        if (c->sentence_begins) {
            pass_to(c, c->raw.from);
            pass_begin(&c->left, c->at);
            c->text_begins = true;
            c->sentence_begins = h.end == c->at;
        }
        int code = c->normalizer ? cut_normalised(c, h.end, h.t || final, e) : cut_sentence(c, h.end, h.t || final, e);
        if (code || !h.t) return code;
        c->sink.token(c->sink.arg, h.t->id);
        pass_over(&c->raw, &h);
        pass_to(c, h.stop);
        c->sentence_begins = true;
    }
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Moves what is not decided to the front. */
static void compact(struct cutter *c)
{
    size_t needed = least(c->at, least(c->raw.scan, c->left.scan));
    if (needed <= HISTORY + 1) return;
    size_t gone = needed - HISTORY - 1, *const all[] = {&c->raw.begin, &c->raw.from,  &c->raw.scan, &c->left.begin,
                                                        &c->left.from, &c->left.scan, &c->at,       &c->n};
    memmove(c->buf, c->buf + gone, c->n - gone);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = *all[i] > gone ? *all[i] - gone : 1;
}

static int feed(struct cutter *c, const unsigned char *p, size_t n, struct err *e)
{
    while (n > 0) {
        size_t step = n < STEP ? n : STEP;
        if (c->n + step > c->room) compact(c);
        GROW(c->buf, c->n, c->room, step);
        memcpy(c->buf + c->n, p, step);
        c->n += step;
        p += step;
        n -= step;
        int code = cut(c, false, e);
        if (code) return code;
    }
    return OK;
}

/* Bytes of what begins like a character at p[0..n) and cannot become one: one U+FFFD stands for them. */
static size_t spoilt(const unsigned char *p, size_t n)
{
    size_t k = 1;
    while (k < n && utf8_char(p, k + 1) < 0) k++;
    return k;
}

/* Adds text with U+FFFD for what is not UTF-8; what may still become a character is held. */
static void repair(struct cutter *c, const unsigned char *p, size_t n, bool final, struct str *out)
{
    static const char stand_in[] = "\xEF\xBF\xBD";
    unsigned char join[8];
    while (n || (final && c->n_held)) {
        if (c->n_held) { /* byte by byte until it is decided */
            memcpy(join, c->held, c->n_held);
            if (n) join[c->n_held] = *p;
            size_t have = c->n_held + (n ? 1 : 0);
            int len = utf8_char(join, have);
            if (len < 0 && n) {
                c->held[c->n_held++] = *p++;
                n--;
            } else if (len > 0) {
                str_add(out, join, have);
                c->n_held = 0;
                p++;
                n--;
            } else {
                str_puts(out, stand_in);
                c->n_held = 0;
            }
            continue;
        }
        size_t valid = utf8_run(p, n);
        str_add(out, p, valid);
        p += valid;
        n -= valid;
        if (!n) continue;
        if (utf8_char(p, n) < 0) {
            memcpy(c->held, p, n);
            c->n_held = n;
            n = 0;
            continue;
        }
        size_t bad = spoilt(p, n);
        str_puts(out, stand_in);
        p += bad;
        n -= bad;
    }
}

static int feed_repaired(struct cutter *c, const unsigned char *p, size_t n, bool final, struct err *e)
{
    struct str text = {0};
    int code = OK;
    do {
        size_t step = n < STEP ? n : STEP;
        str_clear(&text);
        repair(c, p, step, final && step == n, &text);
        code = feed(c, (const unsigned char *)str_text(&text), text.n, e);
        p += step;
        n -= step;
    } while (n && !code);
    str_free(&text);
    return code;
}

int cutter_feed(struct cutter *c, const void *text, size_t n, struct err *e)
{
    return c->rules->repairs ? feed_repaired(c, text, n, false, e) : feed(c, text, n, e);
}

int cutter_end(struct cutter *c, struct err *e)
{
    int code = c->n_held ? feed_repaired(c, (const unsigned char *)"", 0, true, e) : OK;
    if (!code) code = cut(c, true, e);
    if (code && c->inner) begin_document(c->inner);
    begin_document(c);
    return code;
}
