/* SPDX-License-Identifier: Apache-2.0 */
/* A mixture of experts in place of the MLP (Shazeer et al. 2017; Jiang et al. 2024, "Mixtral"; DeepSeek-V3, section
 * 2.1.2): the router chooses k experts per token, copies of the token are sorted by expert, each expert multiplies its
 * rows, and a token's results are added up by their gates. Shared experts are a plain MLP beside it.
 *
 * All experts' gate and up matrices lie one after the other, then all down matrices, so each half is one grouped
 * product. Buffers are sized for what the choice can be at worst; how many rows are used is data.
 *
 * The router works on the stream as it lies (whole, or sharded over tokens), so each token is weighed once. Over tp
 * there are two ways, parallel.etp says which. etp = tp: every rank of tp has all experts' copies of the tokens and a
 * part of each expert's columns, as in the MLP; the gates enter that region with the tokens, because each rank finds
 * only its part of their gradient. etp < tp: tokens are shared out over tp; experts are whole (etp = 1), over more
 * ranks, or their columns are cut over etp of them, which are all sent their tokens' copies.
 *
 * A capacity is a number per sequence: the picks of whole sequences, integers, are collected from the ranks that share
 * out its tokens, so that each finds out alone what is dropped; only its own rows go on (kernel/experts.h).
 *
 * Over ep every rank has some of the experts: rows are dispatched to them and results combined (parallel/expert.h), all
 * at once or in rounds over a buffer that is smaller than the worst choice.
 *
 * Losses of balance are roots on the tape like the cross-entropy (kernel/attrs.h, BALANCE): they add to the router's
 * gradient and to sums that are reported, per sequence of the batch, so no layout changes them. */
#include <math.h>
#include <stdio.h>

#include "layout/sequence.h"
#include "nn/layers.h"
#include "parallel/expert.h"

/* The coordinate of ep that has expert e: they are shared out in order. */
static int owner_of(const struct declare_ctx *x, int e)
{
    int64_t lo, hi;
    for (int i = 0;; i++) {
        region_split(x->c->moe.experts, i, x->par->size[AXIS_EP], &lo, &hi);
        if (e < hi) return i;
    }
}

/* One matrix, or bias, of one expert: on the ranks of one coordinate of ep; over etp cut as the MLP is over tp. */
static void declare_expert(struct declare_ctx *x, struct declare d, int nd, const int64_t *n, int layer, int e,
                           const char *name)
{
    const struct mesh *m = &x->t->mesh;
    char text[PARAM_NAME];
    struct layout l = layout_on(m, MESH_EXPERT, shape_of(nd, n), SPMD_I);
    int replicas = m->size[AXIS_DP_REPLICATE];
    l = replicas > 1 ? layout_with_factor(l, AXIS_EDP, replicas, SPMD_R, SPMD_R) : layout_with(l, AXIS_EDP, SPMD_R);
    l = layout_with(layout_hold_at(l, AXIS_EP, owner_of(x, e)), AXIS_ETP, d.over_tp);
    snprintf(text, sizeof text, "layers.%d.moe.experts.%d.%s.%s", layer, e, name, nd > 1 ? "weight" : "bias");
    param_add(x->t, text, l, d.init, d.std, layer);
}

