/* Attention by heads. q, k and v are separate parameters that lie next to each other, so one matrix product makes
 * all three; each is a range of columns of its result. Rotary turns q and k in place. Over tp the heads are split:
 * column-parallel in, row-parallel out, one reduction (Shoeybi et al., "Megatron-LM", 2019, section 3). */
#include <stdio.h>

#include "base/rng.h"
#include "nn/layers.h"

uint64_t dropout_stream(const char *what, int layer)
{
    char name[64];
    snprintf(name, sizeof name, "dropout/%s/%d", what, layer);
    return rng_stream(name);
}

void attention_declare(const struct model_config *c, struct param_table *t, int layer, bool bias, double std,
                       double std_out)
{
    int64_t HA = (int64_t)c->heads * c->head_dim, GA = (int64_t)c->kv_heads * c->head_dim, rows[3] = {HA, GA, GA};
    struct declare column = {INIT_NORMAL, std, layer, SPMD_S0}, zeros = {INIT_ZEROS, 0, layer, SPMD_S0};
    for (int i = 0; i < 3; i++)
        layer_declare(t, column, 2, (int64_t[]){rows[i], c->hidden}, "layers.%d.attn.%c.weight", layer, "qkv"[i]);
    for (int i = 0; bias && i < 3; i++) layer_declare(t, zeros, 1, &rows[i], "layers.%d.attn.%c.bias", layer, "qkv"[i]);
    layer_declare(t, (struct declare){INIT_NORMAL, std_out, layer, SPMD_S1}, 2, (int64_t[]){c->hidden, HA},
                  "layers.%d.attn.o.weight", layer);
    if (bias)
        layer_declare(t, (struct declare){INIT_ZEROS, 0, layer, SPMD_I}, 1, &c->hidden, "layers.%d.attn.o.bias", layer);
}

static tid attend(struct layer_ctx *x, tid q, tid k, tid v, int layer)
{
    const struct model_config *c = x->c;
    struct attention_shape shape = {
        .batch = x->s->batch,
        .seq = x->s->seq,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .causal = true,
        .dropout = (float)c->dropout,
        .stream = dropout_stream("attention", layer),
    };
    if (x->s->mode != MODEL_DECODE) return op_attention(x->t, q, k, v, x->doc_T, &shape, "attention");
    int64_t n[2] = {x->s->cache_rows, (int64_t)c->kv_heads * c->head_dim};
    int slot = slot_cache(x->params->n, layer);
    if (x->t->err.code) return TID_NONE;
    struct spmd_type type = tape_tensor(x->t, k)->type; /* a cache lies where its keys and values lie */
    tid cache_k = tape_input(x->t, "cache_k", slot, x->s->dtype, 2, n, type);
    tid cache_v = tape_input(x->t, "cache_v", slot + 1, x->s->dtype, 2, n, type);
    return op_attention_cached(x->t, q, k, v, x->pos_T, cache_k, cache_v, &shape, "attention");
}

tid attention_record(struct layer_ctx *x, tid h_TD, int layer, bool bias, bool rope)
{
    const struct model_config *c = x->c;
    int64_t HA = (int64_t)c->heads * c->head_dim, GA = (int64_t)c->kv_heads * c->head_dim;
    h_TD = par_enter(x->t, x->par, h_TD, AXIS_TP);
    tid w_qkv = layer_param(x, 3, "layers.%d.attn.q.weight", layer);
    tid b_qkv = bias ? layer_param(x, 3, "layers.%d.attn.q.bias", layer) : TID_NONE;
    tid qkv = op_linear(x->t, h_TD, w_qkv, b_qkv, "qkv");
    tid qk = tape_cols(x->t, qkv, 0, HA + GA);
    if (rope) qk = op_rotary(x->t, qk, x->pos_T, x->rope_PA, c->heads + c->kv_heads, c->head_dim, "qk");
    tid q_THA = tape_cols(x->t, qk, 0, HA);
    tid k_TGA = tape_cols(x->t, qk, HA, GA);
    tid v_TGA = tape_cols(x->t, qkv, HA + GA, GA);
    tid o_THA = attend(x, q_THA, k_TGA, v_TGA, layer);
    tid w_o = layer_param(x, 1, "layers.%d.attn.o.weight", layer);
    tid b_o = bias ? layer_param(x, 1, "layers.%d.attn.o.bias", layer) : TID_NONE;
    return par_reduce(x->t, x->par, op_linear(x->t, o_THA, w_o, b_o, "attn.o"), AXIS_TP);
}
