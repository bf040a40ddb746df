/* Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024): RMSNorm before each half, rotary positions, grouped
 * query attention, SwiGLU. Initial values: normal, 0.02; matrices that write to the residual stream are scaled by
 * 1/sqrt(2 layers) (Radford et al. 2019). */
#include <math.h>

#include "nn/layers.h"

static void declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * c->layers);
    struct declare table = {INIT_NORMAL, std, -1, over_vocab(x->par), {0, 0}};
    int64_t VD[2] = {c->vocab, c->hidden}, FD[2] = {c->ffn, c->hidden}, DF[2] = {c->hidden, c->ffn};
    layer_declare(x, table, 2, VD, "embed.token");
    for (int l = 0; l < c->layers; l++) {
        struct declare gain = {INIT_ONES, 0, l, over_stream(x->par), {0, 0}},
                       column = {INIT_NORMAL, std, l, SPMD_S0, {0, 0}}, row = {INIT_NORMAL, std_out, l, SPMD_S1, {0, 0}};
        layer_declare(x, gain, 1, &c->hidden, "layers.%d.norm1.weight", l);
        attention_declare(x, l, false, std, std_out);
        layer_declare(x, gain, 1, &c->hidden, "layers.%d.norm2.weight", l);
        layer_declare(x, column, 2, FD, "layers.%d.mlp.gate.weight", l);
        layer_declare(x, column, 2, FD, "layers.%d.mlp.up.weight", l);
        layer_declare(x, row, 2, DF, "layers.%d.mlp.down.weight", l);
    }
    layer_declare(x, (struct declare){INIT_ONES, 0, -1, over_stream(x->par), {0, 0}}, 1, &c->hidden, "norm.weight");
    table.layer = -2; /* by itself: its gradient is there after the forward pass, the norm's only after the backward */
    if (!c->tie) layer_declare(x, table, 2, VD, "head.weight");
}

static tid embed(struct layer_ctx *x, tid ids_T)
{
    tid h_TD = embed_tokens(x, ids_T);
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), x->index_T, "embed.dropout");
}

static tid norm(struct layer_ctx *x, tid h_TD, tid w_D, const char *label)
{
    return op_rmsnorm(x->t, h_TD, w_D, (float)x->c->norm_eps, label);
}

static tid block(struct layer_ctx *x, tid h_TD, int l)
{
    float p = (float)x->c->dropout;
    tid n_TD = norm(x, h_TD, layer_param(x, 1, "layers.%d.norm1.weight", l), "norm1");
    tid o_TD = attention_record(x, n_TD, l, false, true);
    h_TD = op_add(x->t, h_TD, o_TD, p, dropout_stream("attn.o", l), x->index_T, "residual1");

    n_TD = norm(x, h_TD, layer_param(x, 1, "layers.%d.norm2.weight", l), "norm2");
    n_TD = region_enter(x, n_TD);
    tid w_gate_up = layer_param(x, 2, "layers.%d.mlp.gate.weight", l);
    tid a_TF = op_act(x->t, op_linear(x->t, n_TD, w_gate_up, TID_NONE, "gate_up"), ACT_SWIGLU, "swiglu");
    tid d_TD = op_linear(x->t, a_TF, layer_param(x, 1, "layers.%d.mlp.down.weight", l), TID_NONE, "down");
    d_TD = region_leave(x, d_TD);
    return op_add(x->t, h_TD, d_TD, p, dropout_stream("mlp.down", l), x->index_T, "residual2");
}

static tid final_norm(struct layer_ctx *x, tid h_TD)
{
    return norm(x, h_TD, layer_param(x, 1, "norm.weight"), "norm");
}

const struct family family_llama = {"llama", true, declare, embed, block, final_norm};
