/* SPDX-License-Identifier: Apache-2.0 */
/* hf_names.c: which of our parameters is which of theirs: the one table per family that reading, writing and
 * checking go by.
 *
 * Runs of rows (before the layers, per layer, after the layers) are enumerated in that order; the first %d is the
 * layer, the second the expert: a run of a layer may be repeated for each. Sizes are letters: V vocabulary, P
 * positions, D hidden, F ffn, Q = heads x head size, K = kv heads x head size; E experts, X ffn of an expert, S of the
 * shared ones; a and c the short vectors of queries and of keys and values, r rotated columns, B = heads x (nope +
 * value), O = heads x value; C classes, h channels, p the rows of a patch, U its values, 1 one. `part` numbers the
 * pieces of one fused tensor of theirs, which all have the same first size, unless `before` and `whole` say where the
 * piece begins and how long the tensor is.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "checkpoint/hf.h"

struct row {
    const char *ours, *theirs;
    char size[3]; /* ours: [size0] or [size0, size1] */
    bool transposed;
    int part, parts; /* parts 0: not fused */
    bool head;       /* absent when tied, and never prefixed */
    char when;       /* 0: always; q, n: with, without a short query; b: with a bias of choice; s: with shared experts;
                        v: with biases of queries, keys and values */
    char before, whole;
    char file[4]; /* theirs where it has other dims in the file; none: the same */
};

#define PAIR(our, their, rows, cols)                                                                                   \
    {our ".weight", their ".weight", {rows, cols, 0}, true, 0, 0, false, 0, 0, 0, {0}},                                \
    {                                                                                                                  \
        our ".bias", their ".bias", {rows, 0, 0}, false, 0, 0, false, 0, 0, 0, { 0 }                                   \
    }
#define NORM(our, their)                                                                                               \
    {our ".weight", their ".weight", {'D', 0, 0}, false, 0, 0, false, 0, 0, 0, {0}},                                   \
    {                                                                                                                  \
        our ".bias", their ".bias", {'D', 0, 0}, false, 0, 0, false, 0, 0, 0, { 0 }                                    \
    }
#define FUSED(our, their, i)                                                                                           \
    {                                                                                                                  \
        our ".weight", their ".weight", {'D', 'D', 0}, true, i, 3, false, 0, 0, 0, { 0 }                               \
    }
#define FUSED_BIAS(our, their, i)                                                                                      \
    {                                                                                                                  \
        our ".bias", their ".bias", {'D', 0, 0}, false, i, 3, false, 0, 0, 0, { 0 }                                    \
    }
#define PLAIN(our, their, rows, cols)                                                                                  \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, false, 0, 0, 0, { 0 }                                                \
    }
#define WHEN(c, our, their, rows, cols)                                                                                \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, false, c, 0, 0, { 0 }                                                \
    }
#define PIECE(our, their, rows, cols, from, all)                                                                       \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, false, 0, from, all, { 0 }                                           \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, NULL, {0, 0, 0}, false, 0, 0, false, 0, 0, 0, { 0 }                                                      \
    }

static const struct row gpt2_first[] = {
    PLAIN("embed.token", "wte.weight", 'V', 'D'),
    PLAIN("embed.position", "wpe.weight", 'P', 'D'),
    END,
};
static const struct row gpt2_layer[] = {
    NORM("layers.%d.norm1", "h.%d.ln_1"),
    FUSED("layers.%d.attn.q", "h.%d.attn.c_attn", 0),
    FUSED("layers.%d.attn.k", "h.%d.attn.c_attn", 1),
    FUSED("layers.%d.attn.v", "h.%d.attn.c_attn", 2),
    FUSED_BIAS("layers.%d.attn.q", "h.%d.attn.c_attn", 0),
    FUSED_BIAS("layers.%d.attn.k", "h.%d.attn.c_attn", 1),
    FUSED_BIAS("layers.%d.attn.v", "h.%d.attn.c_attn", 2),
    PAIR("layers.%d.attn.o", "h.%d.attn.c_proj", 'D', 'D'),
    NORM("layers.%d.norm2", "h.%d.ln_2"),
    PAIR("layers.%d.mlp.up", "h.%d.mlp.c_fc", 'F', 'D'),
    PAIR("layers.%d.mlp.down", "h.%d.mlp.c_proj", 'D', 'F'),
    END,
};
static const struct row gpt2_last[] = {
    NORM("norm", "ln_f"),
    {"head.weight", "lm_head.weight", {'V', 'D', 0}, false, 0, 0, true, 0, 0, 0, {0}},
    END,
};

