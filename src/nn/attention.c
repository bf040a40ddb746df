/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by heads. q, k and v are separate parameters that lie next to each other, so one matrix product makes
 * all three; each is a range of columns of its result. Norms of q and k come before rotary, which turns in place. Over
 * tp the heads are split: column-parallel in, row-parallel out, one reduction (Shoeybi et al., "Megatron-LM", 2019,
 * section 3).
 *
 * Of fewer key heads than ranks each rank needs all. Their product is made outside of the region that tp splits, and
 * enters it as the stream does: then its gradient is summed over the ranks before it goes on, once, and weights and
 * scales see the gradient that one rank has. Rejected: the product inside of the region, where each rank has a part of
 * that gradient (no message of its own; but a part has no scale, and with sequence parallelism every rank would make
 * all keys instead of its tokens'). */
#include <math.h>
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

int64_t model_cache_cols(const struct model_config *c, const struct par *par)
{
    return count(heads_here(c, par).kv) * c->head_dim;
}

struct attention_kind attention_of(const struct model_config *c)
{
    return (struct attention_kind){c->attn.qkv_bias, c->attn.o_bias, (enum qk_norm)c->attn.qk_norm};
}

struct norm_attrs norm_of(const struct model_config *c)
{
    return (struct norm_attrs){.eps = (float)c->norm_eps, .plus = c->norm_plus_one ? 1 : 0};
}

/* Of each head: one vector that all heads share, of whose gradient a rank of tp has its heads' part. Of all heads: cut
 * as they are. */
static void declare_norms(struct declare_ctx *x, int layer, enum qk_norm norm, struct declare q, struct declare k)
{
    const struct model_config *c = x->c;
    int64_t A = c->head_dim, n[2] = {c->heads * A, c->kv_heads * A};
    struct declare d[2] = {q, k};
    for (int i = 0; norm != QK_NORM_NONE && i < 2; i++) {
        d[i].init = c->norm_plus_one ? INIT_ZEROS : INIT_ONES;
        d[i].std = 0;
        bool part = norm == QK_NORM_HEAD || d[i].over_tp != SPMD_S0; /* of keys that every rank has, too */
        if (part) d[i].over_tp = SPMD_R;
        if (part) d[i].unit = 0;
        layer_declare(x, d[i], 1, norm == QK_NORM_HEAD ? &A : &n[i], "layers.%d.attn.%c_norm.weight", layer, "qk"[i]);
    }
}

void attention_declare(struct declare_ctx *x, int layer, struct attention_kind kind, double std, double std_out)
{
    const struct model_config *c = x->c;
    int64_t A = c->head_dim, HA = c->heads * A, GA = c->kv_heads * A, rows[3] = {HA, GA, GA};
    struct heads h = heads_here(c, x->par);
    int64_t q = h.together * A, kv = h.kv_split ? A : 0;
    enum spmd of_kv = h.kv_split ? SPMD_S0 : over_stream(x->par);
    struct declare of[3];
    for (int i = 0; i < 3; i++) {
        of[i] = (struct declare){INIT_NORMAL, std, layer, i ? of_kv : SPMD_S0, i ? kv : q};
        layer_declare(x, of[i], 2, (int64_t[]){rows[i], c->hidden}, "layers.%d.attn.%c.weight", layer, "qkv"[i]);
    }
    for (int i = 0; kind.qkv_bias && i < 3; i++) {
        struct declare d = {INIT_ZEROS, 0, layer, of[i].over_tp, of[i].unit};
        layer_declare(x, d, 1, &rows[i], "layers.%d.attn.%c.bias", layer, "qkv"[i]);
    }
    declare_norms(x, layer, kind.norm, of[0], of[1]);
    if (model_sinks(c))
        layer_declare(x, (struct declare){INIT_ZEROS, 0, layer, SPMD_S0, h.kv_split ? h.together : 0}, 1, &c->heads,
                      "layers.%d.attn.sink", layer);
    layer_declare(x, (struct declare){INIT_NORMAL, std_out, layer, SPMD_S1, q}, 2, (int64_t[]){c->hidden, HA},
                  "layers.%d.attn.o.weight", layer);
    if (kind.o_bias)
        layer_declare(x, (struct declare){INIT_ZEROS, 0, layer, SPMD_I, 0}, 1, &c->hidden, "layers.%d.attn.o.bias",
                      layer);
}

static struct rotary_attrs head_pairs(const struct layer_ctx *x, int64_t heads)
{
    int64_t turned = model_turned(x->c);
    return (struct rotary_attrs){.heads = to_int(heads),
                                 .head_dim = x->c->head_dim,
                                 .dim = turned < x->c->head_dim ? to_int(turned) : 0};
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
        .causal = !model_both_ways(c),
        .dropout = {(float)c->dropout, dropout_stream("attention", layer)},
        .scale = (float)scale,
        .prefix = model_prefixes(c) && x->s->mode != MODEL_DECODE,
        .window = model_window(c, layer),
        .cap = model_decodes(c) ? (float)c->attn.cap : 0,
    };
    const char *name = shape.window > 0 ? "attention.local" : "attention";
    tid sink_H = model_sinks(c) ? layer_param(x, 1, "layers.%d.attn.sink", layer) : TID_NONE;
    if (x->prefix[0]) return op_attention(x->t, q, k, v, TID_NONE, TID_NONE, shape, name);
    if (x->s->mode != MODEL_DECODE)
        return par_attention(x->t, x->par, q, k, v, x->doc_T, sink_H, shape.window ? x->token_W : TID_NONE, shape,
                             name);
    int64_t n[2] = {x->s->cache_rows, count(h.kv) * c->head_dim};
    int slot = slot_cache(x->params->n, layer);
    if (x->t->err.code) return TID_NONE;
    struct spmd_type type = tape_tensor(x->t, k)->type; /* a cache lies where its keys and values lie */
    tid cache_k = tape_input(x->t, "cache_k", slot, x->s->dtype, 2, n, type);
    tid cache_v = tape_input(x->t, "cache_v", slot + 1, x->s->dtype, 2, n, type);
    return op_attention_cached(x->t, q, k, v, x->runs_SX, cache_k, cache_v, sink_H, shape, name);
}

