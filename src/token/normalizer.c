/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer.c: steps as streams. A step gets valid text, hands on what is certain and says how much of its input that
 * took; the rest comes again with more behind it. What a step does to one character is a function of that character;
 * only normal forms, replacements, white space at the ends and charsmaps look further.
 */
#include "token/normalizer.h"

#include <string.h>

#include "base/mem.h"
#include "text/unicode_legacy.h"
#include "text/utf8.h"
#include "token/token_bounds.h"
#include "token/byte_level.h"
#include "token/charsmap.h"
#include "token/matcher.h"

/* Which characters come from the text's first one, as the reference has it: it keeps for every character a place in the
 * text. One that a step puts in place of another has that one's place, one that it puts in has the place of the
 * character of the step's input before it, and places never decrease; so those of the first are always at the
 * beginning, and counting stops with the first that is not. */
struct origin {
    const int64_t *given; /* how many characters of the step's input have the first one's place, as far as they came */
    int64_t made, taken;  /* and how many that came out; characters of the input that were used up */
    bool open;            /* still counting */
};

/* A character comes out. change: 0, one for one; -n, one for 1 + n; 1, one more. */
static bool origin_made(struct origin *o, int change)
{
    if (!o->open) return false;
    int64_t place = change > 0 ? o->taken - 1 : o->taken;
    if (change <= 0) o->taken += 1 - change;
    o->open = place < *o->given;
    o->made += o->open;
    return o->open;
}

static bool form_told(void *arg, int change) { return origin_made(arg, change); }

static int64_t characters(const void *p, size_t n)
{
    const unsigned char *at = p;
    int64_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += (at[i] & 0xC0) != 0x80;
    return chars;
}

/* Characters that stay as they are; text that was put in behind what was used up. */
static void origin_kept(struct origin *o, const void *p, size_t n)
{
    for (int64_t i = o->open ? characters(p, n) : 0; i > 0 && o->open; i--) (void)origin_made(o, 0);
}

static void origin_put(struct origin *o, const void *p, size_t n)
{
    for (int64_t i = o->open ? characters(p, n) : 0; i > 0 && o->open; i--) (void)origin_made(o, 1);
}

/* One character of the input became what is in out behind `before`, or nothing. */
static void origin_changed(struct origin *o, const struct str *out, size_t before)
{
    if (!o->open) return;
    int64_t made = characters(str_text(out) + before, out->n - before);
    if (made == 0) o->taken++;
    for (int64_t i = 0; i < made && o->open; i++) (void)origin_made(o, i > 0);
}

/* A step at work on one text. */
struct stream {
    const struct norm_step *step;
    struct str in;            /* what is not taken yet */
    bool begun;               /* something of the text was handed on */
    bool matched;             /* REPLACE_PATTERN: a match ends where `in` begins */
    bool fast;                /* ascii[] says what becomes of ASCII characters, one by one */
    bool same;                /* and they stay as they are */
    unsigned char ascii[128]; /* GONE: dropped; OTHER: something else */
    struct origin origin;
    size_t made; /* bytes handed on, of this text */
};
enum { GONE = 0x80, OTHER };

struct normalizer_run {
    const struct normalizer *z;
    struct stream *streams;
    struct matcher_work *matching; /* where a step has an expression */
    bool whole;                    /* one of them needs a text whole */
    size_t given;                  /* bytes of this text */
    int64_t first;                 /* characters of the text that are its first: 1; 0: nobody asks */
    int64_t told;                  /* of the origin's characters that came out */
};

/* What a step is called with: valid text p[0..n); nothing follows it directly (stands), or at all (ends). */
struct part {
    const unsigned char *p;
    size_t n;
    bool stands, ends;
    struct str *out;
    size_t limit; /* of out->n */
    bool *burst;  /* it would have been passed: what was made is of no use */
    struct err *e;
};

/* What a file says may be put in place of a character can be long: asked before it is written. */
static bool fits(const struct part *x, size_t n)
{
    bool room = x->out->n <= x->limit && n <= x->limit - x->out->n;
    if (!room) *x->burst = true;
    return room;
}

