/* SPDX-License-Identifier: Apache-2.0 */
/* hf_names.c: which of our parameters is which of theirs: the one table per family that reading, writing and checking
 * go by. What a row means is hf_names.h's. */
#include "hub/hf_names.h"

#include <stddef.h>

#define PAIR(our, their, rows, cols)                                                                                   \
    {our ".weight", their ".weight", {rows, cols, 0}, true, 0, 0, false, 0, 0, 0, {0}, 0},                             \
    {                                                                                                                  \
        our ".bias", their ".bias", {rows, 0, 0}, false, 0, 0, false, 0, 0, 0, {0}, 0                                  \
    }
#define NORM(our, their)                                                                                               \
    {our ".weight", their ".weight", {'D', 0, 0}, false, 0, 0, false, 0, 0, 0, {0}, 0},                                \
    {                                                                                                                  \
        our ".bias", their ".bias", {'D', 0, 0}, false, 0, 0, false, 0, 0, 0, {0}, 0                                   \
    }
#define FUSED(our, their, i)                                                                                           \
    {                                                                                                                  \
        our ".weight", their ".weight", {'D', 'D', 0}, true, i, 3, false, 0, 0, 0, {0}, 0                              \
    }
#define FUSED_BIAS(our, their, i)                                                                                      \
    {                                                                                                                  \
        our ".bias", their ".bias", {'D', 0, 0}, false, i, 3, false, 0, 0, 0, {0}, 0                                   \
    }
#define PLAIN(our, their, rows, cols)                                                                                  \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, false, 0, 0, 0, {0}, 0                                               \
    }
#define WHEN(c, our, their, rows, cols)                                                                                \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, false, c, 0, 0, {0}, 0                                               \
    }
#define PIECE(our, their, rows, cols, from, all)                                                                       \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, false, 0, from, all, {0}, 0                                          \
    }
#define ALONE(c, our, their, rows, cols)                                                                               \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, true, c, 0, 0, {0}, 0                                                \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, NULL, {0, 0, 0}, false, 0, 0, false, 0, 0, 0, {0}, 0                                                     \
    }

#define STACKED(our, their, rows, cols, i, all)                                                                        \
    {                                                                                                                  \
        .ours = our, .theirs = their, .size = {rows, cols, 0}, .transposed = true, .part = i, .stack = all             \
    }

