/* SPDX-License-Identifier: Apache-2.0 */
/* fim.c: cutting at characters needs text, so tokens are decoded, cut and tokenized again: a microsecond or so a token,
 * beside training. Rejected: cutting between tokens, which the paper found to fail where a person's cursor is inside a
 * word; and doing it once, when text is tokenized, where every epoch would ask for the same middles. */
#include "data/fim.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

struct fim_work {
    const struct fim *f;
    struct encoder *encoder;
    struct str text;
    struct tokens part[3]; /* prefix, middle, suffix */
    struct tokens scratch; /* of a part behind the mark; all parts one after the other */
    struct str again;      /* their text */
};

/* Stands before a text that goes on in the middle of one, where a tokenizer would put a space before it; its tokens
 * are dropped (as Code Llama's reference does it). */
static const char mark[] = "\xE2\x98\xBA"; /* U+263A */

static const struct {
    const char *prefix, *suffix, *middle;
} families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]"},
};

static int need(const struct tokenizer *t, const char *name, int32_t *id, struct err *e)
{
    *id = tokenizer_find(t, name, strlen(name));
    if (*id >= 0) return OK;
    return err_set(e, ERR_REQUEST, "data.fim: the tokenizer has no token \"%.100s\"; name those that it has", name);
}

static int by_name(struct fim *f, const struct fim_rule *r, struct err *e)
{
    if (!r->prefix || !r->suffix || !r->middle)
        return err_set(e, ERR_REQUEST, "data.fim: prefix, suffix and middle are named together, or none of them");
    int code = need(f->t, r->prefix, &f->prefix, e);
    if (!code) code = need(f->t, r->suffix, &f->suffix, e);
    return code ? code : need(f->t, r->middle, &f->middle, e);
}

/* Something is put before a text: its first token does not begin as the text does. */
static int find_lead(struct fim *f, struct err *e)
{
    struct tokens ids = {0};
    size_t n = 0;
    int code = tokenizer_encode(f->t, "a", 1, &ids, e);
    const char *piece = !code && ids.n ? tokenizer_piece(f->t, ids.ids[0], &n) : "a";
    f->leads = *piece != 'a';
    tokens_free(&ids);
    return code;
}

int fim_init(struct fim *f, const struct fim_rule *r, const struct tokenizer *t, uint64_t seed, struct err *e)
{
    *f = (struct fim){.t = t, .rate = r->rate, .spm_rate = r->spm_rate, .eos = tokenizer_eos(t), .seed = seed};
    if (r->rate == 0) return OK;
    int code = find_lead(f, e);
    if (code) return code;
    if (r->prefix || r->suffix || r->middle) return by_name(f, r, e);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!need(t, families[i].prefix, &f->prefix, NULL) && !need(t, families[i].suffix, &f->suffix, NULL) &&
            !need(t, families[i].middle, &f->middle, NULL))
            return OK;
    return err_set(e, ERR_REQUEST,
                   "data.fim: the tokenizer has no special tokens for it (such as %s, %s, %s); add them to its "
                   "tokenizer.json, name others (data.fim.prefix, .suffix, .middle), or data.fim.rate: 0",
                   families[0].prefix, families[0].suffix, families[0].middle);
}

struct fim_work *fim_work_new(const struct fim *f)
{
    struct fim_work *w = xcalloc(1, sizeof *w);
    w->f = f;
    w->encoder = encoder_new(f->t);
    return w;
}

void fim_work_free(struct fim_work *w)
{
    if (!w) return;
    encoder_free(w->encoder);
    str_free(&w->text);
    str_free(&w->again);
    for (int i = 0; i < 3; i++) tokens_free(&w->part[i]);
    tokens_free(&w->scratch);
    xfree(w);
}

/* Byte where character i begins; a byte that only goes on with a character begins none. */
static size_t character(const struct str *s, int64_t i)
{
    for (size_t at = 0; at < s->n; at++)
        if (((unsigned char)s->p[at] & 0xC0) != 0x80 && i-- == 0) return at;
    return s->n;
}

static int64_t characters(const struct str *s)
{
    int64_t n = 0;
    for (size_t at = 0; at < s->n; at++) n += ((unsigned char)s->p[at] & 0xC0) != 0x80;
    return n;
}

static int encode_text(struct fim_work *w, const char *text, size_t n, struct tokens *out, struct err *e)
{
    int code = encoder_feed(w->encoder, text, n, out, e);
    return code ? code : encoder_end(w->encoder, out, e);
}

/* Without what is put before a text. 1; 0: the mark's tokens cannot be told from those behind it; < 0. */
static int encode_going_on(struct fim_work *w, const char *text, size_t n, struct tokens *out, struct err *e)
{
    struct str marked = {0};
    struct tokens all = {0};
    str_puts(&marked, mark);
    str_add(&marked, text, n);
    w->scratch.n = 0;
    int code = encode_text(w, mark, sizeof mark - 1, &w->scratch, e);
    if (!code) code = encode_text(w, marked.p, marked.n, &all, e);
    int64_t k = w->scratch.n;
    bool told = !code && k && all.n >= k && !memcmp(all.ids, w->scratch.ids, to_size(k) * sizeof *all.ids);
    for (int64_t i = k; told && i < all.n; i++) tokens_push(out, all.ids[i]);
    tokens_free(&all);
    str_free(&marked);
    return code ? code : told;
}