/* -- characters one by one ----------------------------------------------------------------------------------- */

static bool dropped(enum norm_kind kind, uint32_t c)
{
    if (kind == NORM_STRIP_ACCENTS) return unicode_in(LEGACY_MARK, c);
    if (kind == NORM_BERT_MARKS) return unicode_in(LEGACY_NONSPACING, c);
    if (kind == NORM_BERT_CLEAN) return c == 0 || c == 0xFFFD || unicode_in(LEGACY_CONTROL, c);
    if (kind == NORM_NMT)
        return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    return false;
}

static bool nmt_space(uint32_t c)
{
    return c == '\t' || c == '\n' || c == 0xC || c == '\r' || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

/* The reference's blocks of ideographs; 2B820..2B91F are not among them. */
static bool is_ideograph(uint32_t c)
{
    static const struct range blocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                                          {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (c >= blocks[i].lo && c <= blocks[i].hi) return true;
    return false;
}

static void put(struct str *out, uint32_t code)
{
    unsigned char utf8[4];
    str_add(out, utf8, (size_t)utf8_put(utf8, code));
}

static void change_char(enum norm_kind kind, const unsigned char *p, int len, uint32_t c, struct str *out)
{
    if (kind == NORM_LOWER) {
        put(out, c == 0x130 ? 'i' : unicode_lower_of(c));
        if (c == 0x130) put(out, 0x307);
    } else if (kind == NORM_BERT_CHINESE && is_ideograph(c)) {
        str_putc(out, ' ');
        str_add(out, p, (size_t)len);
        str_putc(out, ' ');
    } else if ((kind == NORM_BERT_CLEAN && utf8_space(p, (size_t)len)) || (kind == NORM_NMT && nmt_space(c))) {
        str_putc(out, ' ');
    } else if (kind == NORM_BYTE_LEVEL) {
        byte_level_write(out, p, (size_t)len);
    } else {
        str_add(out, p, (size_t)len);
    }
}

/* The same where ASCII characters that ASCII follows are looked up, all but what may be CR LF. */
static void look_at_charsmap(struct stream *s)
{
    for (unsigned c = 0; c < 128; c++) {
        unsigned char byte = (unsigned char)c;
        size_t n;
        const char *text = charsmap_find(s->step->charsmap, &byte, 1, &n);
        if (!text) s->ascii[c] = byte;
        else s->ascii[c] = n == 0 ? GONE : n == 1 && (unsigned char)*text < 128 ? (unsigned char)*text : OTHER;
    }
    s->ascii['\r'] = OTHER;
}

/* Fills ascii[] for a step that changes ASCII characters to ASCII characters, or drops them. */
static void look_at_ascii(struct stream *s)
{
    static const enum norm_kind kinds[] = {NORM_LOWER,        NORM_STRIP_ACCENTS, NORM_BERT_CLEAN,
                                           NORM_BERT_CHINESE, NORM_BERT_MARKS,    NORM_NMT};
    enum norm_kind kind = s->step->kind;
    struct str became = {0};
    if (kind == NORM_CHARSMAP) look_at_charsmap(s);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) s->fast = s->fast || kind == kinds[i];
    s->same = s->fast;
    for (unsigned c = 0; c < 128 && s->fast; c++) {
        unsigned char byte = (unsigned char)c;
        str_clear(&became);
        if (!dropped(kind, c)) change_char(kind, &byte, 1, c, &became);
        CHECK(became.n <= 1, "U+%04X becomes %zu bytes", c, became.n);
        s->ascii[c] = became.n ? (unsigned char)became.p[0] : GONE;
        s->same = s->same && s->ascii[c] == c;
    }
    str_free(&became);
}

/* ASCII that is not asked for its origin. */
static void change_ascii(const struct stream *s, const unsigned char *p, size_t n, struct str *out)
{
    if (s->same) {
        str_add(out, p, n);
        return;
    }
    GROW(out->p, out->n, out->room, n + 1);
    unsigned char *to = (unsigned char *)out->p + out->n;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = s->ascii[p[i]];
        *to = c;
        to += c < GONE;
    }
    *to = 0;
    out->n = (size_t)(to - (unsigned char *)out->p);
}

