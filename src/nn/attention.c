/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by heads. q, k and v are separate parameters that lie next to each other, so one matrix product makes
 * all three; each is a range of columns of its result. Rotary turns q and k in place. Over tp the heads are split:
 * column-parallel in, row-parallel out, one reduction (Shoeybi et al., "Megatron-LM", 2019, section 3). */
#include <stdio.h>

#include "base/rng.h"
#include "nn/layers.h"
#include "parallel/context.h"

uint64_t dropout_stream(const char *what, int layer)
{
    char name[64];
    snprintf(name, sizeof name, "dropout/%s/%d", what, layer);
    return rng_stream(name);
}

struct heads heads_here(const struct model_config *c, const struct par *p)
{
    bool own = c->mla.kv_rank > 0; /* every query head has its keys and values made for it */
    struct heads h = {.kv_split = own || c->kv_heads >= p->size[AXIS_TP], .together = 1};
    if (h.kv_split) {
        h.together = c->heads / c->kv_heads;
        par_share(p, AXIS_TP, c->kv_heads, &h.kv.lo, &h.kv.hi);
        h.q = (struct share){h.kv.lo * h.together, h.kv.hi * h.together};
    } else {
        par_share(p, AXIS_TP, c->heads, &h.q.lo, &h.q.hi);
        h.kv.hi = c->kv_heads;
    }
    return h;
}

static int64_t count(struct share s) { return s.hi - s.lo; }

void attention_declare(struct declare_ctx *x, int layer, struct attention_bias bias, double std, double std_out)
{
    const struct model_config *c = x->c;
    int64_t A = c->head_dim, HA = c->heads * A, GA = c->kv_heads * A, rows[3] = {HA, GA, GA};
    struct heads h = heads_here(c, x->par);
    int64_t q = h.together * A, kv = h.kv_split ? A : 0;
    for (int i = 0; i < 3; i++) {
        struct declare d = {INIT_NORMAL, std, layer, i == 0 || h.kv_split ? SPMD_S0 : SPMD_R, i ? kv : q};
        layer_declare(x, d, 2, (int64_t[]){rows[i], c->hidden}, "layers.%d.attn.%c.weight", layer, "qkv"[i]);
    }
    for (int i = 0; bias.qkv && i < 3; i++) {
        struct declare d = {INIT_ZEROS, 0, layer, i == 0 || h.kv_split ? SPMD_S0 : SPMD_R, i ? kv : q};
        layer_declare(x, d, 1, &rows[i], "layers.%d.attn.%c.bias", layer, "qkv"[i]);
    }
    layer_declare(x, (struct declare){INIT_NORMAL, std_out, layer, SPMD_S1, q}, 2, (int64_t[]){c->hidden, HA},
                  "layers.%d.attn.o.weight", layer);
    if (bias.o)
        layer_declare(x, (struct declare){INIT_ZEROS, 0, layer, SPMD_I, 0}, 1, &c->hidden, "layers.%d.attn.o.bias",
                      layer);
}

static struct rotary_attrs head_pairs(const struct layer_ctx *x, int64_t heads)
{
    return (struct rotary_attrs){.heads = to_int(heads), .head_dim = x->c->head_dim};
}

tid attention_between(struct layer_ctx *x, tid q, tid k, tid v, int layer, double scale)
{
    const struct model_config *c = x->c;
    struct heads h = heads_here(c, x->par);
    struct attention_attrs shape = {
        .batch = x->s->batch,
        .seq = x->s->seq,
        .heads = to_int(count(h.q)),
        .kv_heads = to_int(count(h.kv)),
        .head_first = to_int(h.q.lo),
        .kv_first = to_int(h.kv.lo),
        .group = c->heads / c->kv_heads,
        .heads_all = c->heads,
        .head_dim = c->head_dim,
        .causal = !model_sees(c), /* a patch sees all of its picture */
        .dropout = {(float)c->dropout, dropout_stream("attention", layer)},
        .scale = (float)scale,
    };
    if (x->s->mode != MODEL_DECODE) return par_attention(x->t, x->par, q, k, v, x->doc_T, shape, "attention");
    int64_t n[2] = {x->s->cache_rows, count(h.kv) * c->head_dim};
    int slot = slot_cache(x->params->n, layer);
    if (x->t->err.code) return TID_NONE;
    struct spmd_type type = tape_tensor(x->t, k)->type; /* a cache lies where its keys and values lie */
    tid cache_k = tape_input(x->t, "cache_k", slot, x->s->dtype, 2, n, type);
    tid cache_v = tape_input(x->t, "cache_v", slot + 1, x->s->dtype, 2, n, type);
    return op_attention_cached(x->t, q, k, v, x->pos_T, cache_k, cache_v, shape, "attention");
}

