/* SPDX-License-Identifier: Apache-2.0 */
/* T5 (Raffel et al. 2020): an encoder and a decoder. A sample of seq_len tokens is two texts: its first
 * model.encoder_len places are what the encoder reads, the others what the decoder does, each of whose tokens has the
 * next one as target (data/taken_spans.h). Norms of the root of squares stand before each part; no biases; scores are
 * not scaled.
 *
 *   encoder   h = h + attention(norm h), both ways         h = h + mlp(norm h)         at the end m = norm h
 *   decoder   h = h + attention(norm h), causal            h = h + attention(norm h, keys and values of m)
 *             h = h + mlp(norm h)                          at the end logits = E norm h, E tied: times 1 / sqrt(hidden)
 *             (or always, or never: model.head_scale)
 *
 * What stands for positions is a bias on scores by distance, of one table in the encoder and one in the decoder, which
 * all of its layers share; between the two there is none. The tables become a number per head and distance once
 * (OP_DISTANCES), before the layers, so no pair has a number of its own in memory, and the tables are used in one
 * place.
 *
 * Layers are counted through: model.encoder_layers of the encoder's, then the decoder's. What the decoder reads is
 * embedded together with what the encoder does, for the table of tokens is then read in one place and by the head, as
 * in other models; between the two stacks the stream changes from the one's rows to the other's.
 *
 * Writing, the encoder runs once over what is read (pairs_read), and what each of the decoder's layers takes of it is
 * kept as keys and values; a step is the decoder's new tokens, against their own and against those.
 *
 * Rejected: one stream of both texts' rows through all layers under a mask (each layer would compute rows that its
 * stack has no use for); a second field of the batch for the encoder's tokens (everything that carries a batch would
 * learn that samples have two lengths). */
#include <math.h>
#include <stdio.h>

#include "nn/layers.h"

static bool writes(const struct layer_ctx *x) { return x->s->mode == MODEL_DECODE; }
static int64_t encoder_rows(const struct layer_ctx *x) { return writes(x) ? x->s->seq : x->c->encoder_len; }
static int64_t decoder_rows(const struct model_config *c, const struct model_shape *s)
{
    return s->seq - c->encoder_len;
}
static bool is_gated(const struct model_config *c) { return c->feed_forward == FEED_FORWARD_GATED; }
static bool is_encoder(const struct model_config *c, int layer) { return layer < c->encoder_layers; }

/* ---- parameters ---- */
static const char *stack_of(const struct model_config *c, int layer)
{
    return is_encoder(c, layer) ? "encoder" : "layers";
}

/* The layer's number in its stack, which its parameters are named by. */
static int place_of(const struct model_config *c, int layer)
{
    return is_encoder(c, layer) ? layer : layer - to_int(c->encoder_layers);
}

static void declare_gain(struct declare_ctx *x, int layer, const char *name)
{
    layer_declare(x, (struct declare){INIT_ONES, 0, layer, over_stream(x->par), 0}, 1, &x->c->hidden, "%s", name);
}

static void declare_norm(struct declare_ctx *x, int layer, const char *which)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d.%s.weight", stack_of(x->c, layer), place_of(x->c, layer), which);
    declare_gain(x, layer, name);
}

static void declare_matrix(struct declare_ctx *x, int layer, const char *which, enum spmd over_tp, int64_t unit,
                           const int64_t n[2], double std)
{
    layer_declare(x, (struct declare){INIT_NORMAL, std, layer, over_tp, unit}, 2, n, "%s.%d.%s.weight",
                  stack_of(x->c, layer), place_of(x->c, layer), which);
}

/* As published: products keep the size of what goes in, and since scores are not scaled, queries begin smaller by the
 * root of a head's columns. */
static void declare_attention(struct declare_ctx *x, int layer, const char *kind)
{
    const struct model_config *c = x->c;
    int64_t A = c->head_dim, HA = c->heads * A, in[2] = {HA, c->hidden}, out[2] = {c->hidden, HA};
    double D = (double)c->hidden;
    char name[16];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%c", kind, "qkv"[i]);
        declare_matrix(x, layer, name, SPMD_S0, A, in, 1 / sqrt(i ? D : D * (double)A));
    }
    snprintf(name, sizeof name, "%s.o", kind);
    declare_matrix(x, layer, name, SPMD_S1, A, out, 1 / sqrt((double)HA));
}

