/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention (DeepSeek-V2, section 2.1): queries, and keys and values, are made from short vectors per
 * token. Positions turn a part of each query head and one more vector that all key heads share; keys are put together
 * from both parts. Values are as wide as keys here, with zeros behind, so that attention is the same row as everywhere;
 * the zeros are trimmed off before the output projection.
 *
 * Over tp the short vectors are made on every rank (they are small), and the matrices that open them are split by
 * heads. When decoding, whole keys and values are cached. Rejected for now: caching the short vectors and multiplying
 * the opening matrices into the queries, which makes the cache smaller by the number of heads. */
#include <math.h>

#include "nn/layers.h"

static int64_t heads_count(const struct layer_ctx *x)
{
    struct heads h = heads_here(x->c, x->par);
    return h.q.hi - h.q.lo;
}

void mla_declare(struct declare_ctx *x, int layer, double std, double std_out)
{
    const struct model_config *c = x->c;
    const struct mla_config *m = &c->mla;
    int64_t D = c->hidden, H = c->heads, A = c->head_dim, both = m->nope_dim + m->value_dim, Q = m->q_rank,
            K = m->kv_rank;
    struct heads h = heads_here(c, x->par);
    int64_t q = h.together * A, kv = h.together * both, o = h.together * m->value_dim;
    struct declare whole = {INIT_NORMAL, std, layer, over_stream(x->par), 0},
                   gain = {INIT_ONES, 0, layer, over_stream(x->par), 0}, rows_q = {INIT_NORMAL, std, layer, SPMD_S0, q},
                   rows_kv = {INIT_NORMAL, std, layer, SPMD_S0, kv};
    if (Q) {
        layer_declare(x, whole, 2, (int64_t[]){Q, D}, "layers.%d.attn.q_a.weight", layer);
        layer_declare(x, gain, 1, &Q, "layers.%d.attn.q_a_norm.weight", layer);
        layer_declare(x, rows_q, 2, (int64_t[]){H * A, Q}, "layers.%d.attn.q_b.weight", layer);
    } else {
        layer_declare(x, rows_q, 2, (int64_t[]){H * A, D}, "layers.%d.attn.q.weight", layer);
    }
    layer_declare(x, whole, 2, (int64_t[]){K, D}, "layers.%d.attn.kv_a.weight", layer);
    layer_declare(x, whole, 2, (int64_t[]){m->rope_dim, D}, "layers.%d.attn.k_rope.weight", layer);
    layer_declare(x, gain, 1, &K, "layers.%d.attn.kv_a_norm.weight", layer);
    layer_declare(x, rows_kv, 2, (int64_t[]){H * both, K}, "layers.%d.attn.kv_b.weight", layer);
    layer_declare(x, (struct declare){INIT_NORMAL, std_out, layer, SPMD_S1, o}, 2, (int64_t[]){D, H * m->value_dim},
                  "layers.%d.attn.o.weight", layer);
}

/* A short vector of the token, normalised, where the heads are. */
static tid latent(struct layer_ctx *x, tid h_TD, const char *name, int layer)
{
    tid c_TR = layer_linear(x, h_TD, layer_param(x, 1, "layers.%d.attn.%s.weight", layer, name), TID_NONE, false, name);
    tid g_R = layer_param(x, 1, "layers.%d.attn.%s_norm.weight", layer, name);
    return region_enter(x, op_rmsnorm(x->t, c_TR, g_R, (float)x->c->mla.norm_eps, "latent.norm"));
}

static tid queries(struct layer_ctx *x, tid h_TD, int layer)
{
    const char *name = x->c->mla.q_rank ? "q_b" : "q";
    tid c_TR = x->c->mla.q_rank ? latent(x, h_TD, "q_a", layer) : region_enter(x, h_TD);
    return layer_linear(x, c_TR, layer_param(x, 1, "layers.%d.attn.%s.weight", layer, name), TID_NONE, false, name);
}

static tid turn(struct layer_ctx *x, tid v, int64_t heads, int head_dim, int at, const char *name)
{
    const struct mla_config *m = &x->c->mla;
    struct rotary_attrs a = {.heads = to_int(heads),
                             .head_dim = head_dim,
                             .at = at,
                             .dim = m->rope_dim,
                             .pairs = m->rope_pairs};
    return op_rotary(x->t, v, x->pos_T, x->rope_PA, a, name);
}

tid mla_record(struct layer_ctx *x, tid h_TD, int layer)
{
    const struct model_config *c = x->c;
    const struct mla_config *m = &c->mla;
    int64_t H = heads_count(x), A = c->head_dim;
    tid q_THA = turn(x, queries(x, h_TD, layer), H, c->head_dim, m->nope_dim, "q.rope");
    tid rope_TR =
        layer_linear(x, h_TD, layer_param(x, 1, "layers.%d.attn.k_rope.weight", layer), TID_NONE, false, "k_rope");
    rope_TR = turn(x, region_enter(x, rope_TR), 1, m->rope_dim, 0, "k.rope");
    tid w_kv = layer_param(x, 1, "layers.%d.attn.kv_b.weight", layer);
    tid kv = layer_linear(x, latent(x, h_TD, "kv_a", layer), w_kv, TID_NONE, false, "kv_b");
    kv = op_mla_kv(x->t, kv, rope_TR, (struct mla_kv_attrs){to_int(H), c->head_dim, m->nope_dim, m->value_dim}, "kv");
    tid o_THA = attention_between(x, q_THA, tape_cols(x->t, kv, 0, H * A), tape_cols(x->t, kv, H * A, H * A), layer,
                                  yarn_scores(c) / sqrt((double)A));
    tid o = op_trim(x->t, o_THA, (struct trim_attrs){to_int(H), c->head_dim, m->value_dim}, "attn.trim");
    return region_leave(x, layer_linear(x, o, layer_param(x, 1, "layers.%d.attn.o.weight", layer), TID_NONE, false,
                                        "attn.o"));
}