static size_t run_chars(struct stream *s, const struct part *x)
{
    int len;
    for (size_t at = 0; at < x->n; at += (size_t)len) {
        size_t ascii = s->fast && !s->origin.open ? utf8_ascii(x->p + at, x->n - at) : 0;
        if (ascii) {
            change_ascii(s, x->p + at, ascii, x->out);
            at += ascii;
            len = 0;
            continue;
        }
        uint32_t c = utf8_code(x->p + at, &len);
        size_t before = x->out->n;
        if (!dropped(s->step->kind, c)) change_char(s->step->kind, x->p + at, len, c, x->out);
        origin_changed(&s->origin, x->out, before);
    }
    return x->n;
}

/* -- the others ---------------------------------------------------------------------------------------------- */

static size_t run_strip(struct stream *s, const struct part *x)
{
    size_t at = 0;
    int len;
    while (s->step->left && !s->begun && at < x->n && (len = utf8_space(x->p + at, x->n - at))) {
        at += (size_t)len;
        s->origin.taken++;
    }
    size_t end = s->step->right ? utf8_space_before(x->p, x->n) : x->n;
    if (end < at) end = at;
    if (x->stands && !x->ends) end = x->n; /* a bad byte follows: this is not the end */
    if (end > at) s->begun = true;
    str_add(x->out, x->p + at, end - at);
    origin_kept(&s->origin, x->p + at, end - at);
    return x->stands ? x->n : end;
}

static size_t run_prepend(struct stream *s, const struct part *x)
{
    const struct str *content = &s->step->content;
    size_t first = 0;
    if (!s->begun && x->n &&
        fits(x, content->n)) { /* the first character of the content takes the place of the text's first */
        str_add(x->out, str_text(content), content->n);
        (void)origin_made(&s->origin, 0);
        for (int64_t i = characters(content->p, content->n); i > 0; i--) (void)origin_made(&s->origin, 1);
        first = (size_t)utf8_char(x->p, x->n);
    }
    s->begun = s->begun || x->n;
    str_add(x->out, x->p, x->n);
    origin_kept(&s->origin, x->p + first, x->n - first);
    return x->n;
}

/* A match p[from..to) gives way to the content. False: it does not fit. */
static bool replace(struct stream *s, const struct part *x, size_t from, size_t to)
{
    const struct str *content = &s->step->content;
    if (!fits(x, content->n)) return false;
    str_add(x->out, str_text(content), content->n);
    if (s->origin.open) s->origin.taken += characters(x->p + from, to - from);
    origin_put(&s->origin, content->p, content->n);
    return true;
}

static void keep(struct stream *s, const struct part *x, size_t from, size_t to)
{
    str_add(x->out, x->p + from, to - from);
    origin_kept(&s->origin, x->p + from, to - from);
}

static size_t run_replace(struct stream *s, const struct part *x)
{
    size_t text_n = s->step->text.n, at = 0;
    const unsigned char *hit;
    while (x->n - at >= text_n && (hit = memmem(x->p + at, x->n - at, s->step->text.p, text_n))) {
        size_t from = (size_t)(hit - x->p);
        keep(s, x, at, from);
        if (!replace(s, x, from, from + text_n)) return x->n;
        at = from + text_n;
    }
    size_t left = x->stands || text_n == 0 ? 0 : text_n - 1, end = x->n - at > left ? x->n - left : at;
    if (end < x->n) end = utf8_cut(x->p, end);
    if (end < at) end = at;
    keep(s, x, at, end);
    return end;
}