static void declare_block(struct declare_ctx *x, int layer)
{
    const struct model_config *c = x->c;
    int64_t up[2] = {c->ffn, c->hidden}, down[2] = {c->hidden, c->ffn};
    double into = 1 / sqrt((double)c->hidden), out = 1 / sqrt((double)c->ffn);
    if (layer == c->encoder_layers) declare_gain(x, layer, "encoder_norm.weight"); /* of what the decoder reads */
    declare_norm(x, layer, "norm1");
    declare_attention(x, layer, "attn");
    if (!is_encoder(c, layer)) declare_norm(x, layer, "norm_cross");
    if (!is_encoder(c, layer)) declare_attention(x, layer, "cross");
    declare_norm(x, layer, "norm2");
    if (is_gated(c)) declare_matrix(x, layer, "mlp.gate", SPMD_S0, 0, up, into);
    declare_matrix(x, layer, "mlp.up", SPMD_S0, 0, up, into);
    declare_matrix(x, layer, "mlp.down", SPMD_S1, 0, down, out);
}

static void declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    struct declare table = {INIT_NORMAL, 1, -1, over_vocab(x->par), 0},
                   bias = {INIT_NORMAL, 1 / sqrt((double)c->hidden), -1, SPMD_S1, 0};
    int64_t n[2] = {c->vocab, c->hidden}, buckets[2] = {c->buckets, c->heads};
    layer_declare(x, table, 2, n, "embed.token");
    layer_declare(x, bias, 2, buckets, "embed.encoder_bias");
    layer_declare(x, bias, 2, buckets, "embed.decoder_bias");
    for (int l = 0; l < c->layers; l++) declare_block(x, l);
    declare_gain(x, -1, "norm.weight");
    table.layer = -2; /* what the loss's segment has gradients of (gpt2.c) */
    if (!c->tie_embeddings) layer_declare(x, table, 2, n, "head.weight");
}

double pairs_layer_cost(const struct model_config *c, int64_t seq, int layer)
{
    double S = (double)seq, E = (double)c->encoder_len, N = S - E, D = (double)c->hidden,
           HA = (double)c->heads * (double)c->head_dim, own = 4 * D * HA + (is_gated(c) ? 3 : 2) * D * (double)c->ffn;
    if (is_encoder(c, layer)) return (E * own + 2 * E * E * HA) / S;
    return (N * (own + 2 * D * HA) + 2 * E * D * HA + N * (N + 1) * HA + 2 * N * E * HA) / S;
}

/* ---- the two streams ---- */
/* Tokens of one axis that nobody shares out are whole, whatever their letter. */
static tid on_cp(struct layer_ctx *x, tid v, enum spmd to, const char *name)
{
    return x->t->err.code ? TID_NONE : tape_retype(x->t, v, AXIS_CP, to, name);
}

/* Places [first, first + n) of the samples, and which of the step's tokens they are, as dropout counts them. */
static tid picked(struct layer_ctx *x, tid v_T, int64_t first, int64_t n, const char *name, tid *index)
{
    struct pick_attrs a = {x->s->batch, x->s->seq, first, n};
    tid whole = on_cp(x, v_T, SPMD_R, name), rows = op_pick(x->t, whole, a, name);
    tid out = on_cp(x, rows, SPMD_S0, name);
    if (!index || x->t->err.code) return out;
    *index = on_cp(x, rows + 1, SPMD_S0, "index");
    if (x->par->sequence) *index = par_rows(x->t, x->par, *index, AXIS_TP);
    return out;
}

static tid dropped(struct layer_ctx *x, tid h_TD, const char *what, int layer)
{
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream(what, layer), x->index_T, what);
}

static tid distances(struct layer_ctx *x, const char *name, int64_t rows, bool both_ways)
{
    struct distances_attrs a = {rows, rows, x->c->distance, both_ways};
    return op_distances(x->t, layer_param(x, 1, "%s", name), a, name);
}

/* Both texts; what the decoder has waits in x->pair until its layers begin. */
static tid embed(struct layer_ctx *x, tid ids_T)
{
    const struct model_config *c = x->c;
    struct pair_streams *p = &x->pair;
    const struct model_stage *g = x->s->stage;
    if (writes(x)) return embed_tokens(x, ids_T);
    int64_t E = encoder_rows(x), N = decoder_rows(c, x->s);
    CHECK(x->par->size[AXIS_CP] == 1 && (!g || (g->first == 0 && g->end == c->layers)),
          "a part of the samples' tokens, or of the layers");
    p->encoder_bias = distances(x, "embed.encoder_bias", E, true);
    p->decoder_bias = distances(x, "embed.decoder_bias", N, false);
    tid ids_N = picked(x, ids_T, E, N, "decoder", &x->index_T);
    if (x->target_T >= 0) x->target_T = picked(x, x->target_T, E, N, "decoder.targets", NULL);
    x->tokens = x->s->batch * N;
    p->decoder_index = x->index_T;
    p->decoder_ND = dropped(x, embed_tokens(x, ids_N), "embed.decoder", 0);
    p->place_M = c->pads ? picked(x, x->pos_T, 0, E, "encoder.places", NULL) : TID_NONE;
    ids_T = picked(x, ids_T, 0, E, "encoder", &x->index_T);
    x->tokens = x->s->batch * E;
    return dropped(x, embed_tokens(x, ids_T), "embed.encoder", 0);
}

