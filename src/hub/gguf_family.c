/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/gguf_family.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "model/rope.h"

#define EMBEDDING                                                                                                      \
    {                                                                                                                  \
        "embed.token", "token_embd.weight", 0, 0, GGUF_ALONE                                                           \
    }
#define HEAD                                                                                                           \
    {"norm.weight", "output_norm.weight", 0, 0, GGUF_ALONE}, {"head.weight", "output.weight", 't', 0, GGUF_ALONE},     \
    {                                                                                                                  \
        NULL, NULL, 0, 0, GGUF_ALONE                                                                                   \
    }
#define NORM1                                                                                                          \
    {                                                                                                                  \
        "layers.%d.norm1.weight", "blk.%d.attn_norm.weight", 0, 0, GGUF_ALONE                                          \
    }
#define NORM2                                                                                                          \
    {                                                                                                                  \
        "layers.%d.norm2.weight", "blk.%d.ffn_norm.weight", 0, 0, GGUF_ALONE                                           \
    }
#define AFTER                                                                                                          \
    {"layers.%d.norm1_after.weight", "blk.%d.post_attention_norm.weight", 0, 0, GGUF_ALONE},                           \
    {                                                                                                                  \
        "layers.%d.norm2_after.weight", "blk.%d.post_ffw_norm.weight", 0, 0, GGUF_ALONE                                \
    }
#define ATTENTION                                                                                                      \
    {"layers.%d.attn.q.weight", "blk.%d.attn_q.weight", 0, 'q', GGUF_ALONE},                                           \
        {"layers.%d.attn.q.bias", "blk.%d.attn_q.bias", 'q', 'q', GGUF_ALONE},                                         \
        {"layers.%d.attn.k.weight", "blk.%d.attn_k.weight", 0, 'k', GGUF_ALONE},                                       \
        {"layers.%d.attn.k.bias", "blk.%d.attn_k.bias", 'q', 'k', GGUF_ALONE},                                         \
        {"layers.%d.attn.v.weight", "blk.%d.attn_v.weight", 0, 0, GGUF_ALONE},                                         \
        {"layers.%d.attn.v.bias", "blk.%d.attn_v.bias", 'q', 0, GGUF_ALONE},                                           \
        {"layers.%d.attn.q_norm.weight", "blk.%d.attn_q_norm.weight", 'n', 0, GGUF_ALONE},                             \
        {"layers.%d.attn.k_norm.weight", "blk.%d.attn_k_norm.weight", 'n', 0, GGUF_ALONE},                             \
        {"layers.%d.attn.o.weight", "blk.%d.attn_output.weight", 0, 0, GGUF_ALONE},                                    \
    {                                                                                                                  \
        "layers.%d.attn.o.bias", "blk.%d.attn_output.bias", 'o', 0, GGUF_ALONE                                         \
    }
#define FEED_FORWARD                                                                                                   \
    {"layers.%d.mlp.gate.weight", "blk.%d.ffn_gate.weight", 'd', 0, GGUF_ALONE},                                       \
        {"layers.%d.mlp.up.weight", "blk.%d.ffn_up.weight", 'd', 0, GGUF_ALONE},                                       \
        {"layers.%d.mlp.down.weight", "blk.%d.ffn_down.weight", 'd', 0, GGUF_ALONE},                                   \
        {"layers.%d.moe.router.weight", "blk.%d.ffn_gate_inp.weight", 'e', 0, GGUF_ALONE},                             \
        {"layers.%d.moe.experts.%d.gate.weight", "blk.%d.ffn_gate_exps.weight", 'e', 0, GGUF_EXPERTS},                 \
        {"layers.%d.moe.experts.%d.up.weight", "blk.%d.ffn_up_exps.weight", 'e', 0, GGUF_EXPERTS},                     \
    {                                                                                                                  \
        "layers.%d.moe.experts.%d.down.weight", "blk.%d.ffn_down_exps.weight", 'e', 0, GGUF_EXPERTS                    \
    }