static const struct row llama_first[] = {
    PLAIN("embed.token", "embed_tokens.weight", 'V', 'D'),
    END,
};
static const struct row llama_attention[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.input_layernorm.weight", 'D', 0),
    PLAIN("layers.%d.attn.q.weight", "layers.%d.self_attn.q_proj.weight", 'Q', 'D'),
    PLAIN("layers.%d.attn.k.weight", "layers.%d.self_attn.k_proj.weight", 'K', 'D'),
    PLAIN("layers.%d.attn.v.weight", "layers.%d.self_attn.v_proj.weight", 'K', 'D'),
    PLAIN("layers.%d.attn.o.weight", "layers.%d.self_attn.o_proj.weight", 'D', 'Q'),
    PLAIN("layers.%d.norm2.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    END,
};
static const struct row llama_mlp[] = {
    PLAIN("layers.%d.mlp.gate.weight", "layers.%d.mlp.gate_proj.weight", 'F', 'D'),
    PLAIN("layers.%d.mlp.up.weight", "layers.%d.mlp.up_proj.weight", 'F', 'D'),
    PLAIN("layers.%d.mlp.down.weight", "layers.%d.mlp.down_proj.weight", 'D', 'F'),
    END,
};
static const struct row mixtral_router[] = {
    PLAIN("layers.%d.moe.router.weight", "layers.%d.block_sparse_moe.gate.weight", 'E', 'D'),
    END,
};
static const struct row mixtral_open[] = {
    PLAIN("layers.%d.moe.experts.%d.gate.weight", "layers.%d.block_sparse_moe.experts.%d.w1.weight", 'X', 'D'),
    PLAIN("layers.%d.moe.experts.%d.up.weight", "layers.%d.block_sparse_moe.experts.%d.w3.weight", 'X', 'D'),
    END,
};
static const struct row mixtral_close[] = {
    PLAIN("layers.%d.moe.experts.%d.down.weight", "layers.%d.block_sparse_moe.experts.%d.w2.weight", 'D', 'X'),
    END,
};
static const struct row deepseek_attention[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.input_layernorm.weight", 'D', 0),
    WHEN('q', "layers.%d.attn.q_a.weight", "layers.%d.self_attn.q_a_proj.weight", 'a', 'D'),
    WHEN('q', "layers.%d.attn.q_a_norm.weight", "layers.%d.self_attn.q_a_layernorm.weight", 'a', 0),
    WHEN('q', "layers.%d.attn.q_b.weight", "layers.%d.self_attn.q_b_proj.weight", 'Q', 'a'),
    WHEN('n', "layers.%d.attn.q.weight", "layers.%d.self_attn.q_proj.weight", 'Q', 'D'),
    PIECE("layers.%d.attn.kv_a.weight", "layers.%d.self_attn.kv_a_proj_with_mqa.weight", 'c', 'D', 0, 'k'),
    PIECE("layers.%d.attn.k_rope.weight", "layers.%d.self_attn.kv_a_proj_with_mqa.weight", 'r', 'D', 'c', 'k'),
    PLAIN("layers.%d.attn.kv_a_norm.weight", "layers.%d.self_attn.kv_a_layernorm.weight", 'c', 0),
    PLAIN("layers.%d.attn.kv_b.weight", "layers.%d.self_attn.kv_b_proj.weight", 'B', 'c'),
    PLAIN("layers.%d.attn.o.weight", "layers.%d.self_attn.o_proj.weight", 'D', 'O'),
    PLAIN("layers.%d.norm2.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    END,
};
static const struct row deepseek_router[] = {
    PLAIN("layers.%d.moe.router.weight", "layers.%d.mlp.gate.weight", 'E', 'D'),
    WHEN('b', "layers.%d.moe.router.bias", "layers.%d.mlp.gate.e_score_correction_bias", 'E', 0),
    END,
};
static const struct row deepseek_open[] = {
    PLAIN("layers.%d.moe.experts.%d.gate.weight", "layers.%d.mlp.experts.%d.gate_proj.weight", 'X', 'D'),
    PLAIN("layers.%d.moe.experts.%d.up.weight", "layers.%d.mlp.experts.%d.up_proj.weight", 'X', 'D'),
    END,
};
static const struct row deepseek_close[] = {
    PLAIN("layers.%d.moe.experts.%d.down.weight", "layers.%d.mlp.experts.%d.down_proj.weight", 'D', 'X'),
    END,
};
static const struct row deepseek_shared[] = {
    WHEN('s', "layers.%d.moe.shared.gate.weight", "layers.%d.mlp.shared_experts.gate_proj.weight", 'S', 'D'),
    WHEN('s', "layers.%d.moe.shared.up.weight", "layers.%d.mlp.shared_experts.up_proj.weight", 'S', 'D'),
    WHEN('s', "layers.%d.moe.shared.down.weight", "layers.%d.mlp.shared_experts.down_proj.weight", 'D', 'S'),
    END,
};
static const struct row llama_last[] = {
    PLAIN("norm.weight", "norm.weight", 'D', 0),
    {"head.weight", "lm_head.weight", {'V', 'D', 0}, false, 0, 0, true, 0, 0, 0, {0}},
    END,
};

#define VIT(our, their, rows, cols)                                                                                    \
    PLAIN(our ".weight", their ".weight", rows, cols), PLAIN(our ".bias", their ".bias", rows, 0)
#define VIT_QKV(our, their)                                                                                            \
    PLAIN(our ".weight", their ".weight", 'D', 'D'), WHEN('v', our ".bias", their ".bias", 'D', 0)
#define IN_FILE(our, their, rows, cols, a, b, c, d)                                                                    \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, false, 0, 0, 0, { a, b, c, d }                                       \
    }
static const struct row vit_first[] = {
    IN_FILE("embed.patch.weight", "embeddings.patch_embeddings.projection.weight", 'D', 'U', 'D', 'h', 'p', 'p'),
    IN_FILE("embed.class", "embeddings.cls_token", 'D', 0, '1', '1', 'D', 0),
    PLAIN("embed.patch.bias", "embeddings.patch_embeddings.projection.bias", 'D', 0),
    IN_FILE("embed.position", "embeddings.position_embeddings", 'P', 'D', '1', 'P', 'D', 0),
    END,
};
static const struct row vit_layer[] = {
    VIT("layers.%d.norm1", "encoder.layer.%d.layernorm_before", 'D', 0),
    VIT_QKV("layers.%d.attn.q", "encoder.layer.%d.attention.attention.query"),
    VIT_QKV("layers.%d.attn.k", "encoder.layer.%d.attention.attention.key"),
    VIT_QKV("layers.%d.attn.v", "encoder.layer.%d.attention.attention.value"),
    VIT("layers.%d.attn.o", "encoder.layer.%d.attention.output.dense", 'D', 'D'),
    VIT("layers.%d.norm2", "encoder.layer.%d.layernorm_after", 'D', 0),
    VIT("layers.%d.mlp.up", "encoder.layer.%d.intermediate.dense", 'F', 'D'),
    VIT("layers.%d.mlp.down", "encoder.layer.%d.output.dense", 'D', 'F'),
    END,
};
static const struct row vit_last[] = {
    VIT("norm", "layernorm", 'D', 0),
    {"head.weight", "classifier.weight", {'C', 'D', 0}, false, 0, 0, true, 0, 0, 0, {0}},
    {"head.bias", "classifier.bias", {'C', 0, 0}, false, 0, 0, true, 0, 0, 0, {0}},
    END,
};

/* A layer is these runs, up to NULL; `each` runs once per expert. */
struct run {
    const struct row *rows;
    bool each;
};
#define LAYER_RUNS 6
static const struct family_names {
    const struct row *first, *last;
    struct run dense[LAYER_RUNS], moe[LAYER_RUNS];
    const char *prefix;
    const char *ignored[4]; /* endings of tensors that are no parameters */
} families[HF_N] = {
    /* clang-format off */
    [HF_GPT2] = {gpt2_first, gpt2_last, {{gpt2_layer, false}}, {{NULL, false}}, "transformer.",
                 {".attn.bias", ".attn.masked_bias", NULL}},
    [HF_LLAMA] = {llama_first, llama_last, {{llama_attention, false}, {llama_mlp, false}}, {{NULL, false}}, "model.",
                  {".rotary_emb.inv_freq", NULL}},
    [HF_MIXTRAL] = {llama_first, llama_last, {{llama_attention, false}, {llama_mlp, false}},
                    {{llama_attention, false}, {mixtral_router, false}, {mixtral_open, true}, {mixtral_close, true}}, "model.",
                    {".rotary_emb.inv_freq", NULL}},
#define DEEPSEEK                                                                                                       \
    {llama_first, llama_last, {{deepseek_attention, false}, {llama_mlp, false}},                                      \
     {{deepseek_attention, false}, {deepseek_router, false}, {deepseek_open, true}, {deepseek_close, true},           \
      {deepseek_shared, false}},                                                                                      \
     "model.", {".rotary_emb.inv_freq", NULL}}
    [HF_DEEPSEEK_V2] = DEEPSEEK,
    [HF_DEEPSEEK_V3] = DEEPSEEK,
    [HF_VIT] = {vit_first, vit_last, {{vit_layer, false}}, {{NULL, false}}, "vit.", {NULL}},
    /* clang-format on */
};

const char *hf_prefix(enum hf_family f) { return families[f].prefix; }

static bool is_there(const struct hf_model *m, const struct row *r)
{
    switch (r->when) {
    case 'q': return m->model.mla.q_rank > 0;
    case 'n': return m->model.mla.q_rank == 0;
    case 'b': return m->model.moe.bias;
    case 's': return m->model.moe.shared > 0;
    case 'v': return m->model.qkv_bias;
    default: return true;
    }
}

static int64_t count_rows(const struct hf_model *m, const struct row *r)
{
    int64_t n = 0;
    for (; r->ours; r++) n += is_there(m, r);
    return n;
}

static const struct run *layer_runs(const struct hf_model *m, int64_t layer)
{
    const struct family_names *f = &families[m->family];
    return m->model.moe.experts && layer >= m->model.moe.first_dense ? f->moe : f->dense;
}

static int64_t count_run(const struct hf_model *m, const struct run *r)
{
    return count_rows(m, r->rows) * (r->each ? m->model.moe.experts : 1);
}

static int64_t count_layer(const struct hf_model *m, int64_t layer)
{
    const struct run *r = layer_runs(m, layer);
    int64_t n = 0;
    for (int k = 0; k < LAYER_RUNS && r[k].rows; k++) n += count_run(m, &r[k]);
    return n;
}

int64_t hf_n_params(const struct hf_model *m)
{
    int64_t dense = m->model.moe.experts ? m->model.moe.first_dense : m->model.layers,
            experts = m->model.layers - dense;
    if (dense > m->model.layers) dense = m->model.layers, experts = 0;
    /* The head is the last row of each family. */
    return count_rows(m, families[m->family].first) + dense * count_layer(m, 0) * (dense > 0) +
           (experts ? experts * count_layer(m, m->model.layers - 1) : 0) + count_rows(m, families[m->family].last) -
           m->model.tie_embeddings;
}

static int64_t size_of(const struct hf_model *m, char letter)
{
    switch (letter) {
    case 'V': return m->model.vocab;
    case 'P': return m->model.max_positions;
    case 'D': return m->model.hidden;
    case 'F': return m->model.ffn;
    case 'Q': return m->model.heads * m->model.head_dim;
    case 'K': return m->model.kv_heads * m->model.head_dim;
    case 'E': return m->model.moe.experts;
    case 'X': return m->model.moe.ffn;
    case 'S': return m->model.moe.ffn * m->model.moe.shared;
    case 'a': return m->model.mla.q_rank;
    case 'c': return m->model.mla.kv_rank;
    case 'r': return m->model.mla.rope_dim;
    case 'k': return m->model.mla.kv_rank + m->model.mla.rope_dim;
    case 'B': return m->model.heads * (m->model.mla.nope_dim + m->model.mla.value_dim);
    case 'O': return m->model.heads * m->model.mla.value_dim;
    case 'C': return m->model.classes;
    case 'h': return m->model.channels;
    case 'p': return m->model.patch_size;
    case 'U': return m->model.channels * m->model.patch_size * m->model.patch_size;
    case '1': return 1;
    case 0: return 0;
    default: CHECK(0, "size letter %c", letter);
    }
}

/* The pattern with its first %d replaced by the layer, its second by the expert. */
static void put_name(char *out, size_t room, const char *pattern, int64_t layer, int64_t expert)
{
    const int64_t number[2] = {layer, expert};
    size_t n = 0;
    for (int k = 0; *pattern && n + 24 < room;) {
        if (strncmp(pattern, "%d", 2) == 0 && k < 2) {
            n += (size_t)snprintf(out + n, room - n, "%lld", (long long)number[k++]);
            pattern += 2;
        } else {
            out[n++] = *pattern++;
        }
    }
    out[n] = 0;
    CHECK(!*pattern, "a name that is too long");
}

static const struct row *row_at(const struct hf_model *m, const struct row *r, int64_t i)
{
    for (;; r++) {
        CHECK(r->ours, "no such row");
        if (is_there(m, r) && i-- == 0) return r;
    }
}

/* The i-th parameter, counted through layers and experts: its row, and which of them. */
struct counted_row {
    const struct row *row;
    int64_t layer, expert;
};

static struct counted_row counted_row_of(const struct hf_model *m, int64_t i)
{
    const struct family_names *f = &families[m->family];
    int64_t n = count_rows(m, f->first);
    if (i < n) return (struct counted_row){row_at(m, f->first, i), 0, 0};
    i -= n;
    for (int64_t l = 0; l < m->model.layers; l++) {
        n = count_layer(m, l);
        if (i >= n) {
            i -= n;
            continue;
        }
        for (const struct run *r = layer_runs(m, l);; r++) {
            int64_t each = count_rows(m, r->rows);
            if (i < count_run(m, r)) return (struct counted_row){row_at(m, r->rows, i % each), l, i / each};
            i -= count_run(m, r);
        }
    }
    return (struct counted_row){row_at(m, f->last, i), 0, 0};
}

struct hf_param hf_param_at(const struct hf_model *m, int64_t i)
{
    CHECK(i >= 0 && i < hf_n_params(m), "parameter %lld", (long long)i);
    struct counted_row at = counted_row_of(m, i);
    const struct row *r = at.row;
    struct hf_param p = {.prefixed = !r->head, .transposed = r->transposed};
    put_name(p.name, sizeof p.name, r->ours, at.layer, at.expert);
    put_name(p.theirs, sizeof p.theirs, r->theirs, at.layer, at.expert);
    for (; r->size[p.shape.nd]; p.shape.nd++) p.shape.n[p.shape.nd] = size_of(m, r->size[p.shape.nd]);
    p.their_shape = p.shape;
    p.offset = r->whole ? size_of(m, r->before) : r->part * p.shape.n[0];
    if (r->parts) p.their_shape.n[0] *= r->parts;
    if (r->whole) p.their_shape.n[0] = size_of(m, r->whole);
    if (r->transposed) {
        int64_t rows = p.their_shape.n[0];
        p.their_shape.n[0] = p.their_shape.n[1];
        p.their_shape.n[1] = rows;
    }
    p.file_shape = p.their_shape;
    for (int k = 0; k < 4 && r->file[k]; k++) {
        p.file_shape.nd = k + 1;
        p.file_shape.n[k] = size_of(m, r->file[k]);
    }
    return p;
}

/* Layers beyond the model's: DeepSeek-V3's files carry one that predicts further tokens. */
static bool is_beyond(const struct hf_model *m, const char *theirs)
{
    long long layer;
    return m->model.mla.kv_rank && sscanf(theirs, "model.layers.%lld.", &layer) == 1 && layer >= m->model.layers;
}

bool hf_is_ignored(const struct hf_model *m, const char *theirs)
{
    if (m->model.tie_embeddings && strcmp(theirs, "lm_head.weight") == 0) return true;
    if (is_beyond(m, theirs)) return true;
    for (const char *const *end = families[m->family].ignored; *end; end++)
        if (str_ends(theirs, *end)) return true;
    return false;
}
