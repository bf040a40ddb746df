/* SPDX-License-Identifier: Apache-2.0 */
/* One sequence of decoding.h: the prompt in chunks, then one token at a time. Cost per token: every parameter is read
 * once, plus the cache. */
#include "run/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "run/decoding.h"

struct generator {
    struct decoding *d;
    int sequence;
    bool owned;       /* d */
    int64_t pictures; /* that a prompt has */
};

int generator_new(struct generator **out, struct weights *w, struct device *dev, int threads, int64_t room,
                  enum dtype dtype, struct err *e)
{
    struct decoding_options o = {.threads = threads, .dtype = dtype, .positions = room, .reuse_not = "one text"};
    struct decoding *d;
    *out = NULL;
    int rc = decoding_new(&d, w, dev, &o, e);
    if (rc) return rc;
    rc = generator_on(out, d, e);
    (*out)->owned = true;
    return rc;
}

int generator_on(struct generator **out, struct decoding *d, struct err *e)
{
    *out = NULL;
    int sequence = decoding_open(d);
    if (sequence < 0) return err_set(e, ERR_REQUEST, "all %lld sequences are in use", (long long)decoding_sequences(d));
    *out = xcalloc(1, sizeof **out);
    **out = (struct generator){.d = d, .sequence = sequence};
    return OK;
}

int generator_see(struct generator *g, const float *pixels, int64_t n, struct err *e)
{
    int rc = decoding_pictures(g->d, pixels, n, e);
    if (!rc) g->pictures = n;
    return rc;
}

/* A prompt's tokens; of a picture as many as it has patches. */
static int encode_prompt(const struct generator *g, const struct tokenizer *t, const char *prompt, struct tokens *ids,
                         struct err *e)
{
    static const char mark[] = "<image>";
    const struct vision_config *v = &decoding_model(g->d)->vision;
    int64_t pictures = 0;
    int rc = OK;
    for (const char *at = prompt; !rc;) {
        const char *hit = g->pictures ? strstr(at, mark) : NULL;
        size_t n = hit ? (size_t)(hit - at) : strlen(at);
        if (n) rc = tokenizer_encode(t, at, n, ids, e);
        if (!hit) break;
        for (int64_t i = 0; i < vision_patches(v); i++) tokens_push(ids, (int32_t)v->token);
        pictures++;
        at = hit + strlen(mark);
    }
    if (!rc && pictures != g->pictures)
        rc = err_set(e, ERR_REQUEST, "the prompt names %lld pictures (%s), and %lld are given", (long long)pictures,
                     mark, (long long)g->pictures);
    return rc;
}

void generator_free(struct generator *g)
{
    if (!g) return;
    if (g->owned) decoding_free(g->d);
    else decoding_close(g->d, g->sequence);
    xfree(g);
}

int64_t generator_room(const struct generator *g) { return decoding_room(g->d); }
void generator_reset(struct generator *g) { decoding_cut(g->d, g->sequence, 0); }

int generator_feed(struct generator *g, const int32_t *ids, int64_t n, const float **logits_V, struct err *e)
{
    int64_t most = decoding_rows(g->d), fed = decoding_fed(g->d, g->sequence);
    if (n > 0 && fed + n > generator_room(g))
        return err_set(e, ERR_REQUEST, "%lld tokens do not fit after %lld: the model has %lld positions", (long long)n,
                       (long long)fed, (long long)generator_room(g));
    do {
        int64_t now = n < most ? n : most;
        int rc = decoding_step(g->d, &(struct decoding_part){g->sequence, ids, now, 1}, 1, logits_V, e);
        if (rc) return rc;
        ids += now;
        n -= now;
    } while (n > 0);
    return OK;
}

/* The sampling loop; the prompt was fed and logits are its last token's. What a token looks like may hang on its being
 * the first, so the decoder gets the prompt before. */
static int continue_text(struct generator *g, const struct tokenizer *t, const struct tokens *prompt,
                         const float *logits, int64_t max_tokens, const struct sample_spec *spec,
                         generate_emit_fn *emit, void *ctx, struct generate_result *r, struct err *e)
{
    struct sampler *s = sampler_new(decoding_model(g->d)->vocab);
    struct decoder dec = {.t = t};
    struct str piece = {0};
    int rc = OK;
    for (int64_t i = 0; i < prompt->n; i++)
        if (prompt->ids[i] < tokenizer_vocab(t)) decoder_push(&dec, prompt->ids[i], &piece);
    dec.n_held = 0;
    r->stopped = "length";
    while (!rc && r->tokens < max_tokens) {
        int64_t id;
        rc = sample_token(s, spec, logits, decoding_fed(g->d, g->sequence), &id, e);
        if (rc) break;
        if (decoding_is_end(g->d, t, id)) {
            r->stopped = "end of text";
            break;
        }
        r->tokens++;
        str_clear(&piece);
        decoder_push(&dec, (int32_t)id, &piece);
        if (piece.n && !emit(ctx, piece.p, piece.n)) {
            r->stopped = "stopped";
            break;
        }
        if (r->tokens == max_tokens) break;
        if (decoding_fed(g->d, g->sequence) == generator_room(g)) {
            r->stopped = "cache full";
            break;
        }
        int32_t next = (int32_t)id;
        rc = generator_feed(g, &next, 1, &logits, e);
    }
    str_clear(&piece);
    decoder_end(&dec, &piece);
    if (!rc && piece.n) (void)emit(ctx, piece.p, piece.n);
    str_free(&piece);
    sampler_free(s);
    return rc;
}

int generate(struct generator *g, const struct tokenizer *t, const char *prompt, int64_t max_tokens,
             const struct sample_spec *spec, generate_emit_fn *emit, void *ctx, struct generate_result *r,
             struct err *e)
{
    memset(r, 0, sizeof *r);
    int rc = sample_check(spec, e);
    struct tokens ids = {0};
    if (!rc) rc = encode_prompt(g, t, prompt, &ids, e);
    if (!rc && !ids.n) { /* an empty prompt starts a document */
        int32_t start = tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_eos(t);
        if (start >= 0) tokens_push(&ids, start);
    }
    const float *logits = NULL;
    double from = clock_now_s();
    r->prompt_tokens = ids.n;
    generator_reset(g);
    if (!rc && ids.n > generator_room(g))
        rc = err_set(e, ERR_REQUEST, "the prompt is %lld tokens long, and the model has %lld positions; shorten it",
                     (long long)ids.n, (long long)generator_room(g));
    if (!rc) rc = generator_feed(g, ids.ids, ids.n, &logits, e);
    r->prompt_s = clock_now_s() - from;
    from = clock_now_s();
    if (!rc) rc = continue_text(g, t, &ids, logits, max_tokens, spec, emit, ctx, r, e);
    r->tokens_s = clock_now_s() - from;
    tokens_free(&ids);
    return rc;
}