static int run_pattern(struct normalizer_run *r, struct stream *s, const struct part *x, size_t *used)
{
    bool whole = matcher_needs_whole_text(s->step->pattern);
    size_t at = 0, search = 0, last_end = s->matched ? 0 : SIZE_MAX;
    *used = 0;
    if (whole && !x->stands) {
        if (x->n <= NORMALIZER_TEXT_MAX) return OK;
        return err_set(x->e, ERR_REQUEST,
                       "a text of more than %d MiB: the normalizer's regular expression needs it whole; cut the text "
                       "into "
                       "documents",
                       NORMALIZER_TEXT_MAX >> 20);
    }
    while (search < x->n) {
        struct found f;
        int code = matcher_find(s->step->pattern, r->matching, x->p, x->n, search, x->stands, &f, x->e);
        if (code) return code;
        size_t far = f.match ? f.to : x->n;
        if ((f.match || f.undecided) && far - f.from > NORMALIZER_MATCH_MAX) { /* as if the text ended there */
            size_t end = utf8_cut(x->p, f.from + NORMALIZER_MATCH_MAX);
            code = matcher_find(s->step->pattern, r->matching, x->p, end, f.from, true, &f, x->e);
            if (code) return code;
            if (!f.match) f = (struct found){.match = true, .from = end, .to = end};
        }
        if (!f.match) { /* what is before a place that is not decided stays as it is */
            size_t sure = f.undecided ? f.from : x->n;
            keep(s, x, at, sure);
            at = sure;
            break;
        }
        if (f.from == f.to && f.from == last_end) { /* no empty match directly behind a match */
            int len;
            if (f.from == x->n) break;
            (void)utf8_code(x->p + f.from, &len);
            search = f.from + (size_t)len;
            continue;
        }
        keep(s, x, at, f.from);
        if (!replace(s, x, f.from, f.to)) break;
        at = search = last_end = f.to;
    }
    *used = at;
    s->matched = at == last_end && !x->stands;
    if (!x->stands) return OK;
    keep(s, x, at, x->n);
    *used = x->n;
    return OK;
}

/* ASCII characters that ASCII follows are clusters of their own, but for CR LF: as many of these as are looked up in
 * ascii[]; never the last of the text. */
static size_t map_ascii(const struct stream *s, const unsigned char *p, size_t n, struct str *out)
{
    size_t run = utf8_ascii(p, n), i = 0;
    if (run < 2) return 0;
    GROW(out->p, out->n, out->room, run);
    unsigned char *to = (unsigned char *)out->p + out->n;
    for (unsigned char c; i + 1 < run && (c = s->ascii[p[i]]) != OTHER; i++) {
        *to = c;
        to += c < GONE;
    }
    *to = 0;
    out->n = (size_t)(to - (unsigned char *)out->p);
    return i;
}

enum { DROPS_MAX = 1024 }; /* looked at in a row */

/* How many characters are dropped from p[at] on, before one that is not; p[cluster_end], at or behind `at`, begins a
 * cluster. False: more text may drop more. */
static bool drops_behind(const struct stream *s, const struct part *x, size_t at, size_t cluster_end, int64_t *drops)
{
    size_t text_n;
    int len;
    for (*drops = 0; at < x->n && *drops < DROPS_MAX; at += (size_t)len, ++*drops) {
        if (at == cluster_end) {
            size_t cluster = grapheme_end(x->p + at, x->n - at, x->stands);
            if (!cluster) return false;
            const char *text = cluster < 6 ? charsmap_find(s->step->charsmap, x->p + at, cluster, &text_n) : NULL;
            if (text && text_n) return true;
            cluster_end = at + cluster;
            if (text) {
                *drops += characters(x->p + at, cluster) - 1;
                len = (int)cluster;
                continue;
            }
        }
        (void)utf8_code(x->p + at, &len);
        if (!charsmap_find(s->step->charsmap, x->p + at, (size_t)len, &text_n) || text_n) return true;
    }
    return x->stands || *drops >= DROPS_MAX;
}

/* p[at..end), in the cluster that ends at cluster_end, became text, in the reference's count: character for character,
 * the rest put in, or dropped with the last one that came out; so is what is dropped behind it. What is dropped before
 * anything came out is not counted at all there. */
