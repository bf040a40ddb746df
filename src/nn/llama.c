/* Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024): RMSNorm before each half, rotary positions, grouped
 * query attention, SwiGLU. Initial values: normal, 0.02; matrices that write to the residual stream are scaled by
 * 1/sqrt(2 layers) (Radford et al. 2019). */
#include <math.h>
#include <stdio.h>

#include "nn/layers.h"

static void declare(const struct model_config *c, struct param_table *t)
{
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * c->layers);
    char name[PARAM_NAME];
    param_add(t, "embed.token", 2, (int64_t[]){c->vocab, c->hidden}, INIT_NORMAL, std, -1, type_weight(SPMD_I));
    for (int l = 0; l < c->layers; l++) {
        snprintf(name, sizeof name, "layers.%d.norm1.weight", l);
        param_add(t, name, 1, &c->hidden, INIT_ONES, 0, l, type_weight(SPMD_I));
        attention_declare(c, t, l, false, std, std_out);
        snprintf(name, sizeof name, "layers.%d.norm2.weight", l);
        param_add(t, name, 1, &c->hidden, INIT_ONES, 0, l, type_weight(SPMD_I));
        snprintf(name, sizeof name, "layers.%d.mlp.gate.weight", l);
        param_add(t, name, 2, (int64_t[]){c->ffn, c->hidden}, INIT_NORMAL, std, l, type_weight(SPMD_S0));
        snprintf(name, sizeof name, "layers.%d.mlp.up.weight", l);
        param_add(t, name, 2, (int64_t[]){c->ffn, c->hidden}, INIT_NORMAL, std, l, type_weight(SPMD_S0));
        snprintf(name, sizeof name, "layers.%d.mlp.down.weight", l);
        param_add(t, name, 2, (int64_t[]){c->hidden, c->ffn}, INIT_NORMAL, std_out, l, type_weight(SPMD_S1));
    }
    param_add(t, "norm.weight", 1, &c->hidden, INIT_ONES, 0, -1, type_weight(SPMD_I));
    if (!c->tie)
        param_add(t, "head.weight", 2, (int64_t[]){c->vocab, c->hidden}, INIT_NORMAL, std, -1, type_weight(SPMD_I));
}

static tid embed(struct layer_ctx *x, tid ids_T)
{
    tid h_TD = op_embed(x->t, ids_T, layer_param(x, "embed.token", 1), "embed");
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), "embed.dropout");
}

static tid block(struct layer_ctx *x, tid h_TD, int l)
{
    float p = (float)x->c->dropout, eps = (float)x->c->norm_eps;
    char name[PARAM_NAME];
    snprintf(name, sizeof name, "layers.%d.norm1.weight", l);
    tid n_TD = op_rmsnorm(x->t, h_TD, layer_param(x, name, 1), eps, "norm1");
    tid o_TD = attention_record(x, n_TD, l, false, true);
    h_TD = op_add(x->t, h_TD, o_TD, p, dropout_stream("attn.o", l), "residual1");

    snprintf(name, sizeof name, "layers.%d.norm2.weight", l);
    n_TD = op_rmsnorm(x->t, h_TD, layer_param(x, name, 1), eps, "norm2");
    n_TD = par_enter(x->t, x->par, n_TD, AXIS_TP);
    snprintf(name, sizeof name, "layers.%d.mlp.gate.weight", l);
    tid gu_T2F = op_linear(x->t, n_TD, layer_param(x, name, 2), TID_NONE, "gate_up");
    tid a_TF = op_act(x->t, gu_T2F, ACT_SWIGLU, "swiglu");
    snprintf(name, sizeof name, "layers.%d.mlp.down.weight", l);
    tid d_TD = op_linear(x->t, a_TF, layer_param(x, name, 1), TID_NONE, "down");
    d_TD = par_reduce(x->t, x->par, d_TD, AXIS_TP);
    return op_add(x->t, h_TD, d_TD, p, dropout_stream("mlp.down", l), "residual2");
}

static tid final_norm(struct layer_ctx *x, tid h_TD)
{
    return op_rmsnorm(x->t, h_TD, layer_param(x, "norm.weight", 1), (float)x->c->norm_eps, "norm");
}

const struct family family_llama = {"llama", true, declare, embed, block, final_norm};