/* Bytes [from, to) of the text as a part; begins: something was put before the text, and stays there. 1, 0, < 0. */
static int encode(struct fim_work *w, int part, size_t from, size_t to, bool begins, struct err *e)
{
    struct tokens *out = &w->part[part];
    out->n = 0;
    if (from == to) return 1;
    if (w->f->leads && !(begins && from == 0)) return encode_going_on(w, w->text.p + from, to - from, out, e);
    int code = encode_text(w, w->text.p + from, to - from, out, e);
    return code ? code : 1;
}

/* Does a document begin with what is put before a text? A piece of one may not. */
static bool is_led(const struct fim *f, int32_t id)
{
    static const char symbol[] = "\xE2\x96\x81"; /* U+2581 */
    size_t n;
    const char *piece = tokenizer_piece(f->t, id, &n);
    return (n && *piece == ' ') || (n >= 3 && !memcmp(piece, symbol, 3));
}

/* The parts, one after the other, are the text that was cut. Asked where something is put before texts. */
static bool is_whole(struct fim_work *w)
{
    if (!w->f->leads) return true;
    w->scratch.n = 0;
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0; i < w->part[p].n; i++) tokens_push(&w->scratch, w->part[p].ids[i]);
    str_clear(&w->again);
    tokenizer_decode(w->f->t, w->scratch.ids, w->scratch.n, true, &w->again);
    return w->again.n == w->text.n && !memcmp(str_text(&w->again), str_text(&w->text), w->text.n);
}

static int32_t *put(int32_t *at, const struct tokens *t, int64_t n)
{
    if (n) memcpy(at, t->ids, to_size(n) * sizeof *at);
    return at + n;
}

/* One document, of n tokens; u: its random numbers. */
static int apply_one(struct fim_work *w, const uint32_t u[4], int32_t *ids, int64_t n, struct err *e)
{
    const struct fim *f = w->f;
    const double whole = 4294967296.0;
    if (n < FIM_LEAST || u[0] / whole >= f->rate) return OK;
    str_clear(&w->text);
    tokenizer_decode(f->t, ids, n, true, &w->text);
    int64_t all = characters(&w->text) + 1;
    int64_t a = (int64_t)((uint64_t)u[2] * (uint64_t)all >> 32), b = (int64_t)((uint64_t)u[3] * (uint64_t)all >> 32);
    size_t from = character(&w->text, a < b ? a : b), to = character(&w->text, a < b ? b : a);
    bool led = f->leads && is_led(f, ids[0]);
    int got = encode(w, 0, 0, from, led, e);
    if (got > 0) got = encode(w, 1, from, to, led, e);
    if (got > 0) got = encode(w, 2, to, w->text.n, led, e);
    if (got <= 0 || !is_whole(w)) return got < 0 ? got : OK;
    const struct tokens *prefix = &w->part[0], *middle = &w->part[1], *suffix = &w->part[2];
    int64_t room = n - 3 - prefix->n - middle->n; /* for the suffix */
    if (room < 0 || room > suffix->n) return OK;
    *ids++ = f->prefix;
    if (u[1] / whole < f->spm_rate) {
        *ids++ = f->suffix;
        ids = put(ids, suffix, room);
        *ids++ = f->middle;
        ids = put(ids, prefix, prefix->n);
    } else {
        ids = put(ids, prefix, prefix->n);
        *ids++ = f->suffix;
        ids = put(ids, suffix, room);
        *ids++ = f->middle;
    }
    put(ids, middle, middle->n);
    return OK;
}

/* How many tokens at the beginning are the tokenizer's own. */
static int64_t begins_with(const struct tokenizer *t, const int32_t *ids, int64_t n)
{
    const struct tokens *begin = tokenizer_begin(t);
    bool all = begin->n && begin->n <= n && !memcmp(ids, begin->ids, to_size(begin->n) * sizeof *ids);
    return all ? begin->n : 0;
}

int fim_apply(struct fim_work *w, int64_t sample, int64_t first, int32_t *ids, int64_t n, struct err *e)
{
    uint64_t stream = rng_stream_at(rng_stream("data/fim"), (uint64_t)sample);
    int code = OK;
    for (int64_t from = 0, to; from < n && !code; from = to + 1, first++) {
        uint32_t u[4];
        for (to = from; to < n && ids[to] != w->f->eos; to++) {}
        rng_block(w->f->seed, stream, (uint64_t)first, u);
        int64_t text = from + begins_with(w->f->t, ids + from, to - from); /* what comes before a text stays there */
        code = apply_one(w, u, ids + text, to - text, e);
    }
    return code;
}
