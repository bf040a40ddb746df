/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt in chunks, then one token at a time. Cost per token: every parameter is read once, plus the cache. */
#include "run/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "config/start_weights.h"
#include "tape/program.h"

enum { PROMPT_CHUNK = 64 };

struct decode { /* one recorded size */
    int64_t n;
    struct tape *tape;
    struct program *program;
};

struct generator {
    struct device *dev;
    struct stream *stream;
    struct kernel_table kernels;
    struct model_config model;
    struct param_table params;
    struct store store;
    struct par par;
    struct decode chunk, one;
    struct buffer cache, rope, data, logits, scratch;
    void **slot;
    float *host_logits;
    int32_t *positions; /* 0, 1, ...: what copies to the device read */
    int64_t room, fed;
    int64_t eos[HF_EOS];
    int n_eos;
};

static int record(struct generator *g, struct decode *d, int64_t n, enum dtype dtype, struct err *e)
{
    d->n = n;
    d->tape = tape_new();
    model_record(d->tape, &g->model, &g->params, &g->par,
                 &(struct model_shape){.mode = MODEL_DECODE,
                                       .dtype = dtype,
                                       .batch = 1,
                                       .seq = n,
                                       .cache_rows = g->room});
    return program_new(&d->program, d->tape, &g->kernels, (struct lower_options){0}, e);
}

static int allocate(struct generator *g, enum dtype dtype, struct err *e)
{
    size_t layer = to_size(g->room) * (size_t)g->model.kv_heads * (size_t)g->model.head_dim * dtype_bytes(dtype);
    size_t scratch = g->chunk.program->bytes[HOME_SCRATCH];
    if (g->one.program->bytes[HOME_SCRATCH] > scratch) scratch = g->one.program->bytes[HOME_SCRATCH];
    int rc = buffer_new(&g->cache, g->dev, MEM_ACTIVATION, 2 * layer * (size_t)g->model.layers, e);
    if (!rc) rc = buffer_new(&g->data, g->dev, MEM_DATA, 2 * PROMPT_CHUNK * sizeof(int32_t), e);
    if (!rc) rc = buffer_new(&g->logits, g->dev, MEM_DATA, to_size(g->model.vocab) * sizeof(float), e);
    if (!rc) rc = buffer_new(&g->scratch, g->dev, MEM_SCRATCH, scratch, e);
    if (!rc && model_rope_cols(&g->model))
        rc = buffer_new(&g->rope, g->dev, MEM_DATA,
                        to_size(g->model.max_positions * model_rope_cols(&g->model)) * sizeof(float), e);
    if (rc) return rc;
    int n_slots = slot_cache(g->params.n, g->model.layers);
    g->slot = xcalloc((size_t)n_slots, sizeof *g->slot);
    g->slot[SLOT_TOKENS] = g->data.p;
    g->slot[SLOT_POSITIONS] = (int32_t *)g->data.p + PROMPT_CHUNK;
    g->slot[SLOT_LOGITS] = g->logits.p;
    g->slot[SLOT_ROPE] = g->rope.p;
    for (int i = 0; i < g->params.n; i++) g->slot[slot_param(i)] = store_param_ptr(&g->store, i);
    for (int l = 0; l < 2 * g->model.layers; l++)
        g->slot[slot_cache(g->params.n, 0) + l] = (char *)g->cache.p + (size_t)l * layer;
    if (g->rope.bytes) {
        float *table = xmalloc(g->rope.bytes);
        model_rope_table(&g->model, table);
        device_from_host(g->stream, &g->rope, 0, table, g->rope.bytes);
        stream_sync(g->stream);
        xfree(table);
    }
    g->positions = xmalloc(to_size(g->room) * sizeof *g->positions);
    for (int64_t i = 0; i < g->room; i++) g->positions[i] = (int32_t)i;
    g->host_logits = xmalloc(to_size(g->model.vocab) * sizeof *g->host_logits);
    return OK;
}

int generator_new(struct generator **out, struct weights *w, struct device *d, int threads, int64_t room,
                  enum dtype dtype, struct err *e)
{
    struct hf_model h;
    *out = NULL;
    int rc = weights_model(w, &h, e);
    if (!rc && model_sees(&h.model))
        rc = err_set(e, ERR_REQUEST, "%s: sees pictures and writes no text; give a model of texts", weights_path(w));
    if (rc) return rc;
    struct generator *g = xcalloc(1, sizeof *g);
    g->dev = d;
    g->par = par_single();
    g->model = h.model;
    g->model.dropout = 0;
    g->n_eos = h.n_eos;
    memcpy(g->eos, h.eos, sizeof g->eos);
    g->room = room > 0 && room < g->model.max_positions ? room : g->model.max_positions;
    rc = stream_new(&g->stream, d, "compute", e);
    if (!rc) rc = model_check(&g->model, e);
    if (!rc) rc = kernel_table_init(&g->kernels, "auto", threads, false, e);
    if (!rc) kernel_on(g->stream, &g->kernels);
    if (dtype == DT_N) dtype = DT_BF16;
    if (!rc) {
        model_declare(&g->model, NULL, &g->params);
        rc = store_new(&g->store, &g->params, d, dtype, false, NULL, 0, e);
    }
    if (!rc) rc = source_load(&g->store, &g->kernels, g->stream, w, e);
    if (!rc) rc = record(g, &g->chunk, g->room < PROMPT_CHUNK ? g->room : PROMPT_CHUNK, dtype, e);
    if (!rc) rc = record(g, &g->one, 1, dtype, e);
    if (!rc) rc = allocate(g, dtype, e);
    if (rc) {
        generator_free(g);
        return rc;
    }
    *out = g;
    return OK;
}