/* From the encoder's stream to the decoder's. Keys and values of every layer are made of one tensor, whose gradient is
 * then summed over ranks once. */
static tid memory_of(struct layer_ctx *x, tid h_TD)
{
    tid w_D = layer_param(x, 1, "encoder_norm.weight");
    h_TD = op_norm(x->t, h_TD, w_D, norm_of(x->c), "encoder_norm");
    return region_enter(x, dropped(x, h_TD, "encoder", 0));
}

tid pairs_between(struct layer_ctx *x, tid h_TD)
{
    struct pair_streams *p = &x->pair;
    p->memory_MD = memory_of(x, h_TD);
    x->tokens = x->s->batch * decoder_rows(x->c, x->s);
    x->index_T = p->decoder_index;
    return p->decoder_ND;
}

/* ---- blocks ---- */
static tid weight(struct layer_ctx *x, int span, int layer, const char *which)
{
    return layer_param(x, span, "%s.%d.%s.weight", stack_of(x->c, layer), place_of(x->c, layer), which);
}

static tid norm(struct layer_ctx *x, tid h_TD, int layer, const char *which)
{
    return op_norm(x->t, h_TD, weight(x, 1, layer, which), norm_of(x->c), which);
}

/* place: of the keys, where some may not be there. */
static tid attend(struct layer_ctx *x, tid q, tid k, tid v, tid bias, tid place, struct attention_biased_attrs a,
                  const char *name)
{
    tid in[4] = {q, k, v, place};
    for (int i = 0; i < 4; i++) in[i] = in[i] >= 0 ? on_cp(x, in[i], SPMD_R, name) : TID_NONE;
    tid o = op_attention_biased(x->t, in[0], in[1], in[2], bias, in[3], a, name);
    return on_cp(x, o, SPMD_S0, name);
}

/* Writing: new tokens of the decoder against keys and values in pages, those of kv stored first; kv NULL: of what was
 * read. */
static tid attend_cached(struct layer_ctx *x, tid q, const tid *kv, int layer, const char *name)
{
    const struct model_config *c = x->c;
    struct heads h = heads_here(c, x->par);
    struct attention_cached_biased_attrs a = {to_int(h.q.hi - h.q.lo), to_int(c->head_dim), c->distance};
    int64_t n[2] = {x->s->cache_rows, (int64_t)a.heads * a.head_dim};
    int slot = slot_cache(x->params->n, layer);
    if (x->t->err.code) return TID_NONE;
    struct spmd_type type = tape_tensor(x->t, q)->type; /* a cache lies where its keys and values lie */
    const tid none[2] = {TID_NONE, TID_NONE},
              cache[2] = {tape_input(x->t, "cache_k", slot, x->s->dtype, 2, n, type),
                          tape_input(x->t, "cache_v", slot + 1, x->s->dtype, 2, n, type)};
    tid table = kv ? layer_param(x, 1, "embed.decoder_bias") : TID_NONE;
    return op_attention_cached_biased(x->t, q, kv ? kv : none, kv ? x->runs_SX : x->reads_SX, cache, table, a, name);
}

static struct attention_biased_attrs attrs_of(const struct layer_ctx *x, int64_t q, int64_t k, const char *what,
                                              int layer)
{
    const struct model_config *c = x->c;
    struct heads h = heads_here(c, x->par);
    return (struct attention_biased_attrs){.batch = x->s->batch,
                                           .q_seq = q,
                                           .k_seq = k,
                                           .sample = x->s->seq,
                                           .heads = to_int(h.q.hi - h.q.lo),
                                           .head_dim = to_int(c->head_dim),
                                           .head_first = to_int(h.q.lo),
                                           .heads_all = to_int(c->heads),
                                           .dropout = {(float)c->dropout, dropout_stream(what, layer)}};
}

/* Of a stack's own tokens. */
static tid self_attention(struct layer_ctx *x, tid h_TD, int layer)
{
    const struct model_config *c = x->c;
    bool encoder = is_encoder(c, layer);
    int64_t n = encoder ? encoder_rows(x) : decoder_rows(c, x->s);
    struct attention_biased_attrs a = attrs_of(x, n, n, "attention", layer);
    a.causal = !encoder;
    int64_t HA = (int64_t)a.heads * a.head_dim;
    h_TD = region_enter(x, norm(x, h_TD, layer, "norm1"));
    tid qkv = layer_linear(x, h_TD, weight(x, 3, layer, "attn.q"), TID_NONE, false, "qkv");
    tid q = tape_cols(x->t, qkv, 0, HA), kv[2] = {tape_cols(x->t, qkv, HA, HA), tape_cols(x->t, qkv, 2 * HA, HA)};
    tid bias = encoder ? x->pair.encoder_bias : x->pair.decoder_bias, place = encoder ? x->pair.place_M : TID_NONE;
    tid o = !encoder && writes(x) ? attend_cached(x, q, kv, layer, "attention")
                                  : attend(x, q, kv[0], kv[1], bias, place, a, "attention");
    return region_leave(x, layer_linear(x, o, weight(x, 1, layer, "attn.o"), TID_NONE, false, "attn.o"));
}

