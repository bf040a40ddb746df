/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.c: text → ids. The byte tokenizer widens bytes; BPE cuts (cutter.h) and merges (bpe.h). */
#include "base/mem.h"
#include "data/cutter.h"

struct encoder {
    const struct tokenizer *t;
    struct cutter *cutter;
    struct bpe_work *work;
    struct tokens *out; /* during a call */
};

static void take_piece(void *arg, const unsigned char *p, size_t n)
{
    struct encoder *c = arg;
    bpe_encode(&c->t->bpe, c->work, p, n, c->out);
}

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
    c->cutter = cutter_new(&t->cut, (struct cutter_sink){.piece = take_piece, .token = take_token, .arg = c});
    c->work = bpe_work_new();
    return c;
}

void encoder_free(struct encoder *c)
{
    if (!c) return;
    cutter_free(c->cutter);
    bpe_work_free(c->work);
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