struct qkv {
    tid q_THA, k_TGA, v_TGA;
};

/* Of all heads together, which lie on the ranks of tp: sums of squares meet first. Key heads that every rank has are
 * whole. */
static tid norm_over_ranks(struct layer_ctx *x, tid v, int64_t whole, int layer, char which)
{
    struct norm_attrs a = norm_of(x->c);
    tid w = layer_param(x, 1, "layers.%d.attn.%c_norm.weight", layer, which), s_T1 = op_squares(x->t, v, "squares");
    if (x->t->err.code) return TID_NONE;
    a.whole = whole * x->c->head_dim;
    if (tape_tensor(x->t, v)->type.on[AXIS_TP] == SPMD_S1)
        s_T1 = par_enter(x->t, x->par, par_reduce(x->t, x->par, s_T1, AXIS_TP), AXIS_TP);
    return op_norm_by(x->t, v, s_T1, w, a, which == 'q' ? "q.norm" : "k.norm");
}

/* Queries (which 'q') or keys, normalised. here: heads of this rank, whole: of the model. */
static tid normalised(struct layer_ctx *x, tid v, enum qk_norm norm, struct share here, int64_t whole, int layer,
                      char which)
{
    struct norm_attrs a = norm_of(x->c);
    a.heads = to_int(count(here));
    if (norm == QK_NORM_NONE) return v;
    if (norm == QK_NORM_ALL) return norm_over_ranks(x, v, whole, layer, which);
    tid w_A = layer_param(x, 1, "layers.%d.attn.%c_norm.weight", layer, which);
    return op_headnorm(x->t, v, w_A, a, which == 'q' ? "q.norm" : "k.norm");
}

static tid turned(struct layer_ctx *x, tid v, int64_t heads, int layer, const char *name)
{
    bool near = model_window(x->c, layer) > 0 && x->near_rope_PA >= 0;
    if (!model_layer_turns(x->c, layer)) return v;
    return op_rotary(x->t, v, x->pos_T, near ? x->near_rope_PA : x->rope_PA, head_pairs(x, heads), name);
}