/* Queries of the decoder, keys and values of what the encoder made. */
static tid cross_attention(struct layer_ctx *x, tid h_TD, int layer)
{
    const struct model_config *c = x->c;
    struct attention_biased_attrs a = attrs_of(x, decoder_rows(c, x->s), encoder_rows(x), "cross", layer);
    int64_t HA = (int64_t)a.heads * a.head_dim;
    h_TD = region_enter(x, norm(x, h_TD, layer, "norm_cross"));
    tid q = layer_linear(x, h_TD, weight(x, 1, layer, "cross.q"), TID_NONE, false, "cross.q");
    tid o;
    if (writes(x)) {
        o = attend_cached(x, q, NULL, layer, "cross");
    } else {
        tid kv = layer_linear(x, x->pair.memory_MD, weight(x, 2, layer, "cross.k"), TID_NONE, false, "cross.kv");
        tid k = tape_cols(x->t, kv, 0, HA), v = tape_cols(x->t, kv, HA, HA);
        o = attend(x, q, k, v, TID_NONE, x->pair.place_M, a, "cross");
    }
    return region_leave(x, layer_linear(x, o, weight(x, 1, layer, "cross.o"), TID_NONE, false, "cross.o"));
}

static tid mlp(struct layer_ctx *x, tid h_TD, int layer)
{
    bool gated = is_gated(x->c);
    h_TD = region_enter(x, norm(x, h_TD, layer, "norm2"));
    tid w = weight(x, gated ? 2 : 1, layer, gated ? "mlp.gate" : "mlp.up");
    tid z = layer_linear(x, h_TD, w, TID_NONE, false, gated ? "gate_up" : "up");
    z = op_act(x->t, z, gated ? ACT_GEGLU : ACT_RELU, gated ? "geglu" : "relu");
    return region_leave(x, layer_linear(x, z, weight(x, 1, layer, "mlp.down"), TID_NONE, false, "down"));
}

static tid added(struct layer_ctx *x, tid h_TD, tid d_TD, const char *what, int layer)
{
    return op_add(x->t, h_TD, d_TD, (float)x->c->dropout, dropout_stream(what, layer), x->index_T, "residual");
}

static tid block(struct layer_ctx *x, tid h_TD, int layer)
{
    h_TD = added(x, h_TD, self_attention(x, h_TD, layer), "attn.o", layer);
    if (!is_encoder(x->c, layer)) h_TD = added(x, h_TD, cross_attention(x, h_TD, layer), "cross.o", layer);
    return added(x, h_TD, mlp(x, h_TD, layer), "mlp.down", layer);
}

/* One product for keys and one for values, since each goes to memory of its own. */
void pairs_read(struct layer_ctx *x, tid ids_T)
{
    const struct model_config *c = x->c;
    x->pair.place_M = TID_NONE;
    x->pair.encoder_bias = distances(x, "embed.encoder_bias", encoder_rows(x), true);
    tid h_TD = embed_tokens(x, ids_T);
    for (int l = 0; l < c->encoder_layers; l++) h_TD = block(x, h_TD, l);
    tid memory_MD = memory_of(x, h_TD);
    for (int l = to_int(c->encoder_layers); l < c->layers && !x->t->err.code; l++) {
        int slot = slot_cache(x->params->n, l);
        tid k = layer_linear(x, memory_MD, weight(x, 1, l, "cross.k"), TID_NONE, false, "cross.k");
        tid v = layer_linear(x, memory_MD, weight(x, 1, l, "cross.v"), TID_NONE, false, "cross.v");
        tape_bind(x->t, k, slot);
        tape_bind(x->t, v, slot + 1);
    }
}

static tid last_norm(struct layer_ctx *x, tid h_TD)
{
    tid w_D = layer_param(x, 1, "norm.weight");
    h_TD = dropped(x, op_norm(x->t, h_TD, w_D, norm_of(x->c), "norm"), "decoder", 0);
    float root = 1 / sqrtf((float)x->c->hidden);
    return model_scales_head(x->c) ? op_act_limited(x->t, h_TD, ACT_TIMES, root, "norm.times") : h_TD;
}

const struct blocks blocks_t5 = {false, declare, embed, block, last_norm, NULL};