struct qkv {
    tid q_THA, k_TGA, v_TGA;
};

/* One product makes q, k and v of this rank's heads. */
static void project_together(struct layer_ctx *x, tid h_TD, int layer, bool bias, bool rope, struct qkv *p)
{
    struct heads h = heads_here(x->c, x->par);
    int64_t A = x->c->head_dim, HA = count(h.q) * A, GA = count(h.kv) * A;
    tid w_qkv = layer_param(x, 3, "layers.%d.attn.q.weight", layer);
    tid b_qkv = bias ? layer_param(x, 3, "layers.%d.attn.q.bias", layer) : TID_NONE;
    tid qkv = op_linear(x->t, h_TD, w_qkv, b_qkv, "qkv");
    tid qk = tape_cols(x->t, qkv, 0, HA + GA);
    if (rope) qk = op_rotary(x->t, qk, x->pos_T, x->rope_PA, head_pairs(x, count(h.q) + count(h.kv)), "qk");
    *p = (struct qkv){tape_cols(x->t, qk, 0, HA), tape_cols(x->t, qk, HA, GA), tape_cols(x->t, qkv, HA + GA, GA)};
}

/* More ranks than key heads: q is split, k and v are made whole on every rank. */
static void project_apart(struct layer_ctx *x, tid h_TD, int layer, bool bias, bool rope, struct qkv *p)
{
    struct heads h = heads_here(x->c, x->par);
    int64_t A = x->c->head_dim, GA = count(h.kv) * A;
    tid w_q = layer_param(x, 1, "layers.%d.attn.q.weight", layer),
        w_kv = layer_param(x, 2, "layers.%d.attn.k.weight", layer);
    tid b_q = bias ? layer_param(x, 1, "layers.%d.attn.q.bias", layer) : TID_NONE;
    tid b_kv = bias ? layer_param(x, 2, "layers.%d.attn.k.bias", layer) : TID_NONE;
    tid q = op_linear(x->t, h_TD, w_q, b_q, "q"), kv = op_linear(x->t, h_TD, w_kv, b_kv, "kv");
    tid k = tape_cols(x->t, kv, 0, GA);
    if (rope) q = op_rotary(x->t, q, x->pos_T, x->rope_PA, head_pairs(x, count(h.q)), "q");
    if (rope) k = op_rotary(x->t, k, x->pos_T, x->rope_PA, head_pairs(x, count(h.kv)), "k");
    *p = (struct qkv){q, k, tape_cols(x->t, kv, GA, GA)};
}

tid attention_record(struct layer_ctx *x, tid h_TD, int layer, struct attention_bias bias, bool rope)
{
    struct qkv p;
    h_TD = region_enter(x, h_TD);
    if (heads_here(x->c, x->par).kv_split) project_together(x, h_TD, layer, bias.qkv, rope, &p);
    else project_apart(x, h_TD, layer, bias.qkv, rope, &p);
    tid o_THA = attention_between(x, p.q_THA, p.k_TGA, p.v_TGA, layer, 0);
    tid w_o = layer_param(x, 1, "layers.%d.attn.o.weight", layer);
    tid b_o = bias.o ? layer_param(x, 1, "layers.%d.attn.o.bias", layer) : TID_NONE;
    return region_leave(x, op_linear_partial(x->t, o_THA, w_o, b_o, x->par->rank[AXIS_TP] != 0, "attn.o"));
}
