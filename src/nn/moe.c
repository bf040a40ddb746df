/* A mixture of experts in place of the MLP (Shazeer et al. 2017; Jiang et al. 2024, "Mixtral"; DeepSeek-V3, section
 * 2.1.2): the router chooses k experts per token, copies of the token are sorted by expert, each expert multiplies its
 * rows, and a token's results are added up by their gates. Shared experts are a plain MLP beside it.
 *
 * All experts' gate and up matrices lie one after the other, then all down matrices, so each half is one grouped product.
 * Buffers are sized for what the choice can be at worst; how many rows are used is data.
 *
 * The router works on the stream as it lies (whole, or sharded over tokens), so each token is weighed once. Over tp every
 * rank has all experts' copies of the tokens and a part of each expert's columns, as in the MLP; the gates enter that
 * region with the tokens, because each rank finds only its part of their gradient.
 *
 * Losses of balance are roots on the tape like the cross-entropy (kernel.h, BALANCE): they add to the router's gradient
 * and to sums that are reported, per sequence of the batch, so no layout changes them. */
#include <math.h>

#include "nn/layers.h"

void moe_declare(struct declare_ctx *x, int layer, double std, double std_out)
{
    const struct moe_config *m = &x->c->moe;
    int64_t E = m->experts, D = x->c->hidden, ED[2] = {E, D}, FD[2] = {m->ffn, D}, DF[2] = {D, m->ffn};
    struct declare router = {INIT_NORMAL, std, layer, over_stream(x->par), {0, 0}},
                   bias = {INIT_ZEROS, 0, layer, over_stream(x->par), {0, 0}},
                   column = {INIT_NORMAL, std, layer, SPMD_S0, {0, 0}}, row = {INIT_NORMAL, std_out, layer, SPMD_S1, {0, 0}};
    layer_declare(x, router, 2, ED, "layers.%d.moe.router.weight", layer);
    if (m->bias) layer_declare(x, bias, 1, &E, "layers.%d.moe.router.bias", layer);
    for (int e = 0; e < m->experts; e++) {
        layer_declare(x, column, 2, FD, "layers.%d.moe.experts.%d.gate.weight", layer, e);
        layer_declare(x, column, 2, FD, "layers.%d.moe.experts.%d.up.weight", layer, e);
    }
    for (int e = 0; e < m->experts; e++) layer_declare(x, row, 2, DF, "layers.%d.moe.experts.%d.down.weight", layer, e);
    if (m->shared) mlp_declare(x, layer, "moe.shared", m->shared * m->ffn, std, std_out);
}

/* The tokens that this rank's router sees, of the microbatch's. */
static struct share tokens_here(const struct layer_ctx *x)
{
    struct share s = {0, x->s->batch * x->s->seq};
    if (x->par->sequence) par_share(x->par, AXIS_TP, s.hi, &s.lo, &s.hi);
    return s;
}

static struct op_attrs attrs(const struct layer_ctx *x)
{
    const struct moe_config *m = &x->c->moe;
    struct op_attrs a = {.batch = x->s->batch, .seq = x->s->seq};
    a.moe = (struct moe_attrs){
        .experts = m->experts,
        .top_k = m->top_k,
        .score = m->score,
        .norm_topk = m->norm_topk,
        .groups = m->groups > 1 ? m->groups : 0,
        .top_groups = m->top_groups,
        .group_pairs = m->group_pairs,
        .gate_scale = (float)m->scale,
        .aux = (float)m->aux,
        .z = (float)m->z,
        .first = tokens_here(x).lo,
    };
    if (m->capacity > 0 && x->s->mode == MODEL_TRAIN)
        a.moe.capacity = (int64_t)ceil(fmax(1, m->capacity * (double)(x->s->seq * m->top_k) / m->experts));
    return a;
}

struct routed {
    tid gate_Tk, pick_Tk;
};

