/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024): RMSNorm before each half, rotary positions, grouped
 * query attention, SwiGLU. Initial values: normal, 0.02; matrices that write to the residual stream are scaled by
 * 1/sqrt(2 layers) (Radford et al. 2019). */
#include <math.h>

#include "nn/layers.h"

void llama_declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * c->layers);
    struct declare table = {INIT_NORMAL, std, -1, over_vocab(x->par), 0};
    int64_t VD[2] = {c->vocab, c->hidden};
    layer_declare(x, table, 2, VD, "embed.token");
    for (int l = 0; l < c->layers; l++) {
        struct declare gain = {INIT_ONES, 0, l, over_stream(x->par), 0};
        layer_declare(x, gain, 1, &c->hidden, "layers.%d.norm1.weight", l);
        if (c->mla.kv_rank) mla_declare(x, l, std, std_out);
        else attention_declare(x, l, (struct attention_bias){false, false}, std, std_out);
        layer_declare(x, gain, 1, &c->hidden, "layers.%d.norm2.weight", l);
        if (model_layer_is_moe(c, l)) moe_declare(x, l, std, std_out);
        else mlp_declare(x, l, "mlp", c->ffn, std, std_out);
    }
    layer_declare(x, (struct declare){INIT_ONES, 0, -1, over_stream(x->par), 0}, 1, &c->hidden, "norm.weight");
    table.layer = -2; /* by itself: its gradient is there after the forward pass, the norm's only after the backward */
    if (!c->tie_embeddings) layer_declare(x, table, 2, VD, "head.weight");
}

tid llama_embed(struct layer_ctx *x, tid ids_T)
{
    tid h_TD = embed_tokens(x, ids_T);
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), x->index_T, "embed.dropout");
}

static tid norm(struct layer_ctx *x, tid h_TD, tid w_D, const char *label)
{
    return op_rmsnorm(x->t, h_TD, w_D, (float)x->c->norm_eps, label);
}

tid llama_block(struct layer_ctx *x, tid h_TD, int l)
{
    float p = (float)x->c->dropout;
    tid n_TD = norm(x, h_TD, layer_param(x, 1, "layers.%d.norm1.weight", l), "norm1");
    tid o_TD = x->c->mla.kv_rank ? mla_record(x, n_TD, l)
                                 : attention_record(x, n_TD, l, (struct attention_bias){false, false}, true);
    h_TD = op_add(x->t, h_TD, o_TD, p, dropout_stream("attn.o", l), x->index_T, "residual1");

    n_TD = norm(x, h_TD, layer_param(x, 1, "layers.%d.norm2.weight", l), "norm2");
    tid d_TD = model_layer_is_moe(x->c, l) ? moe_record(x, n_TD, l)
                                           : region_leave(x, mlp_record(x, region_enter(x, n_TD), l, "mlp"));
    return op_add(x->t, h_TD, d_TD, p, dropout_stream("mlp.down", l), x->index_T, "residual2");
}

tid llama_norm(struct layer_ctx *x, tid h_TD) { return norm(x, h_TD, layer_param(x, 1, "norm.weight"), "norm"); }

const struct family family_llama = {"llama", true, llama_declare, llama_embed, llama_block, llama_norm, NULL};
