/* SPDX-License-Identifier: Apache-2.0 */
/* One sequence of decoding.h: the prompt in chunks, then one token at a time. Cost per token: every parameter is read
 * once, plus the cache. */
#include "decode/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/decoding.h"
#include "decode/speculative.h"

struct generator {
    struct decoding *d;
    int sequence;
    bool owned;       /* d */
    int64_t pictures; /* that a prompt has */
    struct decoding *draft;
    int64_t guesses; /* of a step; 0: a token a step */
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

int generator_speculate(struct generator *g, struct decoding *draft, int64_t guesses, struct err *e)
{
    struct speculative_options o = {.draft = draft, .guesses = guesses, .sample = {.top_p = 1}};
    struct speculative *s;
    int rc = speculative_new(&s, g->d, g->sequence, &o, e); /* whether it can be done is said before the first text */
    if (rc) return rc;
    speculative_free(s);
    g->draft = draft;
    g->guesses = guesses;
    return OK;
}

static void begin_document(const struct decoding *d, const struct tokenizer *t, struct tokens *ids)
{
    int32_t start = tokenizer_start(t, decoding_model(d)->vocab);
    if (!ids->n && start >= 0 && !decoding_reads(d)) tokens_push(ids, start);
}

int generate_ids(const struct decoding *d, const struct tokenizer *t, const char *prompt, struct tokens *ids,
                 struct err *e)
{
    int rc = tokenizer_encode_text(t, prompt, strlen(prompt), ids, e);
    if (!rc) begin_document(d, t, ids);
    return rc;
}

/* A prompt's tokens; of a picture as many as it has patches. */
static int encode_prompt(const struct generator *g, const struct tokenizer *t, const char *prompt, struct tokens *ids,
                         struct err *e)
{
    static const char mark[] = "<image>";
    const struct vision_config *v = &decoding_model(g->d)->vision;
    int64_t pictures = 0;
    int rc = tokenizer_encode_text(t, "", 0, ids, e); /* what comes before a text */
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
    if (n > 0) decoding_expect(g->d, g->sequence, fed + n);
    if (n > 0 && !fed) decoding_prompt(g->d, g->sequence, n);
    do {
        int64_t now = n < most ? n : most;
        int rc = decoding_step(g->d, &(struct decoding_part){g->sequence, ids, now, 1}, 1, logits_V, e);
        if (rc) return rc;
        ids += now;
        n -= now;
    } while (n > 0);
    return OK;
}

/* A text that is being written: its tokens, and those that are chosen and not told yet. */
struct writing {
    struct sampler *sampler;
    struct speculative *speculating; /* NULL: a token a step */
    const struct sample_spec *spec;
    struct tokens text;
    int32_t next[SPECULATIVE_MOST + 1];
    int64_t n, at; /* of next: how many there are, and are told */
};

/* The next tokens after the text, at most `most`; logits: of the text's last token where that was fed, else NULL. */
static int choose_next(struct generator *g, struct writing *x, const float *logits, int64_t most, struct err *e)
{
    int64_t id;
    int rc = OK;
    x->at = 0;
    if (!logits && x->speculating) return speculative_next(x->speculating, &x->text, most, x->next, &x->n, e);
    if (!logits) rc = generator_feed(g, x->text.ids + x->text.n - 1, 1, &logits, e);
    if (!rc) rc = sample_token(x->sampler, x->spec, logits, x->text.n, &id, e);
    if (rc) return rc;
    x->next[0] = (int32_t)id;
    x->n = 1;
    return OK;
}

/* The loop; the prompt was fed and logits are its last token's. What a token looks like may hang on its being the
 * first, so the decoder gets the prompt before. */
static int continue_text(struct generator *g, const struct tokenizer *t, struct writing *x, const float *logits,
                         int64_t max_tokens, generate_emit_fn *emit, void *ctx, struct generate_result *r,
                         struct err *e)
{
    struct decoder dec = {.t = t};
    struct str piece = {0};
    int rc = OK;
    if (!decoding_reads(g->d)) decoder_pass(&dec, x->text.ids, x->text.n);
    r->stopped = "length";
    while (!rc && r->tokens < max_tokens) {
        if (x->at == x->n) {
            rc = choose_next(g, x, logits, max_tokens - r->tokens, e);
            logits = NULL;
        }
        if (rc) break;
        int32_t id = x->next[x->at++];
        if (decoding_is_end(g->d, t, id)) {
            r->stopped = "end of text";
            break;
        }
        r->tokens++;
        str_clear(&piece);
        decoder_push(&dec, id, &piece);
        if (piece.n && !emit(ctx, piece.p, piece.n)) {
            r->stopped = "stopped";
            break;
        }
        if (r->tokens == max_tokens) break;
        if (x->text.n == generator_room(g)) {
            r->stopped = "cache full";
            break;
        }
        tokens_push(&x->text, id);
    }
    str_clear(&piece);
    decoder_end(&dec, &piece);
    if (!rc && piece.n) (void)emit(ctx, piece.p, piece.n);
    str_free(&piece);
    return rc;
}

/* Of encoder and decoder: the prompt is read, and the text is what the decoder begins with. */
static int begin_to_write(struct generator *g, const struct tokenizer *t, struct writing *x, struct err *e)
{
    int rc = decoding_read(g->d, g->sequence, t, x->text.ids, x->text.n, e);
    x->text.n = 0;
    tokens_push(&x->text, decoding_start(g->d));
    return rc;
}

/* The prompt is in x->text. */
static int write_text(struct generator *g, const struct tokenizer *t, struct writing *x, int64_t max_tokens,
                      generate_emit_fn *emit, void *ctx, struct generate_result *r, struct err *e)
{
    const float *logits = NULL;
    double from = clock_now_s();
    struct speculative_options o = {.draft = g->draft, .guesses = g->guesses, .sample = *x->spec};
    generator_reset(g);
    int rc = decoding_reads(g->d) ? begin_to_write(g, t, x, e) : OK;
    if (!rc) rc = generator_feed(g, x->text.ids, x->text.n, &logits, e);
    if (!rc && g->guesses) rc = speculative_new(&x->speculating, g->d, g->sequence, &o, e);
    if (rc) return rc;
    r->prompt_s = clock_now_s() - from;
    from = clock_now_s();
    x->sampler = sampler_new(decoding_model(g->d)->vocab);
    rc = continue_text(g, t, x, logits, max_tokens, emit, ctx, r, e);
    r->tokens_s = clock_now_s() - from;
    if (x->speculating) r->guessed = speculative_counts(x->speculating).guessed;
    if (x->speculating) r->taken = speculative_counts(x->speculating).taken;
    speculative_free(x->speculating);
    sampler_free(x->sampler);
    return rc;
}

int generate(struct generator *g, const struct tokenizer *t, const char *prompt, int64_t max_tokens,
             const struct sample_spec *spec, generate_emit_fn *emit, void *ctx, struct generate_result *r,
             struct err *e)
{
    memset(r, 0, sizeof *r);
    struct writing x = {.spec = spec};
    int rc = sample_check(spec, e);
    if (!rc) rc = encode_prompt(g, t, prompt, &x.text, e);
    if (!rc) begin_document(g->d, t, &x.text);
    r->prompt_tokens = x.text.n;
    if (!rc && x.text.n > generator_room(g))
        rc = err_set(e, ERR_REQUEST, "the prompt is %lld tokens long, and the model has %lld positions; shorten it",
                     (long long)x.text.n, (long long)generator_room(g));
    if (!rc) rc = write_text(g, t, &x, max_tokens, emit, ctx, r, e);
    tokens_free(&x.text);
    return rc;
}
