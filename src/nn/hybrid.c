/* SPDX-License-Identifier: Apache-2.0 */
/* Hybrids of state spaces and attention, as Nemotron-H (NVIDIA 2025) has them: each layer is one thing, which
 * model.pattern says, with a norm before it. Mamba-2 is the one whose layers are all state spaces.
 *
 *   h += f(norm(h)),   f = a state space (mamba.c), attention of groups of heads without positions, or
 *                          down(max(up(x), 0) squared)
 *
 * States say where a token stands, so attention turns nothing. Each kind goes over tp and cp as it does elsewhere: of
 * the same sequence a rank's pieces are what the scan's states and the ring's keys come from. There are no biases but
 * those of the state spaces.
 *
 * Initial values are those of mamba.c: 0.02, and what writes to the stream scaled by the root of the layers, each of
 * which writes once. */
#include <math.h>

#include "nn/layers.h"

static const struct attention_kind plain = {false, false, QK_NORM_NONE};

static void declare_mlp(struct declare_ctx *x, int layer, double std, double std_out)
{
    int64_t D = x->c->hidden, F = x->c->ffn;
    layer_declare(x, (struct declare){INIT_NORMAL, std, layer, SPMD_S0, 0}, 2, (int64_t[]){F, D},
                  "layers.%d.mlp.up.weight", layer);
    layer_declare(x, (struct declare){INIT_NORMAL, std_out, layer, SPMD_S1, 0}, 2, (int64_t[]){D, F},
                  "layers.%d.mlp.down.weight", layer);
}

static void declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    double std = 0.02, std_out = 0.02 / sqrt((double)c->layers);
    struct declare table = {INIT_NORMAL, std, -1, over_vocab(x->par), 0},
                   norm = {INIT_ONES, 0, -1, over_stream(x->par), 0};
    int64_t VD[2] = {c->vocab, c->hidden};
    layer_declare(x, table, 2, VD, "embed.token");
    for (int l = 0; l < c->layers; l++) {
        norm.layer = l;
        layer_declare(x, norm, 1, &c->hidden, "layers.%d.norm1.weight", l);
        switch (model_layer_kind(c, l)) {
        case LAYER_SCAN: mamba_declare(x, l, std, std_out); break;
        case LAYER_ATTENTION: attention_declare(x, l, plain, std, std_out); break;
        default: declare_mlp(x, l, std, std_out);
        }
    }
    norm.layer = -1;
    layer_declare(x, norm, 1, &c->hidden, "norm.weight");
    table.layer = -2; /* by itself, as llama.c has it */
    if (!c->tie_embeddings) layer_declare(x, table, 2, VD, "head.weight");
}

static tid mlp(struct layer_ctx *x, tid n_TD, int l)
{
    tid up = layer_param(x, 1, "layers.%d.mlp.up.weight", l), down = layer_param(x, 1, "layers.%d.mlp.down.weight", l);
    tid u_TF = layer_linear(x, region_enter(x, n_TD), up, TID_NONE, false, "up");
    tid a_TF = op_act(x->t, u_TF, ACT_RELU2, "relu2");
    return region_leave(x, layer_linear(x, a_TF, down, TID_NONE, false, "down"));
}

static tid block(struct layer_ctx *x, tid h_TD, int l)
{
    static const char *const names[LAYER_KINDS] =
        {[LAYER_SCAN] = "ssm.out", [LAYER_ATTENTION] = "attn.o", [LAYER_MLP] = "mlp.down"};
    enum layer_kind kind = model_layer_kind(x->c, l);
    tid n_TD = op_norm(x->t, h_TD, layer_param(x, 1, "layers.%d.norm1.weight", l), norm_of(x->c), "norm1");
    tid o_TD = kind == LAYER_SCAN        ? mamba_record(x, n_TD, l)
               : kind == LAYER_ATTENTION ? attention_record(x, n_TD, l, plain)
                                         : mlp(x, n_TD, l);
    return op_add(x->t, h_TD, o_TD, (float)x->c->dropout, dropout_stream(names[kind], l), x->index_T, "residual");
}

static tid final_norm(struct layer_ctx *x, tid h_TD)
{
    return op_norm(x->t, h_TD, layer_param(x, 1, "norm.weight"), norm_of(x->c), "norm");
}

/* Of mamba2 every layer is a state space (model_layer_kind). */
const struct blocks blocks_hybrid = {false, declare, llama_embed, block, final_norm, NULL};
