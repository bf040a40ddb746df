/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each half, GELU (tanh form), biases everywhere,
 * tied embedding, dropout on embeddings, attention weights and both residual branches. Matrices that write to the
 * residual stream start at 0.02/sqrt(2 layers). */
#include <math.h>
#include <stdio.h>

#include "nn/layers.h"

static const struct plain_block as_gpt2 = {true, ACT_GELU};

void plain_declare_norm(struct declare_ctx *x, int layer, enum spmd over_tp, const char *prefix)
{
    layer_declare(x, (struct declare){INIT_ONES, 0, layer, over_tp, 0}, 1, &x->c->hidden, "%s.weight", prefix);
    layer_declare(x, (struct declare){INIT_ZEROS, 0, layer, over_tp, 0}, 1, &x->c->hidden, "%s.bias", prefix);
}

void plain_declare(struct declare_ctx *x, int l, struct plain_block b, double std, double std_out)
{
    const struct model_config *c = x->c;
    int64_t FD[2] = {c->ffn, c->hidden}, DF[2] = {c->hidden, c->ffn};
    char prefix[32];
    snprintf(prefix, sizeof prefix, "layers.%d.norm1", l);
    plain_declare_norm(x, l, over_stream(x->par), prefix);
    attention_declare(x, l, (struct attention_kind){b.qkv_bias, true, QK_NORM_NONE}, std, std_out);
    snprintf(prefix, sizeof prefix, "layers.%d.norm2", l);
    plain_declare_norm(x, l, over_stream(x->par), prefix);
    layer_declare(x, (struct declare){INIT_NORMAL, std, l, SPMD_S0, 0}, 2, FD, "layers.%d.mlp.up.weight", l);
    layer_declare(x, (struct declare){INIT_ZEROS, 0, l, SPMD_S0, 0}, 1, &c->ffn, "layers.%d.mlp.up.bias", l);
    layer_declare(x, (struct declare){INIT_NORMAL, std_out, l, SPMD_S1, 0}, 2, DF, "layers.%d.mlp.down.weight", l);
    layer_declare(x, (struct declare){INIT_ZEROS, 0, l, SPMD_I, 0}, 1, &c->hidden, "layers.%d.mlp.down.bias", l);
}

static void declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * c->layers);
    struct declare table = {INIT_NORMAL, std, -1, over_vocab(x->par), 0};
    struct declare position = {INIT_NORMAL, std, -1, over_stream(x->par), 0};
    int64_t VD[2] = {c->vocab, c->hidden};
    layer_declare(x, table, 2, VD, "embed.token");
    layer_declare(x, position, 2, (int64_t[]){c->max_positions, c->hidden}, "embed.position");
    for (int l = 0; l < c->layers; l++) plain_declare(x, l, as_gpt2, std, std_out);
    plain_declare_norm(x, -1, over_stream(x->par), "norm");
    head_declare(x);
}

tid plain_norm(struct layer_ctx *x, tid h_TD, const char *prefix, const char *label)
{
    tid w_D = layer_param(x, 1, "%s.weight", prefix);
    return op_layernorm(x->t, h_TD, w_D, layer_param(x, 1, "%s.bias", prefix), (float)x->c->norm_eps, label);
}

static tid up(struct layer_ctx *x, tid h, int l)
{
    tid w = layer_param(x, 1, "layers.%d.mlp.up.weight", l);
    return layer_linear(x, h, w, layer_param(x, 1, "layers.%d.mlp.up.bias", l), false, "up");
}

static tid embed(struct layer_ctx *x, tid ids_T)
{
    tid pos_T = x->par->sequence ? par_rows(x->t, x->par, x->pos_T, AXIS_TP) : x->pos_T;
    tid token_TD = embed_tokens(x, ids_T);
    tid position_TD =
        op_embed(x->t, pos_T, layer_param(x, 1, "embed.position"), (struct vocab_attrs){0}, "embed.position");
    tid h_TD = op_add(x->t, token_TD, position_TD, 0, 0, TID_NONE, "embed");
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), x->index_T, "embed.dropout");
}

tid plain_mlp(struct layer_ctx *x, tid h_TD, int l, enum act_kind act)
{
    tid a_TF = op_act(x->t, up(x, region_enter(x, h_TD), l), act, "gelu");
    tid w_down = layer_param(x, 1, "layers.%d.mlp.down.weight", l),
        b_down = layer_param(x, 1, "layers.%d.mlp.down.bias", l);
    return region_leave(x, layer_linear(x, a_TF, w_down, b_down, x->par->rank[AXIS_TP] != 0, "down"));
}

tid plain_block(struct layer_ctx *x, tid h_TD, int l, struct plain_block b)
{
    float p = (float)x->c->dropout;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "layers.%d.norm1", l);
    tid o_TD = attention_record(x, plain_norm(x, h_TD, prefix, "norm1"), l,
                                (struct attention_kind){b.qkv_bias, true, QK_NORM_NONE});
    h_TD = op_add(x->t, h_TD, o_TD, p, dropout_stream("attn.o", l), x->index_T, "residual1");

    snprintf(prefix, sizeof prefix, "layers.%d.norm2", l);
    tid d_TD = plain_mlp(x, plain_norm(x, h_TD, prefix, "norm2"), l, b.act);
    return op_add(x->t, h_TD, d_TD, p, dropout_stream("mlp.down", l), x->index_T, "residual2");
}

static tid block(struct layer_ctx *x, tid h_TD, int l) { return plain_block(x, h_TD, l, as_gpt2); }

static tid final_norm(struct layer_ctx *x, tid h_TD) { return plain_norm(x, h_TD, "norm", "norm"); }

const struct blocks blocks_gpt2 = {false, declare, embed, block, final_norm, NULL};