static const struct hf_name gpt2_first[] = {
    PLAIN("embed.token", "wte.weight", 'V', 'D'),
    PLAIN("embed.position", "wpe.weight", 'P', 'D'),
    END,
};
static const struct hf_name gpt2_layer[] = {
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
static const struct hf_name gpt2_last[] = {
    NORM("norm", "ln_f"),
    ALONE('r', "score.weight", "score.weight", '1', 'D'),
    ALONE('w', "head.weight", "lm_head.weight", 'V', 'D'),
    END,
};

static const struct hf_name llama_first[] = {
    PLAIN("embed.token", "embed_tokens.weight", 'V', 'D'),
    END,
};
static const struct hf_name llama_attention[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.input_layernorm.weight", 'D', 0),
    PLAIN("layers.%d.attn.q.weight", "layers.%d.self_attn.q_proj.weight", 'Q', 'D'),
    PLAIN("layers.%d.attn.k.weight", "layers.%d.self_attn.k_proj.weight", 'K', 'D'),
    PLAIN("layers.%d.attn.v.weight", "layers.%d.self_attn.v_proj.weight", 'K', 'D'),
    PLAIN("layers.%d.attn.o.weight", "layers.%d.self_attn.o_proj.weight", 'D', 'Q'),
    PLAIN("layers.%d.norm2.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    END,
};
#define DECODER_ATTENTION                                                                                              \
    PLAIN("layers.%d.attn.q.weight", "layers.%d.self_attn.q_proj.weight", 'Q', 'D'),                                   \
        PLAIN("layers.%d.attn.k.weight", "layers.%d.self_attn.k_proj.weight", 'K', 'D'),                               \
        PLAIN("layers.%d.attn.v.weight", "layers.%d.self_attn.v_proj.weight", 'K', 'D'),                               \
        WHEN('a', "layers.%d.attn.q.bias", "layers.%d.self_attn.q_proj.bias", 'Q', 0),                                 \
        WHEN('a', "layers.%d.attn.k.bias", "layers.%d.self_attn.k_proj.bias", 'K', 0),                                 \
        WHEN('a', "layers.%d.attn.v.bias", "layers.%d.self_attn.v_proj.bias", 'K', 0),                                 \
        WHEN('h', "layers.%d.attn.q_norm.weight", "layers.%d.self_attn.q_norm.weight", 'A', 0),                        \
        WHEN('h', "layers.%d.attn.k_norm.weight", "layers.%d.self_attn.k_norm.weight", 'A', 0),                        \
        WHEN('H', "layers.%d.attn.q_norm.weight", "layers.%d.self_attn.q_norm.weight", 'Q', 0),                        \
        WHEN('H', "layers.%d.attn.k_norm.weight", "layers.%d.self_attn.k_norm.weight", 'K', 0),                        \
        PLAIN("layers.%d.attn.o.weight", "layers.%d.self_attn.o_proj.weight", 'D', 'Q'),                               \
        WHEN('o', "layers.%d.attn.o.bias", "layers.%d.self_attn.o_proj.bias", 'D', 0)
static const struct hf_name decoder_attention[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.input_layernorm.weight", 'D', 0),
    DECODER_ATTENTION,
    PLAIN("layers.%d.norm2.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    END,
};
static const struct hf_name olmo2_attention[] = {
    DECODER_ATTENTION,
    PLAIN("layers.%d.norm1_after.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    PLAIN("layers.%d.norm2_after.weight", "layers.%d.post_feedforward_layernorm.weight", 'D', 0),
    END,
};
static const struct hf_name gemma_attention[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.input_layernorm.weight", 'D', 0),
    DECODER_ATTENTION,
    PLAIN("layers.%d.norm1_after.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    PLAIN("layers.%d.norm2.weight", "layers.%d.pre_feedforward_layernorm.weight", 'D', 0),
    PLAIN("layers.%d.norm2_after.weight", "layers.%d.post_feedforward_layernorm.weight", 'D', 0),
    END,
};
static const struct hf_name phi3_attention[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.input_layernorm.weight", 'D', 0),
    PIECE("layers.%d.attn.q.weight", "layers.%d.self_attn.qkv_proj.weight", 'Q', 'D', 0, 'j'),
    PIECE("layers.%d.attn.k.weight", "layers.%d.self_attn.qkv_proj.weight", 'K', 'D', 'Q', 'j'),
    PIECE("layers.%d.attn.v.weight", "layers.%d.self_attn.qkv_proj.weight", 'K', 'D', 'i', 'j'),
    PLAIN("layers.%d.attn.o.weight", "layers.%d.self_attn.o_proj.weight", 'D', 'Q'),
    PLAIN("layers.%d.norm2.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    END,
};
static const struct hf_name phi3_mlp[] = {
    PIECE("layers.%d.mlp.gate.weight", "layers.%d.mlp.gate_up_proj.weight", 'F', 'D', 0, 'f'),
    PIECE("layers.%d.mlp.up.weight", "layers.%d.mlp.gate_up_proj.weight", 'F', 'D', 'F', 'f'),
    PLAIN("layers.%d.mlp.down.weight", "layers.%d.mlp.down_proj.weight", 'D', 'F'),
    END,
};
static const struct hf_name decoder_mlp[] = {
    PLAIN("layers.%d.mlp.gate.weight", "layers.%d.mlp.gate_proj.weight", 'F', 'D'),
    PLAIN("layers.%d.mlp.up.weight", "layers.%d.mlp.up_proj.weight", 'F', 'D'),
    WHEN('m', "layers.%d.mlp.gate.bias", "layers.%d.mlp.gate_proj.bias", 'F', 0),
    WHEN('m', "layers.%d.mlp.up.bias", "layers.%d.mlp.up_proj.bias", 'F', 0),
    PLAIN("layers.%d.mlp.down.weight", "layers.%d.mlp.down_proj.weight", 'D', 'F'),
    WHEN('m', "layers.%d.mlp.down.bias", "layers.%d.mlp.down_proj.bias", 'D', 0),
    END,
};
static const struct hf_name llama_mlp[] = {
    PLAIN("layers.%d.mlp.gate.weight", "layers.%d.mlp.gate_proj.weight", 'F', 'D'),
    PLAIN("layers.%d.mlp.up.weight", "layers.%d.mlp.up_proj.weight", 'F', 'D'),
    PLAIN("layers.%d.mlp.down.weight", "layers.%d.mlp.down_proj.weight", 'D', 'F'),
    END,
};
static const struct hf_name mixtral_router[] = {
    PLAIN("layers.%d.moe.router.weight", "layers.%d.block_sparse_moe.gate.weight", 'E', 'D'),
    END,
};
static const struct hf_name mixtral_open[] = {
    PLAIN("layers.%d.moe.experts.%d.gate.weight", "layers.%d.block_sparse_moe.experts.%d.w1.weight", 'X', 'D'),
    PLAIN("layers.%d.moe.experts.%d.up.weight", "layers.%d.block_sparse_moe.experts.%d.w3.weight", 'X', 'D'),
    END,
};
static const struct hf_name mixtral_close[] = {
    PLAIN("layers.%d.moe.experts.%d.down.weight", "layers.%d.block_sparse_moe.experts.%d.w2.weight", 'D', 'X'),
    END,
};
static const struct hf_name deepseek_attention[] = {
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
static const struct hf_name deepseek_router[] = {
    PLAIN("layers.%d.moe.router.weight", "layers.%d.mlp.gate.weight", 'E', 'D'),
    WHEN('b', "layers.%d.moe.router.bias", "layers.%d.mlp.gate.e_score_correction_bias", 'E', 0),
    END,
};
static const struct hf_name deepseek_open[] = {
    PLAIN("layers.%d.moe.experts.%d.gate.weight", "layers.%d.mlp.experts.%d.gate_proj.weight", 'X', 'D'),
    PLAIN("layers.%d.moe.experts.%d.up.weight", "layers.%d.mlp.experts.%d.up_proj.weight", 'X', 'D'),
    END,
};
static const struct hf_name deepseek_close[] = {
    PLAIN("layers.%d.moe.experts.%d.down.weight", "layers.%d.mlp.experts.%d.down_proj.weight", 'D', 'X'),
    END,
};
static const struct hf_name deepseek_shared[] = {
    WHEN('s', "layers.%d.moe.shared.gate.weight", "layers.%d.mlp.shared_experts.gate_proj.weight", 'S', 'D'),
    WHEN('s', "layers.%d.moe.shared.up.weight", "layers.%d.mlp.shared_experts.up_proj.weight", 'S', 'D'),
    WHEN('s', "layers.%d.moe.shared.down.weight", "layers.%d.mlp.shared_experts.down_proj.weight", 'D', 'S'),
    END,
};
static const struct hf_name gpt_oss_attention[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.input_layernorm.weight", 'D', 0),
    DECODER_ATTENTION,
    WHEN('S', "layers.%d.attn.sink", "layers.%d.self_attn.sinks", 'H', 0),
    PLAIN("layers.%d.norm2.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    PLAIN("layers.%d.moe.router.weight", "layers.%d.mlp.router.weight", 'E', 'D'),
    PLAIN("layers.%d.moe.router.offset", "layers.%d.mlp.router.bias", 'E', 0),
    END,
};
static const struct hf_name gpt_oss_open[] = {
    STACKED("layers.%d.moe.experts.%d.gate.weight", "layers.%d.mlp.experts.gate_up_proj", 'X', 'D', 0, 2),
    STACKED("layers.%d.moe.experts.%d.up.weight", "layers.%d.mlp.experts.gate_up_proj", 'X', 'D', 1, 2),
    END,
};
static const struct hf_name gpt_oss_open_bias[] = {
    STACKED("layers.%d.moe.experts.%d.gate.bias", "layers.%d.mlp.experts.gate_up_proj_bias", 'X', 0, 0, 2),
    STACKED("layers.%d.moe.experts.%d.up.bias", "layers.%d.mlp.experts.gate_up_proj_bias", 'X', 0, 1, 2),
    END,
};
static const struct hf_name gpt_oss_close[] = {
    STACKED("layers.%d.moe.experts.%d.down.weight", "layers.%d.mlp.experts.down_proj", 'D', 'X', 0, 1),
    END,
};
static const struct hf_name gpt_oss_close_bias[] = {
    STACKED("layers.%d.moe.experts.%d.down.bias", "layers.%d.mlp.experts.down_proj_bias", 'D', 0, 0, 1),
    END,
};
static const struct hf_name llama_last[] = {
    PLAIN("norm.weight", "norm.weight", 'D', 0),
    ALONE('r', "score.weight", "score.weight", '1', 'D'),
    ALONE('w', "head.weight", "lm_head.weight", 'V', 'D'),
    END,
};

#define VIT(our, their, rows, cols)                                                                                    \
    PLAIN(our ".weight", their ".weight", rows, cols), PLAIN(our ".bias", their ".bias", rows, 0)
#define VIT_QKV(our, their)                                                                                            \
    PLAIN(our ".weight", their ".weight", 'D', 'D'), WHEN('v', our ".bias", their ".bias", 'D', 0)
#define IN_FILE(our, their, rows, cols, a, b, c, d)                                                                    \
    {                                                                                                                  \
        our, their, {rows, cols, 0}, false, 0, 0, false, 0, 0, 0, {a, b, c, d}, 0                                      \
    }
static const struct hf_name vit_first[] = {
    IN_FILE("embed.patch.weight", "embeddings.patch_embeddings.projection.weight", 'D', 'U', 'D', 'h', 'p', 'p'),
    IN_FILE("embed.class", "embeddings.cls_token", 'D', 0, '1', '1', 'D', 0),
    PLAIN("embed.patch.bias", "embeddings.patch_embeddings.projection.bias", 'D', 0),
    IN_FILE("embed.position", "embeddings.position_embeddings", 'P', 'D', '1', 'P', 'D', 0),
    END,
};
static const struct hf_name vit_layer[] = {
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
static const struct hf_name vit_last[] = {
    VIT("norm", "layernorm", 'D', 0),
    {"head.weight", "classifier.weight", {'C', 'D', 0}, false, 0, 0, true, 0, 0, 0, {0}, 0},
    {"head.bias", "classifier.bias", {'C', 0, 0}, false, 0, 0, true, 0, 0, 0, {0}, 0},
    END,
};

static const struct hf_name bert_first[] = {
    PLAIN("embed.token", "embeddings.word_embeddings.weight", 'V', 'D'),
    PLAIN("embed.position", "embeddings.position_embeddings.weight", 'P', 'D'),
    PLAIN("embed.segment", "embeddings.token_type_embeddings.weight", 'Y', 'D'),
    VIT("embed.norm", "embeddings.LayerNorm", 'D', 0),
    END,
};
static const struct hf_name bert_layer[] = {
    VIT("layers.%d.attn.q", "encoder.layer.%d.attention.self.query", 'D', 'D'),
    VIT("layers.%d.attn.k", "encoder.layer.%d.attention.self.key", 'D', 'D'),
    VIT("layers.%d.attn.v", "encoder.layer.%d.attention.self.value", 'D', 'D'),
    VIT("layers.%d.attn.o", "encoder.layer.%d.attention.output.dense", 'D', 'D'),
    VIT("layers.%d.norm1", "encoder.layer.%d.attention.output.LayerNorm", 'D', 0),
    VIT("layers.%d.mlp.up", "encoder.layer.%d.intermediate.dense", 'F', 'D'),
    VIT("layers.%d.mlp.down", "encoder.layer.%d.output.dense", 'D', 'F'),
    VIT("layers.%d.norm2", "encoder.layer.%d.output.LayerNorm", 'D', 0),
    END,
};
static const struct hf_name bert_last[] = {
    WHEN('l', "head.transform.weight", "pooler.dense.weight", 'D', 'D'),
    WHEN('l', "head.transform.bias", "pooler.dense.bias", 'D', 0),
    ALONE('l', "head.weight", "classifier.weight", 'C', 'D'),
    ALONE('l', "head.bias", "classifier.bias", 'C', 0),
    ALONE('u', "head.transform.weight", "cls.predictions.transform.dense.weight", 'D', 'D'),
    ALONE('u', "head.transform.bias", "cls.predictions.transform.dense.bias", 'D', 0),
    ALONE('u', "head.norm.weight", "cls.predictions.transform.LayerNorm.weight", 'D', 0),
    ALONE('u', "head.norm.bias", "cls.predictions.transform.LayerNorm.bias", 'D', 0),
    ALONE('u', "head.bias", "cls.predictions.bias", 'V', 0),
    ALONE('u', "head.weight", "cls.predictions.decoder.weight", 'V', 'D'),
    END,
};

#define T5_ATTENTION(our, their)                                                                                       \
    PLAIN(our ".q.weight", their ".q.weight", 'Q', 'D'), PLAIN(our ".k.weight", their ".k.weight", 'Q', 'D'),          \
        PLAIN(our ".v.weight", their ".v.weight", 'Q', 'D'), PLAIN(our ".o.weight", their ".o.weight", 'D', 'Q')
#define T5_OWN(our, their)                                                                                             \
    PLAIN(our ".norm1.weight", their ".layer.0.layer_norm.weight", 'D', 0),                                            \
        T5_ATTENTION(our ".attn", their ".layer.0.SelfAttention")
#define T5_MLP(our, their)                                                                                             \
    PLAIN(our ".norm2.weight", their ".layer_norm.weight", 'D', 0),                                                    \
        WHEN('G', our ".mlp.gate.weight", their ".DenseReluDense.wi_0.weight", 'F', 'D'),                              \
        WHEN('G', our ".mlp.up.weight", their ".DenseReluDense.wi_1.weight", 'F', 'D'),                                \
        WHEN('U', our ".mlp.up.weight", their ".DenseReluDense.wi.weight", 'F', 'D'),                                  \
        PLAIN(our ".mlp.down.weight", their ".DenseReluDense.wo.weight", 'D', 'F')
static const struct hf_name t5_first[] = {
    PLAIN("embed.token", "shared.weight", 'V', 'D'),
    PLAIN("embed.encoder_bias", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 'b', 'H'),
    PLAIN("embed.decoder_bias", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 'b', 'H'),
    PLAIN("encoder_norm.weight", "encoder.final_layer_norm.weight", 'D', 0),
    END,
};
static const struct hf_name t5_encoder[] = {
    T5_OWN("encoder.%d", "encoder.block.%d"),
    T5_MLP("encoder.%d", "encoder.block.%d.layer.1"),
    END,
};
static const struct hf_name t5_decoder[] = {
    T5_OWN("layers.%d", "decoder.block.%d"),
    PLAIN("layers.%d.norm_cross.weight", "decoder.block.%d.layer.1.layer_norm.weight", 'D', 0),
    T5_ATTENTION("layers.%d.cross", "decoder.block.%d.layer.1.EncDecAttention"),
    T5_MLP("layers.%d", "decoder.block.%d.layer.2"),
    END,
};
static const struct hf_name t5_last[] = {
    PLAIN("norm.weight", "decoder.final_layer_norm.weight", 'D', 0),
    ALONE(0, "head.weight", "lm_head.weight", 'V', 'D'),
    END,
};

/* Their names in files of transformers 4; hf_read.c knows newer ones. All but the text's layers stand with their whole
 * names. */
#define TOWER "vision_tower.vision_model."
#define WHOLE_PAIR(our, their, rows, cols)                                                                             \
    ALONE(0, our ".weight", their ".weight", rows, cols), ALONE(0, our ".bias", their ".bias", rows, 0)
static const struct hf_name llava_first[] = {
    {.ours = "vision.embed.patch.weight",
     .theirs = TOWER "embeddings.patch_embedding.weight",
     .size = {'v', 'u', 0},
     .head = true,
     .file = {'v', 'e', 'R', 'R'}},
    ALONE('c', "vision.embed.class", TOWER "embeddings.class_embedding", 'v', 0),
    ALONE('P', "vision.embed.patch.bias", TOWER "embeddings.patch_embedding.bias", 'v', 0),
    ALONE(0, "vision.embed.position", TOWER "embeddings.position_embedding.weight", 'l', 'v'),
    ALONE('p', "vision.embed.norm.weight", TOWER "pre_layrnorm.weight", 'v', 0),
    ALONE('p', "vision.embed.norm.bias", TOWER "pre_layrnorm.bias", 'v', 0),
    WHOLE_PAIR("projector.up", "multi_modal_projector.linear_1", 'D', 'v'),
    WHOLE_PAIR("projector.down", "multi_modal_projector.linear_2", 'D', 'D'),
    PLAIN("embed.token", "embed_tokens.weight", 'V', 'D'),
    END,
};
static const struct hf_name llava_tower[] = {
    WHOLE_PAIR("vision.layers.%d.norm1", TOWER "encoder.layers.%d.layer_norm1", 'v', 0),
    WHOLE_PAIR("vision.layers.%d.attn.q", TOWER "encoder.layers.%d.self_attn.q_proj", 'v', 'v'),
    WHOLE_PAIR("vision.layers.%d.attn.k", TOWER "encoder.layers.%d.self_attn.k_proj", 'v', 'v'),
    WHOLE_PAIR("vision.layers.%d.attn.v", TOWER "encoder.layers.%d.self_attn.v_proj", 'v', 'v'),
    WHOLE_PAIR("vision.layers.%d.attn.o", TOWER "encoder.layers.%d.self_attn.out_proj", 'v', 'v'),
    WHOLE_PAIR("vision.layers.%d.norm2", TOWER "encoder.layers.%d.layer_norm2", 'v', 0),
    WHOLE_PAIR("vision.layers.%d.mlp.up", TOWER "encoder.layers.%d.mlp.fc1", 'M', 'v'),
    WHOLE_PAIR("vision.layers.%d.mlp.down", TOWER "encoder.layers.%d.mlp.fc2", 'v', 'M'),
    END,
};
static const struct hf_name llava_last[] = {
    PLAIN("norm.weight", "norm.weight", 'D', 0),
    ALONE(0, "head.weight", "language_model.lm_head.weight", 'V', 'D'),
    END,
};

static const struct hf_name mamba2_first[] = {
    PLAIN("embed.token", "embeddings.weight", 'V', 'D'),
    END,
};
#define INTO(our, rows, from)                                                                                          \
    PIECE("layers.%d.ssm." our ".weight", "layers.%d.mixer.in_proj.weight", rows, 'D', from, 'Z')
#define INTO_BIAS(our, rows, from)                                                                                     \
    {                                                                                                                  \
        .ours = "layers.%d.ssm." our ".bias", .theirs = "layers.%d.mixer.in_proj.bias", .size = {rows, 0, 0},          \
        .when = 'z', .before = from, .whole = 'Z'                                                                      \
    }
#define TAPS(our, rows, from)                                                                                          \
    {                                                                                                                  \
        .ours = "layers.%d.ssm.conv_" our ".weight", .theirs = "layers.%d.mixer.conv1d.weight",                        \
        .size = {rows, 't', 0}, .before = from, .whole = 'x',                                                          \
        .file =                                                                                                        \
        { 'x',                                                                                                         \
          '1',                                                                                                         \
          't',                                                                                                         \
          0 }                                                                                                          \
    }
#define TAPS_BIAS(our, rows, from)                                                                                     \
    {                                                                                                                  \
        .ours = "layers.%d.ssm.conv_" our ".bias", .theirs = "layers.%d.mixer.conv1d.bias", .size = {rows, 0, 0},      \
        .when = 'y', .before = from, .whole = 'x'                                                                      \
    }
static const struct hf_name mamba2_layer[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.norm.weight", 'D', 0),
    INTO("z", 'I', 0),
    INTO("x", 'I', 'I'),
    INTO("b", 'N', 'd'),
    INTO("c", 'N', 'n'),
    INTO("dt", 'g', 'w'),
    INTO_BIAS("z", 'I', 0),
    INTO_BIAS("x", 'I', 'I'),
    INTO_BIAS("b", 'N', 'd'),
    INTO_BIAS("c", 'N', 'n'),
    INTO_BIAS("dt", 'g', 'w'),
    TAPS("x", 'I', 0),
    TAPS("b", 'N', 'I'),
    TAPS("c", 'N', 'm'),
    TAPS_BIAS("x", 'I', 0),
    TAPS_BIAS("b", 'N', 'I'),
    TAPS_BIAS("c", 'N', 'm'),
    PLAIN("layers.%d.ssm.decay", "layers.%d.mixer.A_log", 'g', 0),
    PLAIN("layers.%d.ssm.step", "layers.%d.mixer.dt_bias", 'g', 0),
    PLAIN("layers.%d.ssm.skip", "layers.%d.mixer.D", 'g', 0),
    PLAIN("layers.%d.ssm.norm.weight", "layers.%d.mixer.norm.weight", 'I', 0),
    PLAIN("layers.%d.ssm.out.weight", "layers.%d.mixer.out_proj.weight", 'D', 'I'),
    WHEN('z', "layers.%d.ssm.out.bias", "layers.%d.mixer.out_proj.bias", 'D', 0),
    END,
};
static const struct hf_name mamba2_last[] = {
    PLAIN("norm.weight", "norm_f.weight", 'D', 0),
    {.ours = "head.weight", .theirs = "lm_head.weight", .size = {'V', 'D', 0}, .head = true},
    END,
};

/* Hybrids of state spaces and attention: a layer is one of these runs, behind its norm. */
static const struct hf_name nemotron_h_attention[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.norm.weight", 'D', 0),
    PLAIN("layers.%d.attn.q.weight", "layers.%d.mixer.q_proj.weight", 'Q', 'D'),
    PLAIN("layers.%d.attn.k.weight", "layers.%d.mixer.k_proj.weight", 'K', 'D'),
    PLAIN("layers.%d.attn.v.weight", "layers.%d.mixer.v_proj.weight", 'K', 'D'),
    PLAIN("layers.%d.attn.o.weight", "layers.%d.mixer.o_proj.weight", 'D', 'Q'),
    END,
};
static const struct hf_name nemotron_h_mlp[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.norm.weight", 'D', 0),
    PLAIN("layers.%d.mlp.up.weight", "layers.%d.mixer.up_proj.weight", 'F', 'D'),
    PLAIN("layers.%d.mlp.down.weight", "layers.%d.mixer.down_proj.weight", 'D', 'F'),
    END,
};
const struct hf_name_run hf_kind_names[LAYER_KINDS][HF_LAYER_RUNS] = {[LAYER_SCAN] = {{mamba2_layer, false}},
                                                                      [LAYER_ATTENTION] = {{nemotron_h_attention,
                                                                                            false}},
                                                                      [LAYER_MLP] = {{nemotron_h_mlp, false}}};

/* Beside the block of a module that predicts further tokens. */
const struct hf_name hf_mtp_names[] = {
    PLAIN("layers.%d.mtp.ahead_norm.weight", "layers.%d.enorm.weight", 'D', 0),
    PLAIN("layers.%d.mtp.stream_norm.weight", "layers.%d.hnorm.weight", 'D', 0),
    PLAIN("layers.%d.mtp.join.weight", "layers.%d.eh_proj.weight", 'D', 'G'),
    PLAIN("layers.%d.mtp.norm.weight", "layers.%d.shared_head.norm.weight", 'D', 0),
    END,
};

/* clang-format off */
#define DECODER(attention, mlp)                                                                                        \
    {llama_first, llama_last, {{attention, false}, {mlp, false}}, {{NULL, false}}, "model.",                           \
     {".rotary_emb.inv_freq", NULL}, NULL}
static const struct hf_family_names
    decoder_names = DECODER(decoder_attention, decoder_mlp),
    olmo2_names = DECODER(olmo2_attention, decoder_mlp),
    phi3_names = DECODER(phi3_attention, phi3_mlp),
    gemma_names = DECODER(gemma_attention, decoder_mlp),
    qwen3_moe_names = {llama_first, llama_last, {{decoder_attention, false}, {decoder_mlp, false}},
                       {{decoder_attention, false}, {deepseek_router, false}, {deepseek_open, true}, {deepseek_close, true}},
                       "model.", {".rotary_emb.inv_freq", NULL}, NULL},
    gpt_oss_names = {llama_first, llama_last, {{gpt_oss_attention, false}},
                     {{gpt_oss_attention, false}, {gpt_oss_open, true}, {gpt_oss_open_bias, true}, {gpt_oss_close, true},
                      {gpt_oss_close_bias, true}},
                     "model.", {".rotary_emb.inv_freq", NULL}, NULL},
    mixtral_names = {llama_first, llama_last, {{llama_attention, false}, {llama_mlp, false}},
                     {{llama_attention, false}, {mixtral_router, false}, {mixtral_open, true}, {mixtral_close, true}}, "model.",
                     {".rotary_emb.inv_freq", NULL}, NULL},
    deepseek_names = {llama_first, llama_last, {{deepseek_attention, false}, {llama_mlp, false}},
                      {{deepseek_attention, false}, {deepseek_router, false}, {deepseek_open, true}, {deepseek_close, true},
                       {deepseek_shared, false}},
                      "model.", {".rotary_emb.inv_freq", NULL}, NULL},
    llava_names = {llava_first, llava_last, {{decoder_attention, false}, {decoder_mlp, false}}, {{NULL, false}},
                   "language_model.model.", {".rotary_emb.inv_freq", ".position_ids", NULL}, llava_tower},
    gpt2_names = {gpt2_first, gpt2_last, {{gpt2_layer, false}}, {{NULL, false}}, "transformer.",
                  {".attn.bias", ".attn.masked_bias", NULL}, NULL},
    /* Tables that are the shared one under other names; and between the stacks a bias of early files that is never read. */
    t5_names = {t5_first, t5_last, {{t5_decoder, false}}, {{NULL, false}}, "",
                {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                 "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", NULL}, t5_encoder},
    vit_names = {vit_first, vit_last, {{vit_layer, false}}, {{NULL, false}}, "vit.", {NULL}, NULL},
    mamba2_names = {mamba2_first, mamba2_last, {{mamba2_layer, false}}, {{NULL, false}}, "backbone.", {NULL}, NULL},
    nemotron_h_names = {mamba2_first, mamba2_last, {{NULL, false}}, {{NULL, false}}, "backbone.", {NULL}, NULL}, /* hf_kind_names */
    /* The bias of the output matrix is kept twice in older files, and a head of pretraining beside the one that is here. */
    bert_names = {bert_first, bert_last, {{bert_layer, false}}, {{NULL, false}}, "bert.",
                  {".position_ids", "cls.predictions.decoder.bias", "cls.seq_relationship.weight", "cls.seq_relationship.bias", NULL}, NULL};

const struct hf_family_names *const hf_family_names[HF_N] = {
#define MODEL_TYPE(id, letters, family, type, writes, scores, settle, names, ...) [HF_##id] = &names##_names,
#include "model/families.def"
};
/* clang-format on */

const char *hf_prefix(enum hf_family f) { return hf_family_names[f]->prefix; }
