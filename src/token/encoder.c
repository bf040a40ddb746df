/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.c: text → ids. The byte tokenizer widens bytes; the others cut (cutter.h), and a row per kind says what
 * becomes of a piece.
 */
#include "base/err.h"
#include "base/mem.h"
#include "token/cutter.h"

struct encoder {
    const struct tokenizer *t;
    struct cutter *cutter;
    struct bpe_work *bytes; /* what the tokenizer's kind works with: one of these */
    struct char_bpe_work *chars;
    struct unigram_work *unigram;
    struct token_cache *words;
    struct str scratch;
    struct tokens *out; /* during a call */
};

static void take_bytes(void *arg, const unsigned char *p, size_t n)
{
    struct encoder *c = arg;
    bpe_encode(&c->t->bpe, c->bytes, p, n, c->out);
}

static void take_chars(void *arg, const unsigned char *p, size_t n)
{
    struct encoder *c = arg;
    char_bpe_encode(&c->t->chars, c->chars, p, n, c->out);
}

static void take_unigram(void *arg, const unsigned char *p, size_t n)
{
    struct encoder *c = arg;
    unigram_encode(c->t->unigram, c->unigram, p, n, c->out);
}

static void take_word(void *arg, const unsigned char *p, size_t n)
{
    struct encoder *c = arg;
    word_piece_encode(&c->t->words, c->words, &c->scratch, p, n, c->out);
}

static split_piece_fn *const take_piece[] = {[TOKENIZER_BPE] = take_bytes,
                                             [TOKENIZER_CHAR_BPE] = take_chars,
                                             [TOKENIZER_UNIGRAM] = take_unigram,
                                             [TOKENIZER_WORD_PIECE] = take_word,
                                             [TOKENIZER_WORD_LEVEL] = take_word};

static void take_token(void *arg, int32_t id)
{
    struct encoder *c = arg;
    tokens_push(c->out, id);
}

struct encoder *encoder_new(const struct tokenizer *t)
{
    struct encoder *c = xcalloc(1, sizeof *c);
    c->t = t;
    if (t->kind == TOKENIZER_BYTE) return c;
    c->cutter = cutter_new(&t->cut, (struct cutter_sink){.piece = take_piece[t->kind], .token = take_token, .arg = c});
    if (t->kind == TOKENIZER_BPE) c->bytes = bpe_work_new();
    if (t->kind == TOKENIZER_CHAR_BPE) c->chars = char_bpe_work_new();
    if (t->kind == TOKENIZER_UNIGRAM) c->unigram = unigram_work_new();
    if (take_piece[t->kind] == take_word) c->words = token_cache_new();
    return c;
}

void encoder_free(struct encoder *c)
{
    if (!c) return;
    cutter_free(c->cutter);
    bpe_work_free(c->bytes);
    char_bpe_work_free(c->chars);
    unigram_work_free(c->unigram);
    token_cache_free(c->words);
    str_free(&c->scratch);
    xfree(c);
}

int encoder_feed(struct encoder *c, const void *text, size_t n, struct tokens *out, struct err *e)
{
    if (c->cutter) {
        c->out = out;
        return cutter_feed(c->cutter, text, n, e);
    }
    const unsigned char *p = text;
    tokens_reserve(out, (int64_t)n);
    int32_t *ids = out->ids + out->n;
    for (size_t i = 0; i < n; i++) ids[i] = p[i];
    out->n += (int64_t)n;
    return OK;
}

int encoder_end(struct encoder *c, struct tokens *out, struct err *e)
{
    c->out = out;
    return c->cutter ? cutter_end(c->cutter, e) : OK;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, struct tokens *out, struct err *e)
{
    struct encoder *c = encoder_new(t);
    int code = encoder_feed(c, text, n, out, e);
    if (!code) code = encoder_end(c, out, e);
    encoder_free(c);
    return code;
}