static const struct gguf_name before_names[] = {EMBEDDING, NORM1, ATTENTION, NORM2, FEED_FORWARD, HEAD},
                              after_names[] = {EMBEDDING, AFTER, ATTENTION, FEED_FORWARD, HEAD},
                              both_names[] = {EMBEDDING, NORM1, ATTENTION, NORM2, AFTER, FEED_FORWARD, HEAD};
static const struct gguf_name phi3_names[] = {
    EMBEDDING,
    NORM1,
    NORM2,
    {"layers.%d.attn.q.weight", "blk.%d.attn_qkv.weight", 0, 0, GGUF_QKV},
    {"layers.%d.attn.o.weight", "blk.%d.attn_output.weight", 0, 0, GGUF_ALONE},
    {"layers.%d.mlp.gate.weight", "blk.%d.ffn_up.weight", 0, 0, GGUF_GATE_UP},
    {"layers.%d.mlp.down.weight", "blk.%d.ffn_down.weight", 0, 0, GGUF_ALONE},
    HEAD,
};
static const struct gguf_name gpt2_names[] = {
    EMBEDDING,
    {"embed.position", "position_embd.weight", 0, 0, GGUF_ALONE},
    {"layers.%d.norm1.weight", "blk.%d.attn_norm.weight", 0, 0, GGUF_ALONE},
    {"layers.%d.norm1.bias", "blk.%d.attn_norm.bias", 0, 0, GGUF_ALONE},
    {"layers.%d.attn.q.weight", "blk.%d.attn_qkv.weight", 0, 0, GGUF_QKV},
    {"layers.%d.attn.q.bias", "blk.%d.attn_qkv.bias", 0, 0, GGUF_QKV},
    {"layers.%d.attn.o.weight", "blk.%d.attn_output.weight", 0, 0, GGUF_ALONE},
    {"layers.%d.attn.o.bias", "blk.%d.attn_output.bias", 0, 0, GGUF_ALONE},
    {"layers.%d.norm2.weight", "blk.%d.ffn_norm.weight", 0, 0, GGUF_ALONE},
    {"layers.%d.norm2.bias", "blk.%d.ffn_norm.bias", 0, 0, GGUF_ALONE},
    {"layers.%d.mlp.up.weight", "blk.%d.ffn_up.weight", 0, 0, GGUF_ALONE},
    {"layers.%d.mlp.up.bias", "blk.%d.ffn_up.bias", 0, 0, GGUF_ALONE},
    {"layers.%d.mlp.down.weight", "blk.%d.ffn_down.weight", 0, 0, GGUF_ALONE},
    {"layers.%d.mlp.down.bias", "blk.%d.ffn_down.bias", 0, 0, GGUF_ALONE},
    {"norm.bias", "output_norm.bias", 0, 0, GGUF_ALONE},
    HEAD,
};

enum { HALVES = false, NEIGHBOURS = true };

/* clang-format off */
static const struct gguf_family families[MODEL_N] = {
#define GGUF(id, architecture, names, turn, every, local) [MODEL_##id] = {architecture, names##_names, turn, every, local},
#include "model/families.def"
};
/* clang-format on */

bool gguf_has(const struct gguf_name *n, const struct model_config *m)
{
    switch (n->when) {
    case 'q': return m->attn.qkv_bias;
    case 'o': return m->attn.o_bias;
    case 'n': return m->attn.qk_norm != QK_NORM_NONE;
    case 't': return !m->tie_embeddings;
    case 'd': return !m->moe.experts;
    case 'e': return m->moe.experts > 0;
    default: return true;
    }
}

bool gguf_adds_one(const struct gguf_name *n, const struct model_config *m)
{
    return m->norm_plus_one && strstr(n->theirs, "norm.weight");
}

static bool stretches(const struct model_config *m) { return m->rope_scaling.factor > 0; }