/* One product makes q, k and v of this rank's heads; where nothing is between it and the turning, q and k turn as one.
 */
static void project_together(struct layer_ctx *x, tid h_TD, int layer, struct attention_kind kind, struct qkv *p)
{
    const struct model_config *c = x->c;
    struct heads h = heads_here(c, x->par);
    h_TD = region_enter(x, h_TD);
    int64_t A = c->head_dim, HA = count(h.q) * A, GA = count(h.kv) * A;
    tid w_qkv = layer_param(x, 3, "layers.%d.attn.q.weight", layer);
    tid b_qkv = kind.qkv_bias ? layer_param(x, 3, "layers.%d.attn.q.bias", layer) : TID_NONE;
    tid qkv = layer_linear(x, h_TD, w_qkv, b_qkv, false, "qkv");
    p->v_TGA = tape_cols(x->t, qkv, HA + GA, GA);
    if (kind.norm == QK_NORM_NONE) {
        tid qk = turned(x, tape_cols(x->t, qkv, 0, HA + GA), count(h.q) + count(h.kv), layer, "qk");
        p->q_THA = tape_cols(x->t, qk, 0, HA);
        p->k_TGA = tape_cols(x->t, qk, HA, GA);
        return;
    }
    tid q = normalised(x, tape_cols(x->t, qkv, 0, HA), kind.norm, h.q, c->heads, layer, 'q');
    tid k = normalised(x, tape_cols(x->t, qkv, HA, GA), kind.norm, h.kv, c->kv_heads, layer, 'k');
    p->q_THA = turned(x, q, count(h.q), layer, "q");
    p->k_TGA = turned(x, k, count(h.kv), layer, "k");
}

/* More ranks than key heads: q is split, k and v are made whole on every rank. */
static void project_apart(struct layer_ctx *x, tid h_TD, int layer, struct attention_kind kind, struct qkv *p)
{
    const struct model_config *c = x->c;
    struct heads h = heads_here(c, x->par);
    int64_t A = c->head_dim, GA = count(h.kv) * A;
    bool bias = kind.qkv_bias;
    tid w_q = layer_param(x, 1, "layers.%d.attn.q.weight", layer),
        w_kv = layer_param(x, 2, "layers.%d.attn.k.weight", layer);
    tid b_q = bias ? layer_param(x, 1, "layers.%d.attn.q.bias", layer) : TID_NONE;
    tid b_kv = bias ? layer_param(x, 2, "layers.%d.attn.k.bias", layer) : TID_NONE;
    tid q = layer_linear(x, region_enter(x, h_TD), w_q, b_q, false, "q");
    tid kv = region_enter(x, layer_linear(x, h_TD, w_kv, b_kv, false, "kv"));
    q = normalised(x, q, kind.norm, h.q, c->heads, layer, 'q');
    tid k = normalised(x, tape_cols(x->t, kv, 0, GA), kind.norm, h.kv, c->kv_heads, layer, 'k');
    p->q_THA = turned(x, q, count(h.q), layer, "q");
    p->k_TGA = turned(x, k, count(h.kv), layer, "k");
    p->v_TGA = tape_cols(x->t, kv, GA, GA);
}

tid attention_record(struct layer_ctx *x, tid h_TD, int layer, struct attention_kind kind)
{
    struct qkv p;
    const struct model_config *c = x->c;
    double scale = model_decodes(c) && c->attn.scale_dim > 0 ? 1 / sqrt(c->attn.scale_dim) : 0;
    if (heads_here(c, x->par).kv_split) project_together(x, h_TD, layer, kind, &p);
    else project_apart(x, h_TD, layer, kind, &p);
    tid o_THA = attention_between(x, p.q_THA, p.k_TGA, p.v_TGA, layer, scale);
    tid w_o = layer_param(x, 1, "layers.%d.attn.o.weight", layer);
    tid b_o = kind.o_bias ? layer_param(x, 1, "layers.%d.attn.o.bias", layer) : TID_NONE;
    return region_leave(x, layer_linear(x, o_THA, w_o, b_o, x->par->rank[AXIS_TP] != 0, "attn.o"));
}