/* The losses, and the sums of picks for whoever balances or watches. */
static void record_balance(struct layer_ctx *x, const struct op_attrs *router, tid logits_TE, tid pick_Tk, int layer)
{
    struct op_attrs a = *router;
    struct share here = tokens_here(x);
    if (x->c->moe.aux_microbatch) { /* all of it as one sequence */
        a.seq *= a.batch;
        a.batch = 1;
    }
    tid target_T = tape_rows(x->t, x->target_T, here.lo, here.hi - here.lo);
    tid load_SE = op_moe(x->t, OP_LOAD, &a, 2, (tid[]){pick_Tk, target_T}, "load");
    if (x->par->sequence) load_SE = par_reduce(x->t, x->par, load_SE, AXIS_TP);
    tid stat = op_moe(x->t, OP_BALANCE, &a, 4, (tid[]){logits_TE, pick_Tk, target_T, load_SE}, "balance");
    tape_bind(x->t, stat, slot_balance(x->params->n, x->c->layers, layer));
}

static struct routed route(struct layer_ctx *x, tid h_TD, int layer)
{
    struct op_attrs a = attrs(x);
    tid logits_TE = op_linear(x->t, h_TD, layer_param(x, 1, "layers.%d.moe.router.weight", layer), TID_NONE, "router");
    tid bias_E = x->c->moe.bias ? layer_param(x, 1, "layers.%d.moe.router.bias", layer) : TID_NONE;
    tid gate_Tk = op_moe(x->t, OP_ROUTER, &a, bias_E >= 0 ? 2 : 1, (tid[]){logits_TE, bias_E}, "gates");
    if (x->t->err.code) return (struct routed){TID_NONE, TID_NONE};
    struct routed r = {gate_Tk, gate_Tk + 1};
    if (x->s->mode == MODEL_TRAIN) record_balance(x, &a, logits_TE, r.pick_Tk, layer);
    return r;
}

/* Each expert's MLP over the rows of a buffer sorted by expert. */
static tid experts(struct layer_ctx *x, tid y_UD, tid rows_E, int layer)
{
    int n = x->c->moe.experts;
    tid w_gate_up = layer_param(x, 2 * n, "layers.%d.moe.experts.0.gate.weight", layer);
    tid w_down = layer_param(x, n, "layers.%d.moe.experts.0.down.weight", layer);
    tid a_UF = op_act(x->t, op_grouped(x->t, y_UD, w_gate_up, rows_E, "experts.gate_up"), ACT_SWIGLU, "experts.swiglu");
    return op_grouped(x->t, a_UF, w_down, rows_E, "experts.down");
}

tid moe_record(struct layer_ctx *x, tid h_TD, int layer)
{
    struct op_attrs a = attrs(x);
    struct routed r = route(x, h_TD, layer);
    h_TD = region_enter(x, h_TD);
    r.gate_Tk = region_enter(x, r.gate_Tk);
    if (x->par->sequence) r.pick_Tk = region_enter(x, r.pick_Tk);
    a.moe.first = 0;
    tid y_UD = op_moe(x->t, OP_PERMUTE, &a, 2, (tid[]){h_TD, r.pick_Tk}, "permute");
    if (x->t->err.code) return TID_NONE;
    tid row_Tk = y_UD + 1, rows_E = y_UD + 2;
    y_UD = experts(x, y_UD, rows_E, layer);
    tid z_TD = op_moe(x->t, OP_UNPERMUTE, &a, 3, (tid[]){y_UD, r.gate_Tk, row_Tk}, "unpermute");
    if (x->c->moe.shared) z_TD = op_add(x->t, mlp_record(x, h_TD, layer, "moe.shared"), z_TD, 0, 0, TID_NONE, "experts");
    return region_leave(x, z_TD);
}

const struct family family_mixtral = {"mixtral", true, llama_declare, llama_embed, llama_block, llama_norm};
const struct family family_deepseek = {"deepseek", true, llama_declare, llama_embed, llama_block, llama_norm};