bool gguf_rope_divisors(const struct model_config *m, float *by)
{
    if (m->family == MODEL_GPT2 || !stretches(m) || m->rope_scaling.kind != ROPE_LLAMA3) return false;
    for (int64_t i = 0; i < m->head_dim / 2; i++) {
        double plain = pow(m->rope_theta, -2.0 * (double)i / (double)m->head_dim);
        by[i] = (float)(plain / rope_stretched(&m->rope_scaling, plain));
    }
    return true;
}

/* Layers of a pattern are those of a reader's own rule. */
static bool same_layers(const struct layer_pattern *ours, const char *theirs, int64_t layers)
{
    struct layer_pattern rule = {{0}};
    strncpy(rule.text, theirs, sizeof rule.text - 1);
    for (int64_t l = 0; l < layers; l++)
        if (layer_pattern_has(ours, l) != layer_pattern_has(&rule, l)) return false;
    return true;
}

/* The dimension by whose root readers of Gemma divide scores: that of a head, in the largest model all of them. */
static double score_dim(const struct model_config *m)
{
    bool largest = (m->family == MODEL_GEMMA2 && m->layers == 46) || (m->family == MODEL_GEMMA3 && m->layers == 62);
    return largest ? (double)m->hidden / (double)m->heads : (double)m->head_dim;
}

static int refuse(const char *what, const char *why, struct err *e)
{
    return err_set(e, ERR_REQUEST, "%s: %s", what, why);
}

static int check_numbers(const struct gguf_family *f, const struct model_config *m, const char *what, struct err *e)
{
    const struct rope_scaling_config *r = &m->rope_scaling;
    static const char *const turned[] = {"x", "xo", "2xo", "3xo"};
    if (m->mlp_bias) return refuse(what, "biases of feed-forward layers (model.mlp_bias) are not read from a GGUF", e);
    if (m->attn.scale_dim > 0 && m->attn.scale_dim != score_dim(m))
        return refuse(what, "readers of GGUF divide scores by another root than model.attn.scale_dim's", e);
    if (!same_layers(&m->attn.rope, turned[f->rope_every ? f->rope_every - 1 : 0], m->layers))
        return refuse(what, "readers of GGUF turn other layers than model.attn.rope's", e);
    if (m->moe.experts && (m->moe.first_dense || !same_layers(&m->moe.sparse, "x", m->layers)))
        return refuse(what, "layers without experts between others (model.moe.sparse) are not read from a GGUF", e);
    if (m->moe.experts && !m->moe.norm_topk)
        return refuse(what, "readers of GGUF weigh the chosen experts to a sum of 1 (model.moe.norm_topk)", e);
    if (f->local && m->attn.window && !same_layers(&m->attn.local, f->local, m->layers))
        return refuse(what, "readers of GGUF have windows in other layers than model.attn.local's", e);
    if (model_prefixes(m))
        return refuse(what, "readers of GGUF see no prompt in both directions (model.attn.prefix)", e);
    if (model_long_rope(m) || model_turned(m) != m->head_dim)
        return refuse(what,
                      "positions by longrope, or of a part of a head (model.rope_part), are not written into a GGUF",
                      e);
    if (stretches(m) && (r->kind == ROPE_DYNAMIC || (r->kind == ROPE_LLAMA3 && !f->neighbours)))
        return refuse(what,
                      "positions scaled in this way (model.rope_scaling.kind) are not read from a GGUF of this family",
                      e);
    if (m->yarn.factor > 0 && (m->yarn.mscale != 0 || m->yarn.mscale_all_dim != 0 || !m->yarn.truncate ||
                               m->yarn.beta_fast != 32 || m->yarn.beta_slow != 1))
        return refuse(what,
                      "readers of GGUF have YaRN's ramp between 32 and 1 (beta_fast, beta_slow), truncated, without "
                      "mscale",
                      e);
    return OK;
}