void moe_declare(struct declare_ctx *x, int layer, double std, double std_out)
{
    const struct moe_config *m = &x->c->moe;
    int64_t E = m->experts, D = x->c->hidden, ED[2] = {E, D}, FD[2] = {m->ffn, D}, DF[2] = {D, m->ffn};
    enum spmd over_tp = model_tokens_split(x->par) ? SPMD_R : SPMD_I;
    struct declare router = {INIT_NORMAL, std, layer, over_tp, 0}, bias = {INIT_ZEROS, 0, layer, over_tp, 0},
                   column = {INIT_NORMAL, std, layer, SPMD_S0, 0}, row = {INIT_NORMAL, std_out, layer, SPMD_S1, 0},
                   column_bias = {INIT_ZEROS, 0, layer, SPMD_S0, 0}, row_bias = {INIT_ZEROS, 0, layer, SPMD_I, 0};
    layer_declare(x, router, 2, ED, "layers.%d.moe.router.weight", layer);
    if (m->router_bias) layer_declare(x, bias, 1, &E, "layers.%d.moe.router.offset", layer);
    if (m->bias) {
        layer_declare(x, bias, 1, &E, "layers.%d.moe.router.bias", layer);
        x->t->p[x->t->n - 1].stepped = false; /* engine/balance.h moves it */
    }
    for (int e = 0; e < m->experts; e++) {
        declare_expert(x, column, 2, FD, layer, e, "gate");
        declare_expert(x, column, 2, FD, layer, e, "up");
    }
    for (int e = 0; e < m->experts && m->expert_bias; e++) {
        declare_expert(x, column_bias, 1, &m->ffn, layer, e, "gate");
        declare_expert(x, column_bias, 1, &m->ffn, layer, e, "up");
    }
    for (int e = 0; e < m->experts; e++) declare_expert(x, row, 2, DF, layer, e, "down");
    for (int e = 0; e < m->experts && m->expert_bias; e++) declare_expert(x, row_bias, 1, &D, layer, e, "down");
    if (m->shared) mlp_declare(x, layer, "moe.shared", m->shared * m->ffn, false, std, std_out);
}

/* The tokens that this rank's router sees, of the microbatch's. */
static struct share tokens_here(const struct layer_ctx *x)
{
    struct share s = {0, x->tokens};
    if (model_tokens_split(x->par)) par_share(x->par, AXIS_TP, s.hi, &s.lo, &s.hi);
    return s;
}

/* Tokens of this rank of cp; the call's begin with number `first`. */
static struct tokens_at tokens_from(const struct layer_ctx *x, int64_t first)
{
    return (struct tokens_at){x->s->batch, x->tokens / x->s->batch, first};
}

static int64_t capacity_of(const struct layer_ctx *x)
{
    const struct moe_config *m = &x->c->moe;
    if (m->capacity <= 0 || x->s->mode != MODEL_TRAIN) return 0;
    return (int64_t)ceil(fmax(1, m->capacity * (double)(x->s->seq * m->top_k) / m->experts));
}

struct routed {
    tid gate_Tk, pick_Tk;
};

/* The losses, and the sums of picks for whoever balances or watches. */
static void record_balance(struct layer_ctx *x, tid logits_TE, tid pick_Tk, int layer)
{
    const struct moe_config *m = &x->c->moe;
    struct share here = tokens_here(x);
    struct tokens_at tokens = tokens_from(x, here.lo);
    if (m->aux_scope == MOE_AUX_MICROBATCH) { /* all of it as one sequence */
        tokens.seq *= tokens.batch;
        tokens.batch = 1;
    }
    tid target_T = tape_rows(x->t, x->target_T, here.lo, here.hi - here.lo);
    tid load_BE = op_load(x->t, pick_Tk, target_T, (struct load_attrs){m->experts, m->top_k, tokens}, "load");
    if (model_tokens_split(x->par)) load_BE = par_reduce(x->t, x->par, load_BE, AXIS_TP);
    load_BE = par_reduce(x->t, x->par, load_BE, AXIS_CP); /* a sequence's picks, from all its rows */
    struct balance_attrs a = {m->experts, m->top_k, m->score, (float)m->aux, (float)m->z, tokens};
    tid stat = op_balance(x->t, logits_TE, pick_Tk, target_T, load_BE, a, "balance");
    tape_bind(x->t, stat, slot_balance(x->params->n, to_int(model_blocks(x->c)), layer));
}

