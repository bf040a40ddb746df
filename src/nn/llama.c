/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder of Llama (Touvron et al. 2023; Grattafiori et al. 2024) and of those that came after it: norms of the
 * root of squares, rotary positions, grouped query attention, gated feed-forward layers. What families differ in are
 * numbers (model/numbers.def): where norms stand, biases, norms of queries and keys, what the gate goes through, which
 * layers are local, turn by position, have experts. A family is a set of their defaults (model/families.def).
 *
 *   norm_place before   x += f(norm(x))                        Llama, Mistral, Qwen, Phi-3
 *              after    x += norm(f(x))                        OLMo 2
 *              both     x += norm(f(norm(x))), of two norms    Gemma 2 and 3
 *
 * Initial values: normal, 0.02; matrices that write to the residual stream are scaled by 1/sqrt(2 layers) (Radford et
 * al. 2019). */
#include <math.h>

#include "nn/layers.h"

static struct declare gain_of(const struct declare_ctx *x, int layer)
{
    enum param_init init = x->c->norm_plus_one ? INIT_ZEROS : INIT_ONES;
    return (struct declare){init, 0, layer, over_stream(x->par), 0};
}

void llama_declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * c->layers);
    struct declare table = {INIT_NORMAL, std, -1, over_vocab(x->par), 0};
    int64_t VD[2] = {c->vocab, c->hidden};
    bool before = c->norm_place != NORM_AFTER, after = c->norm_place != NORM_BEFORE;
    layer_declare(x, table, 2, VD, "embed.token");
    for (int l = 0; l < model_blocks(c); l++) {
        struct declare gain = gain_of(x, l);
        if (l >= c->layers) mtp_declare(x, l, std);
        if (before) layer_declare(x, gain, 1, &c->hidden, "layers.%d.norm1.weight", l);
        if (c->mla.kv_rank) mla_declare(x, l, std, std_out);
        else attention_declare(x, l, attention_of(c), std, std_out);
        if (after) layer_declare(x, gain, 1, &c->hidden, "layers.%d.norm1_after.weight", l);
        if (before) layer_declare(x, gain, 1, &c->hidden, "layers.%d.norm2.weight", l);
        if (model_layer_is_moe(c, l)) moe_declare(x, l, std, std_out);
        else mlp_declare(x, l, "mlp", c->ffn, c->mlp_bias, std, std_out);
        if (after) layer_declare(x, gain, 1, &c->hidden, "layers.%d.norm2_after.weight", l);
    }
    layer_declare(x, gain_of(x, -1), 1, &c->hidden, "norm.weight");
    head_declare(x);
}

tid llama_embed(struct layer_ctx *x, tid ids_T)
{
    tid h_TD = embed_tokens(x, ids_T);
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), x->index_T, "embed.dropout");
}

static tid norm(struct layer_ctx *x, tid h_TD, tid w_D, const char *label)
{
    return op_norm(x->t, h_TD, w_D, norm_of(x->c), label);
}

/* Of the half of a block that is named so, before it or of what comes out of it. */
static tid norm_at(struct layer_ctx *x, tid h_TD, int l, const char *name)
{
    return norm(x, h_TD, layer_param(x, 1, "layers.%d.%s.weight", l, name), name);
}

tid llama_block(struct layer_ctx *x, tid h_TD, int l)
{
    const struct model_config *c = x->c;
    float p = (float)c->dropout;
    bool before = c->norm_place != NORM_AFTER, after = c->norm_place != NORM_BEFORE;
    tid n_TD = before ? norm_at(x, h_TD, l, "norm1") : h_TD;
    tid o_TD = c->mla.kv_rank ? mla_record(x, n_TD, l) : attention_record(x, n_TD, l, attention_of(c));
    if (after) o_TD = norm_at(x, o_TD, l, "norm1_after");
    h_TD = op_add(x->t, h_TD, o_TD, p, dropout_stream("attn.o", l), x->index_T, "residual1");

    n_TD = before ? norm_at(x, h_TD, l, "norm2") : h_TD;
    tid d_TD = model_layer_is_moe(c, l) ? moe_record(x, n_TD, l)
                                        : region_leave(x, mlp_record(x, region_enter(x, n_TD), l, "mlp", c->mlp_bias));
    if (after) d_TD = norm_at(x, d_TD, l, "norm2_after");
    return op_add(x->t, h_TD, d_TD, p, dropout_stream("mlp.down", l), x->index_T, "residual2");
}

tid llama_norm(struct layer_ctx *x, tid h_TD) { return norm(x, h_TD, layer_param(x, 1, "norm.weight"), "norm"); }

const struct blocks blocks_decoder = {true, llama_declare, llama_embed, llama_block, llama_norm, NULL};