static void origin_mapped(struct stream *s, const struct part *x, size_t at, size_t end, size_t cluster_end,
                          const void *text, size_t text_n)
{
    struct origin *o = &s->origin;
    if (!o->open || !text_n) return;
    int64_t had = characters(x->p + at, end - at), has = characters(text, text_n), drops;
    (void)drops_behind(s, x, end, cluster_end, &drops);
    for (int64_t i = 0; i < has && o->open; i++) {
        int64_t change = i >= had;
        if (i + 1 == has) change -= (had > has ? had - has : 0) + drops;
        (void)origin_made(o, (int)change);
    }
}

/* Whole clusters of up to 5 bytes are looked for first, then their characters: the reference's way. */
static size_t run_charsmap(struct stream *s, const struct part *x)
{
    size_t at = 0, cluster, text_n;
    while (at < x->n) {
        if (!s->origin.open) at += map_ascii(s, x->p + at, x->n - at, x->out);
        cluster = grapheme_end(x->p + at, x->n - at, x->stands);
        int64_t drops;
        if (!cluster || (s->origin.open && !drops_behind(s, x, at + cluster, at + cluster, &drops))) break;
        const char *text = cluster < 6 ? charsmap_find(s->step->charsmap, x->p + at, cluster, &text_n) : NULL;
        size_t end = at + cluster;
        if (text && !fits(x, text_n)) return x->n;
        if (text) {
            str_add(x->out, text, text_n);
            origin_mapped(s, x, at, end, end, text, text_n);
            at = end;
        }
        while (at < end) {
            int len;
            (void)utf8_code(x->p + at, &len);
            text = charsmap_find(s->step->charsmap, x->p + at, (size_t)len, &text_n);
            const void *became = text ? (const void *)text : x->p + at;
            if (!text) text_n = (size_t)len;
            if (!fits(x, text_n)) return x->n;
            str_add(x->out, became, text_n);
            origin_mapped(s, x, at, at + (size_t)len, end, became, text_n);
            at += (size_t)len;
        }
    }
    return at;
}

static int run_step(struct normalizer_run *r, struct stream *s, const struct part *x, size_t *used)
{
    switch (s->step->kind) {
    case NORM_FORM:
        *used = normal_form_part_told(x->out, s->step->form, x->p, x->n, x->stands, s->origin.open ? form_told : NULL,
                                      &s->origin);
        return OK;
    case NORM_PREPEND: *used = run_prepend(s, x); return OK;
    case NORM_STRIP: *used = run_strip(s, x); return OK;
    case NORM_REPLACE: *used = run_replace(s, x); return OK;
    case NORM_REPLACE_PATTERN: return run_pattern(r, s, x, used);
    case NORM_CHARSMAP: *used = run_charsmap(s, x); return OK;
    default: *used = run_chars(s, x); return OK;
    }
}

/* -- running ------------------------------------------------------------------------------------------------- */

/* How many bytes a step may have made of this text. What is brought together whole is kept at every step. */
static size_t allowed(const struct normalizer_run *r)
{
    enum { WHOLE_MAX = 4 * NORMALIZER_TEXT_MAX };
    size_t most = r->given < SIZE_MAX / GROWTH_MAX - GROWTH_FLAT ? r->given * GROWTH_MAX + GROWTH_FLAT : SIZE_MAX;
    return r->whole && most > WHOLE_MAX ? WHOLE_MAX : most;
}

static int too_much(const struct normalizer_run *r, const struct stream *s, struct err *e)
{
    return err_set(
        e, ERR_REQUEST,
        "the tokenizer's normalizer, step %d of %d, makes more than %zu bytes of a text of %zu; no more than "
        "%d times a text and %d bytes (of one that is needed whole, %d MiB) are made: is this tokenizer.json "
        "what it should be?",
        (int)(s - r->streams) + 1, r->z->n, allowed(r), r->given, GROWTH_MAX, GROWTH_FLAT,
        4 * (NORMALIZER_TEXT_MAX >> 20));
}