/* With those that are written, in the order of their rows. */
static int refuse_family(const char *what, struct err *e)
{
    static const enum model_family written[] = {
#define GGUF(id, ...) MODEL_##id,
#include "model/families.def"
    };
    struct str all = {0};
    size_t n = sizeof written / sizeof *written;
    for (size_t i = 0; i < n; i++)
        str_printf(&all, "%s%s", !i ? "" : i + 1 < n ? ", " : " and ", model_family_name(written[i]));
    int rc = err_set(e, ERR_REQUEST, "%s: models of this family are not written as GGUF; those of %s are", what,
                     str_text(&all));
    str_free(&all);
    return rc;
}

int gguf_family_of(const struct gguf_family **f, const struct hf_model *h, const char *what, struct err *e)
{
    const struct model_config *m = &h->model;
    *f = &families[m->family];
    if (!(*f)->architecture) return refuse_family(what, e);
    /* their own config.json says no other numbers than the family's */
    int rc = m->family == MODEL_GPT2 ? OK : hf_config_expressible(h, e);
    return rc || m->family == MODEL_GPT2 ? rc : check_numbers(*f, m, what, e);
}

static void put_positions(struct gguf_keys *k, const struct model_config *m)
{
    const struct rope_scaling_config *r = &m->rope_scaling;
    gguf_key_u32(k, ".rope.dimension_count", m->head_dim);
    gguf_key_f32(k, ".rope.freq_base", m->rope_theta);
    if (m->family == MODEL_GEMMA3 && m->attn.window && m->attn.local_theta > 0)
        gguf_key_f32(k, ".rope.freq_base_swa", m->attn.local_theta);
    if (stretches(m) && r->kind == ROPE_LINEAR) {
        gguf_key_text(k, ".rope.scaling.type", "linear");
        gguf_key_f32(k, ".rope.scaling.factor", r->factor);
    }
    if (m->yarn.factor > 0) {
        gguf_key_text(k, ".rope.scaling.type", "yarn");
        gguf_key_f32(k, ".rope.scaling.factor", m->yarn.factor);
        gguf_key_u32(k, ".rope.scaling.original_context_length", r->original_max_position);
    }
}

void gguf_put_numbers(struct gguf_keys *k, const struct gguf_family *f, const struct model_config *m)
{
    int64_t context = m->max_positions;
    if (!f->local && m->family != MODEL_GPT2 && m->attn.window > 0 && m->attn.window < context) {
        log_warn("readers of this GGUF know no windows: it says %lld positions, which a window of as many keys does "
                 "not "
                 "change, instead of %lld",
                 (long long)m->attn.window, (long long)context);
        context = m->attn.window;
    }
    gguf_key_u32(k, ".context_length", context);
    gguf_key_u32(k, ".embedding_length", m->hidden);
    gguf_key_u32(k, ".block_count", m->layers);
    gguf_key_u32(k, ".feed_forward_length", m->ffn);
    gguf_key_u32(k, ".attention.head_count", m->heads);
    gguf_key_u32(k, ".vocab_size", m->vocab);
    if (m->family == MODEL_GPT2) {
        gguf_key_f32(k, ".attention.layer_norm_epsilon", m->norm_eps);
        return;
    }
    gguf_key_u32(k, ".attention.head_count_kv", m->kv_heads);
    gguf_key_u32(k, ".attention.key_length", m->head_dim);
    gguf_key_u32(k, ".attention.value_length", m->head_dim);
    gguf_key_f32(k, ".attention.layer_norm_rms_epsilon", m->norm_eps);
    if (f->local) gguf_key_u32(k, ".attention.sliding_window", m->attn.window ? m->attn.window : m->max_positions);
    if (m->attn.cap > 0) gguf_key_f32(k, ".attn_logit_softcapping", m->attn.cap);
    if (m->logit_cap > 0) gguf_key_f32(k, ".final_logit_softcapping", m->logit_cap);
    if (m->moe.experts) {
        gguf_key_u32(k, ".expert_count", m->moe.experts);
        gguf_key_u32(k, ".expert_used_count", m->moe.top_k);
        gguf_key_u32(k, ".expert_feed_forward_length", m->moe.ffn);
    }
    put_positions(k, m);
}
