/* GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each half, GELU (tanh form), biases everywhere,
 * tied embedding, dropout on embeddings, attention weights and both residual branches. Matrices that write to the
 * residual stream start at 0.02/sqrt(2 layers). */
#include <math.h>
#include <stdio.h>

#include "nn/layers.h"

static void declare_norm(const struct model_config *c, struct param_table *t, const char *prefix, int layer)
{
    char name[PARAM_NAME];
    snprintf(name, sizeof name, "%s.weight", prefix);
    param_add(t, name, 1, &c->hidden, INIT_ONES, 0, layer, type_weight(SPMD_I));
    snprintf(name, sizeof name, "%s.bias", prefix);
    param_add(t, name, 1, &c->hidden, INIT_ZEROS, 0, layer, type_weight(SPMD_I));
}

static void declare(const struct model_config *c, struct param_table *t)
{
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * c->layers);
    char name[PARAM_NAME];
    param_add(t, "embed.token", 2, (int64_t[]){c->vocab, c->hidden}, INIT_NORMAL, std, -1, type_weight(SPMD_I));
    param_add(t, "embed.position", 2, (int64_t[]){c->max_seq, c->hidden}, INIT_NORMAL, std, -1, type_weight(SPMD_I));
    for (int l = 0; l < c->layers; l++) {
        snprintf(name, sizeof name, "layers.%d.norm1", l);
        declare_norm(c, t, name, l);
        attention_declare(c, t, l, true, std, std_out);
        snprintf(name, sizeof name, "layers.%d.norm2", l);
        declare_norm(c, t, name, l);
        snprintf(name, sizeof name, "layers.%d.mlp.up.weight", l);
        param_add(t, name, 2, (int64_t[]){c->ffn, c->hidden}, INIT_NORMAL, std, l, type_weight(SPMD_S0));
        snprintf(name, sizeof name, "layers.%d.mlp.up.bias", l);
        param_add(t, name, 1, &c->ffn, INIT_ZEROS, 0, l, type_weight(SPMD_S0));
        snprintf(name, sizeof name, "layers.%d.mlp.down.weight", l);
        param_add(t, name, 2, (int64_t[]){c->hidden, c->ffn}, INIT_NORMAL, std_out, l, type_weight(SPMD_S1));
        snprintf(name, sizeof name, "layers.%d.mlp.down.bias", l);
        param_add(t, name, 1, &c->hidden, INIT_ZEROS, 0, l, type_weight(SPMD_I));
    }
    declare_norm(c, t, "norm", -1);
    if (!c->tie)
        param_add(t, "head.weight", 2, (int64_t[]){c->vocab, c->hidden}, INIT_NORMAL, std, -1, type_weight(SPMD_I));
}

static tid norm(struct layer_ctx *x, tid h_TD, const char *prefix, const char *label)
{
    char name[PARAM_NAME];
    snprintf(name, sizeof name, "%s.weight", prefix);
    tid w_D = layer_param(x, name, 1);
    snprintf(name, sizeof name, "%s.bias", prefix);
    tid b_D = layer_param(x, name, 1);
    return op_layernorm(x->t, h_TD, w_D, b_D, (float)x->c->norm_eps, label);
}

static tid linear(struct layer_ctx *x, tid h, int layer, const char *what)
{
    char name[PARAM_NAME];
    snprintf(name, sizeof name, "layers.%d.mlp.%s.weight", layer, what);
    tid w = layer_param(x, name, 1);
    snprintf(name, sizeof name, "layers.%d.mlp.%s.bias", layer, what);
    return op_linear(x->t, h, w, layer_param(x, name, 1), what);
}

static tid embed(struct layer_ctx *x, tid ids_T)
{
    tid token_TD = op_embed(x->t, ids_T, layer_param(x, "embed.token", 1), "embed.token");
    tid position_TD = op_embed(x->t, x->pos_T, layer_param(x, "embed.position", 1), "embed.position");
    tid h_TD = op_add(x->t, token_TD, position_TD, 0, 0, "embed");
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), "embed.dropout");
}

static tid block(struct layer_ctx *x, tid h_TD, int l)
{
    float p = (float)x->c->dropout;
    char prefix[PARAM_NAME];
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
