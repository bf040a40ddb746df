/* GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each half, GELU (tanh form), biases everywhere,
 * tied embedding, dropout on embeddings, attention weights and both residual branches. Matrices that write to the
 * residual stream start at 0.02/sqrt(2 layers). */
#include <math.h>
#include <stdio.h>

#include "nn/layers.h"

static void declare_norm(const struct model_config *c, struct param_table *t, int layer, const char *prefix)
{
    layer_declare(t, (struct declare){INIT_ONES, 0, layer, SPMD_I}, 1, &c->hidden, "%s.weight", prefix);
    layer_declare(t, (struct declare){INIT_ZEROS, 0, layer, SPMD_I}, 1, &c->hidden, "%s.bias", prefix);
}

static void declare(const struct model_config *c, struct param_table *t)
{
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * c->layers);
    struct declare whole = {INIT_NORMAL, std, -1, SPMD_I};
    int64_t VD[2] = {c->vocab, c->hidden}, FD[2] = {c->ffn, c->hidden}, DF[2] = {c->hidden, c->ffn};
    char prefix[32];
    layer_declare(t, whole, 2, VD, "embed.token");
    layer_declare(t, whole, 2, (int64_t[]){c->max_seq, c->hidden}, "embed.position");
    for (int l = 0; l < c->layers; l++) {
        snprintf(prefix, sizeof prefix, "layers.%d.norm1", l);
        declare_norm(c, t, l, prefix);
        attention_declare(c, t, l, true, std, std_out);
        snprintf(prefix, sizeof prefix, "layers.%d.norm2", l);
        declare_norm(c, t, l, prefix);
        layer_declare(t, (struct declare){INIT_NORMAL, std, l, SPMD_S0}, 2, FD, "layers.%d.mlp.up.weight", l);
        layer_declare(t, (struct declare){INIT_ZEROS, 0, l, SPMD_S0}, 1, &c->ffn, "layers.%d.mlp.up.bias", l);
        layer_declare(t, (struct declare){INIT_NORMAL, std_out, l, SPMD_S1}, 2, DF, "layers.%d.mlp.down.weight", l);
        layer_declare(t, (struct declare){INIT_ZEROS, 0, l, SPMD_I}, 1, &c->hidden, "layers.%d.mlp.down.bias", l);
    }
    declare_norm(c, t, -1, "norm");
    if (!c->tie) layer_declare(t, whole, 2, VD, "head.weight");
}

static tid norm(struct layer_ctx *x, tid h_TD, const char *prefix, const char *label)
{
    tid w_D = layer_param(x, 1, "%s.weight", prefix);
    return op_layernorm(x->t, h_TD, w_D, layer_param(x, 1, "%s.bias", prefix), (float)x->c->norm_eps, label);
}

static tid linear(struct layer_ctx *x, tid h, int l, const char *what)
{
    tid w = layer_param(x, 1, "layers.%d.mlp.%s.weight", l, what);
    return op_linear(x->t, h, w, layer_param(x, 1, "layers.%d.mlp.%s.bias", l, what), what);
}

static tid embed(struct layer_ctx *x, tid ids_T)
{
    tid token_TD = op_embed(x->t, ids_T, layer_param(x, 1, "embed.token"), "embed.token");
    tid position_TD = op_embed(x->t, x->pos_T, layer_param(x, 1, "embed.position"), "embed.position");
    tid h_TD = op_add(x->t, token_TD, position_TD, 0, 0, "embed");
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), "embed.dropout");
}

static tid block(struct layer_ctx *x, tid h_TD, int l)
{
    float p = (float)x->c->dropout;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "layers.%d.norm1", l);
    tid o_TD = attention_record(x, norm(x, h_TD, prefix, "norm1"), l, true, false);
    h_TD = op_add(x->t, h_TD, o_TD, p, dropout_stream("attn.o", l), "residual1");

    snprintf(prefix, sizeof prefix, "layers.%d.norm2", l);
    tid n_TD = par_enter(x->t, x->par, norm(x, h_TD, prefix, "norm2"), AXIS_TP);
    tid a_TF = op_act(x->t, linear(x, n_TD, l, "up"), ACT_GELU, "gelu");
    tid d_TD = par_reduce(x->t, x->par, linear(x, a_TF, l, "down"), AXIS_TP);
    return op_add(x->t, h_TD, d_TD, p, dropout_stream("mlp.down", l), "residual2");
}

static tid final_norm(struct layer_ctx *x, tid h_TD)
{
    return norm(x, h_TD, "norm", "norm");
}

const struct family family_gpt2 = {"gpt2", false, declare, embed, block, final_norm};