static struct routed route(struct layer_ctx *x, tid h_TD, int layer)
{
    const struct moe_config *m = &x->c->moe;
    struct router_attrs a = {
        .experts = m->experts,
        .top_k = m->top_k,
        .score = m->score,
        .norm_topk = m->norm_topk,
        .groups = m->groups > 1 ? m->groups : 0,
        .top_groups = m->top_groups,
        .group_pairs = m->group_pairs,
        .gate_scale = (float)m->scale,
        .tokens = tokens_from(x, tokens_here(x).lo),
    };
    tid w_ED = layer_param(x, 1, "layers.%d.moe.router.weight", layer);
    tid b_E = m->router_bias ? layer_param(x, 1, "layers.%d.moe.router.offset", layer) : TID_NONE;
    tid logits_TE = layer_linear(x, h_TD, w_ED, b_E, false, "router");
    tid bias_E = m->bias ? layer_param(x, 1, "layers.%d.moe.router.bias", layer) : TID_NONE;
    tid gate_Tk = op_router(x->t, logits_TE, bias_E, a, "gates");
    if (x->t->err.code) return (struct routed){TID_NONE, TID_NONE};
    struct routed r = {gate_Tk, gate_Tk + 1};
    if (x->s->mode == MODEL_TRAIN) record_balance(x, logits_TE, r.pick_Tk, layer);
    return r;
}

/* Each expert's MLP over the rows of a buffer sorted by expert; the experts of this rank. */
static tid experts(struct layer_ctx *x, tid y_UD, tid rows_E, int64_t expected, int layer)
{
    int64_t lo, hi;
    par_share(x->par, AXIS_EP, x->c->moe.experts, &lo, &hi);
    int n = to_int(hi - lo), first = to_int(lo);
    tid w_gate_up = layer_param(x, 2 * n, "layers.%d.moe.experts.%d.gate.weight", layer, first);
    tid w_down = layer_param(x, n, "layers.%d.moe.experts.%d.down.weight", layer, first);
    bool bias = x->c->moe.expert_bias, off = x->par->rank[AXIS_ETP] != 0;
    tid z_UF = layer_grouped(x, y_UD, w_gate_up, rows_E, expected, "experts.gate_up");
    if (bias) {
        tid b = layer_param(x, 2 * n, "layers.%d.moe.experts.%d.gate.bias", layer, first);
        z_UF = op_expert_bias(x->t, z_UF, b, rows_E, false, "experts.gate_up.bias");
    }
    tid z_UD = layer_grouped(x, gate_act(x, z_UF, "experts."), w_down, rows_E, expected, "experts.down");
    if (!bias) return z_UD;
    tid b = layer_param(x, n, "layers.%d.moe.experts.%d.down.bias", layer, first);
    return op_expert_bias(x->t, z_UD, b, rows_E, off, "experts.down.bias");
}

/* On the rank of cp that has the most. */
static int64_t most_tokens(const struct layer_ctx *x)
{
    int64_t most = x->tokens;
    for (int r = 0; r < x->par->size[AXIS_CP] && x->par->size[AXIS_CP] > 1; r++) {
        int64_t n = x->s->batch * context_rows(x->s->seq, x->par->size[AXIS_CP], r, 1);
        most = n > most ? n : most;
    }
    return most;
}

/* Tokens' copies sorted by expert; h_TD and r begin with token `first` of this rank of cp. */
static tid permute(struct layer_ctx *x, struct permute_attrs a, tid h_TD, const struct routed *r, int64_t first)
{
    tid pick_Nk = r->pick_Tk;
    if (a.capacity) {
        const struct par *p = x->par;
        if (par_experts_apart(p)) pick_Nk = par_collect(x->t, p, pick_Nk, AXIS_TP, x->tokens);
        pick_Nk = par_collect_tokens(x->t, p, pick_Nk, x->s->batch, x->s->seq);
        a.parts = p->size[AXIS_CP];
        a.tokens.seq = x->s->seq;
        a.tokens.first = x->s->batch * context_rows(x->s->seq, a.parts, 0, p->rank[AXIS_CP]) + first;
    }
    return op_permute(x->t, h_TD, pick_Nk, a, "permute");
}