void generator_free(struct generator *g)
{
    if (!g) return;
    program_free(g->chunk.program);
    program_free(g->one.program);
    tape_free(g->chunk.tape);
    tape_free(g->one.tape);
    buffer_free(&g->cache);
    buffer_free(&g->rope);
    buffer_free(&g->data);
    buffer_free(&g->logits);
    buffer_free(&g->scratch);
    store_free(&g->store);
    param_table_free(&g->params);
    xfree(g->slot);
    xfree(g->host_logits);
    xfree(g->positions);
    stream_free(g->stream);
    xfree(g);
}

int64_t generator_room(const struct generator *g) { return g->room; }
void generator_reset(struct generator *g) { g->fed = 0; }

static void run(struct generator *g, const struct decode *d, const int32_t *ids)
{
    device_from_host(g->stream, &g->data, 0, ids, to_size(d->n) * sizeof *ids);
    device_from_host(g->stream, &g->data, PROMPT_CHUNK * sizeof(int32_t), g->positions + g->fed,
                     to_size(d->n) * sizeof *ids);
    struct step_info info = {0};
    program_run(d->program, PHASE_F,
                &(struct program_args){.stream = g->stream, .step = &info, .slot = g->slot, .scratch = g->scratch.p});
    g->fed += d->n;
}

int generator_feed(struct generator *g, const int32_t *ids, int64_t n, const float **logits_V, struct err *e)
{
    if (n < 1) return err_set(e, ERR_REQUEST, "nothing to continue from: give at least one token");
    if (g->fed + n > g->room)
        return err_set(e, ERR_REQUEST, "%lld tokens do not fit after %lld: the model has %lld positions", (long long)n,
                       (long long)g->fed, (long long)g->room);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->model.vocab)
            return err_set(e, ERR_REQUEST, "token %d is not below the model's vocabulary of %lld: another tokenizer?",
                           ids[i], (long long)g->model.vocab);
    while (n > 0) {
        const struct decode *d = n >= g->chunk.n ? &g->chunk : &g->one;
        run(g, d, ids);
        ids += d->n;
        n -= d->n;
    }
    device_to_host(g->stream, g->host_logits, &g->logits, 0, g->logits.bytes);
    stream_sync(g->stream);
    *logits_V = g->host_logits;
    return OK;
}

static bool is_end(const struct generator *g, const struct tokenizer *t, int64_t id)
{
    for (int i = 0; i < g->n_eos; i++)
        if (g->eos[i] == id) return true;
    return id == tokenizer_eos(t);
}

/* The sampling loop; the prompt was fed and logits are its last token's. What a token looks like may hang on its being
 * the first, so the decoder gets the prompt before. */
static int continue_text(struct generator *g, const struct tokenizer *t, const struct tokens *prompt,
                         const float *logits, int64_t max_tokens, const struct sample_spec *spec,
                         generate_emit_fn *emit, void *ctx, struct generate_result *r, struct err *e)
{
    struct sampler *s = sampler_new(g->model.vocab);
    struct decoder dec = {.t = t};
    struct str piece = {0};
    int rc = OK;
    for (int64_t i = 0; i < prompt->n; i++) decoder_push(&dec, prompt->ids[i], &piece);
    dec.n_held = 0;
    r->stopped = "length";
    while (!rc && r->tokens < max_tokens) {
        int64_t id;
        rc = sample_token(s, spec, logits, g->fed, &id, e);
        if (rc) break;
        if (is_end(g, t, id)) {
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
        if (g->fed == g->room) {
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
    if (!rc) rc = tokenizer_encode(t, prompt, strlen(prompt), &ids, e);
    if (!rc && !ids.n) { /* an empty prompt starts a document */
        int32_t start = tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_eos(t);
        if (start >= 0) tokens_push(&ids, start);
    }
    const float *logits = NULL;
    double from = clock_now_s();
    r->prompt_tokens = ids.n;
    generator_reset(g);
    if (!rc && ids.n > g->room)
        rc = err_set(e, ERR_REQUEST, "the prompt is %lld tokens long, and the model has %lld positions; shorten it",
                     (long long)ids.n, (long long)g->room);
    if (!rc) rc = generator_feed(g, ids.ids, ids.n, &logits, e);
    r->prompt_s = clock_now_s() - from;
    from = clock_now_s();
    if (!rc) rc = continue_text(g, t, &ids, logits, max_tokens, spec, emit, ctx, r, e);
    r->tokens_s = clock_now_s() - from;
    tokens_free(&ids);
    return rc;
}