/* Everything of s->in that is certain, run by run of valid text. */
static int advance(struct normalizer_run *r, struct stream *s, bool final, struct str *out, struct err *e)
{
    const unsigned char *p = (const unsigned char *)str_text(&s->in);
    size_t n = s->in.n, at = 0, before = out->n, most = allowed(r);
    size_t left = most > s->made ? most - s->made : 0, limit = left < SIZE_MAX - before ? before + left : SIZE_MAX;
    bool burst = false;
    int code = OK;
    while (at < n) {
        size_t valid = utf8_run(p + at, n - at), used = 0;
        int next = at + valid < n ? utf8_char(p + at + valid, n - at - valid) : -1;
        bool ends = final && at + valid == n;
        struct part x = {.p = p + at,
                         .n = valid,
                         .stands = next == 0 || final,
                         .ends = ends,
                         .out = out,
                         .limit = limit,
                         .burst = &burst,
                         .e = e};
        if (valid) code = run_step(r, s, &x, &used);
        if (!code && (burst || out->n > limit)) return too_much(r, s, e);
        at += used;
        if (code || used < valid || at == n || (next < 0 && !final)) break;
        if (s->step->kind == NORM_PREPEND && !s->begun) str_add(out, str_text(&s->step->content), s->step->content.n);
        if (s->step->kind == NORM_BYTE_LEVEL) byte_level_write(out, p + at, 1);
        else str_add(out, p + at, 1);
        s->begun = true;
        (void)origin_made(&s->origin, 0);
        at++;
    }
    if (at) {
        memmove(s->in.p, s->in.p + at, n - at);
        s->in.n = n - at;
        s->in.p[s->in.n] = 0;
    }
    s->made += out->n - before;
    return !code && out->n > limit ? too_much(r, s, e) : code;
}

int normalizer_feed(struct normalizer_run *r, const void *p, size_t n, bool final, struct str *out, struct err *e)
{
    int n_steps = r->z->n, code = OK;
    r->given += n;
    str_add(n_steps ? &r->streams[0].in : out, p, n);
    for (int i = 0; i < n_steps && !code; i++)
        code = advance(r, &r->streams[i], final, i + 1 < n_steps ? &r->streams[i + 1].in : out, e);
    return code;
}

void normalizer_begin(struct normalizer_run *r, bool tracked)
{
    r->first = tracked;
    r->told = 0;
    r->given = 0;
    for (int i = 0; i < r->z->n; i++) {
        struct stream *s = &r->streams[i];
        str_clear(&s->in);
        s->begun = s->matched = false;
        s->made = 0;
        s->origin = (struct origin){.given = i ? &r->streams[i - 1].origin.made : &r->first, .open = tracked};
    }
}

int64_t normalizer_origin(struct normalizer_run *r)
{
    int64_t all = r->z->n ? r->streams[r->z->n - 1].origin.made : r->first, fresh = all - r->told;
    r->told = all;
    return fresh;
}

struct normalizer_run *normalizer_run_new(const struct normalizer *z)
{
    struct normalizer_run *r = xcalloc(1, sizeof *r);
    r->z = z;
    r->streams = xcalloc((size_t)z->n + 1, sizeof *r->streams);
    for (int i = 0; i < z->n; i++) {
        r->streams[i].step = &z->steps[i];
        look_at_ascii(&r->streams[i]);
        if (!z->steps[i].pattern) continue;
        if (!r->matching) r->matching = matcher_work_new();
        r->whole = r->whole || matcher_needs_whole_text(z->steps[i].pattern);
    }
    return r;
}

void normalizer_run_free(struct normalizer_run *r)
{
    if (!r) return;
    for (int i = 0; i < r->z->n; i++) str_free(&r->streams[i].in);
    matcher_work_free(r->matching);
    xfree(r->streams);
    xfree(r);
}

void norm_step_free(struct norm_step *s)
{
    str_free(&s->text);
    str_free(&s->content);
    matcher_free(s->pattern);
    charsmap_free(s->charsmap);
}

void normalizer_add(struct normalizer *z, struct norm_step step)
{
    GROW(z->steps, z->n, z->room, 1);
    z->steps[z->n++] = step;
}

void normalizer_free(struct normalizer *z)
{
    if (!z) return;
    for (int i = 0; i < z->n; i++) norm_step_free(&z->steps[i]);
    xfree(z->steps);
    xfree(z);
}