/* Where the copies' tokens stand: which sequences they are of, and for experts' ranks that keep one rank's order. */
static void place_in_order(const struct layer_ctx *x, struct permute_attrs *a, int64_t first)
{
    int64_t lo, hi;
    a->order = par_source_order(x->par, x->s->batch, x->s->experts);
    a->at = first;
    a->rows = x->tokens / x->s->batch;
    if (!a->order.sequences) return;
    context_chunk(x->s->seq, x->par->size[AXIS_CP], x->par->rank[AXIS_CP], false, &lo, &hi);
    a->head = hi - lo;
}

/* Sorted, sent, multiplied, brought back, added up. The shared expert (of shared_TD; TID_NONE: there is none) is
 * recorded where rows travel, one half beside the way out and one beside the way back; shared_TD becomes its result,
 * before region_leave. */
static tid routed_experts(struct layer_ctx *x, tid h_TD, const struct routed *r, int64_t first, int layer,
                          tid *shared_TD)
{
    const struct moe_config *m = &x->c->moe;
    struct permute_attrs a = {m->experts, m->top_k, capacity_of(x), tokens_from(x, 0), .parts = 0};
    place_in_order(x, &a, first);
    tid y_UD = permute(x, a, h_TD, r, first);
    if (x->t->err.code) return TID_NONE;
    tid row_Tk = y_UD + 1;
    int64_t tokens = most_tokens(x), parts = par_experts_apart(x->par) ? x->par->size[AXIS_TP] : 1;
    struct dispatched d = par_dispatch(x->t, x->par, y_UD, y_UD + 2, &a, (tokens + parts - 1) / parts, x->s->experts);
    bool shared = *shared_TD >= 0;
    tape_waves_aside(x->t, true);
    if (shared && par_experts_apart(x->par)) *shared_TD = region_enter(x, *shared_TD);
    if (shared) *shared_TD = mlp_up(x, *shared_TD, layer, "moe.shared", false);
    tape_waves_aside(x->t, false);
    tid z_WD = experts(x, d.z_WD, d.rows_E, d.n_expected, layer);
    y_UD = par_combine(x->t, x->par, z_WD, &d);
    if (shared) *shared_TD = mlp_down(x, *shared_TD, layer, "moe.shared", false);
    return op_unpermute(x->t, y_UD, r->gate_Tk, row_Tk, m->top_k, "unpermute");
}

/* etp < tp: each rank of tp has its own tokens. */
static tid record_apart(struct layer_ctx *x, tid h_TD, int layer)
{
    tid own_TD = x->par->sequence ? h_TD : par_spread(x->t, x->par, h_TD, AXIS_TP);
    struct routed r = route(x, own_TD, layer);
    tid s_TD = x->c->moe.shared ? h_TD : TID_NONE;
    tid z_TD = routed_experts(x, own_TD, &r, tokens_here(x).lo, layer, &s_TD);
    if (x->c->moe.shared) s_TD = region_leave(x, s_TD);
    if (!x->par->sequence) z_TD = par_collect(x->t, x->par, z_TD, AXIS_TP, x->tokens);
    return x->c->moe.shared ? op_add(x->t, s_TD, z_TD, 0, 0, TID_NONE, "experts") : z_TD;
}

tid moe_record(struct layer_ctx *x, tid h_TD, int layer)
{
    if (par_experts_apart(x->par)) return record_apart(x, h_TD, layer);
    struct routed r = route(x, h_TD, layer);
    h_TD = region_enter(x, h_TD);
    r.gate_Tk = region_enter(x, r.gate_Tk);
    if (x->par->sequence) r.pick_Tk = region_enter(x, r.pick_Tk);
    tid s_TD = x->c->moe.shared ? h_TD : TID_NONE;
    tid z_TD = routed_experts(x, h_TD, &r, 0, layer, &s_TD);
    if (x->c->moe.shared) z_TD = op_add(x->t, s_TD, z_TD, 0, 0, TID_NONE, "experts");
    return region_leave(x, z_TD);
}
