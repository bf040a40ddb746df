/* SPDX-License-Identifier: Apache-2.0 */
/* Mamba-2 (Dao and Gu 2024, "Transformers are SSMs"): a decoder whose layers keep a state of one size instead of keys
 * and values of all tokens.
 *
 *   z, x, b, c, dt = products of norm1(h)
 *   x, b, c        = silu of a convolution over each one's last tokens
 *   step           = softplus(dt + ssm.step), held to model.ssm.step_least and step_most
 *   y              = scan of x by step and decay = exp(-exp(ssm.decay) step), written by b, read by c, + ssm.skip x
 *   h             += out(norm(y silu(z))), of each group of heads by itself
 *
 * Over tp heads are split, in whole groups while there is one for every rank, and the norm is of a rank's own. A single
 * group is on all ranks: b and c are made outside of the region that tp splits and enter it (attention.c says why), and
 * the squares of what is normalised meet first. Between, a group would lie on some of the ranks: refused
 * (config/config_layout.c).
 *
 * Initial values are those of the authors' code: steps drawn from [0.001, 0.1], decays from [1, 16], skips 1; products
 * as the other families have them. ssm.decay, step and skip are vectors: no weight decay. */
#include <math.h>
#include <stdio.h>

#include "nn/layers.h"
#include "parallel/scan.h"
#include "state/param_group.h"

/* What this rank has: heads, groups, columns. */
struct space {
    bool split;                       /* groups are */
    int64_t heads, groups, inner, bc; /* bc: of b, and of c */
};

static struct space space_here(const struct model_config *c, const struct par *p)
{
    const struct ssm_config *s = &c->ssm;
    struct space h = {.split = s->groups >= p->size[AXIS_TP], .groups = s->groups};
    int64_t lo, hi;
    par_share(p, AXIS_TP, h.split ? s->groups : s->heads, &lo, &hi);
    h.heads = hi - lo;
    if (h.split) h.groups = hi - lo;
    if (h.split) h.heads *= s->heads / s->groups;
    h.inner = h.heads * s->head_dim;
    h.bc = h.groups * s->state;
    return h;
}

/* ---- parameters ---- */
/* One after the other, so that products of several are one. */
static void declare_part(struct declare_ctx *x, struct declare d, const char *what, int64_t rows, int64_t cols,
                         bool bias)
{
    if (bias) layer_declare(x, d, 1, &rows, "layers.%d.ssm.%s.bias", d.layer, what);
    else layer_declare(x, d, 2, (int64_t[]){rows, cols}, "layers.%d.ssm.%s.weight", d.layer, what);
}

void mamba_declare(struct declare_ctx *x, int layer, double std, double std_out)
{
    const struct model_config *c = x->c;
    const struct ssm_config *s = &c->ssm;
    static const char *const into[] = {"z", "x", "b", "c", "dt"}, *const conv[] = {"conv_x", "conv_b", "conv_c"};
    bool split = space_here(c, x->par).split;
    int64_t together = split ? s->heads / s->groups : 1, inner = s->heads * s->head_dim, bc = s->groups * s->state;
    int64_t rows[] = {inner, inner, bc, bc, s->heads};
    struct declare wide = {INIT_NORMAL, std, layer, SPMD_S0, together * s->head_dim},
                   group = {INIT_NORMAL, std, layer, split ? SPMD_S0 : over_stream(x->par), split ? s->state : 0},
                   head = {INIT_NORMAL, std, layer, SPMD_S0, together};
    const struct declare of[] = {wide, wide, group, group, head};
    for (int bias = 0; bias <= s->bias; bias++)
        for (int i = 0; i < 5; i++) {
            struct declare d = of[i];
            if (bias) d.init = INIT_ZEROS;
            declare_part(x, d, into[i], rows[i], c->hidden, bias);
        }
    for (int bias = 0; bias <= s->conv_bias; bias++)
        for (int i = 0; i < 3; i++) {
            struct declare d = of[i + 1];
            if (!split && i) d.over_tp = SPMD_R; /* inside of the region, where each rank has its heads' part */
            d.std = 1 / sqrt(3.0 * (double)s->conv);
            if (bias) d.init = INIT_ZEROS;
            declare_part(x, d, conv[i], rows[i + 1], s->conv, bias);
            if (!bias)
                param_set_group(&x->t->p[x->t->n - 1], PARAM_VECTORS); /* a few numbers per channel, not a matrix */
        }
    static const struct {
        const char *name;
        enum param_init init;
    } each[] = {{"decay", INIT_DECAY}, {"step", INIT_STEP}, {"skip", INIT_ONES}};
    for (int i = 0; i < 3; i++) {
        head.init = each[i].init;
        layer_declare(x, head, 1, &s->heads, "layers.%d.ssm.%s", layer, each[i].name);
    }
    wide.init = INIT_ONES;
    layer_declare(x, wide, 1, &inner, "layers.%d.ssm.norm.weight", layer);
    struct declare out = {INIT_NORMAL, std_out, layer, SPMD_S1, together * s->head_dim};
    layer_declare(x, out, 2, (int64_t[]){c->hidden, inner}, "layers.%d.ssm.out.weight", layer);
    out = (struct declare){INIT_ZEROS, 0, layer, SPMD_I, 0};
    if (s->bias) layer_declare(x, out, 1, &c->hidden, "layers.%d.ssm.out.bias", layer);
}

/* ---- a layer ---- */
struct parts {
    tid z, x, bc, dt;
};

/* The product with the first of `span` parameters and those after it. */
static tid product(struct layer_ctx *x, tid h_TD, int layer, const char *first, int span)
{
    tid w = layer_param(x, span, "layers.%d.ssm.%s.weight", layer, first);
    tid b = x->c->ssm.bias ? layer_param(x, span, "layers.%d.ssm.%s.bias", layer, first) : TID_NONE;
    char name[16];
    snprintf(name, sizeof name, "ssm.%s", first);
    return layer_linear(x, h_TD, w, b, false, name);
}

static tid convolved(struct layer_ctx *x, tid v, int layer, const char *first, int span, int which)
{
    tid w = layer_param(x, span, "layers.%d.ssm.%s.weight", layer, first);
    tid b = x->c->ssm.conv_bias ? layer_param(x, span, "layers.%d.ssm.%s.bias", layer, first) : TID_NONE;
    struct conv_attrs a = {{.batch = x->s->batch, .seq = x->s->seq}};
    if (x->s->mode != MODEL_DECODE) return par_conv(x->t, x->par, v, w, b, x->doc_T, a, "conv");
    if (x->t->err.code) return TID_NONE;
    int64_t n[2] = {x->decode->sequences, (x->c->ssm.conv - 1) * tape_tensor(x->t, v)->n[1]};
    CHECK(which == 0, "decoding is on one rank, and has one convolution");
    tid cache =
        tape_input(x->t, "cache_rows", slot_cache(x->params->n, layer), x->s->dtype, 2, n, tape_tensor(x->t, v)->type);
    return op_conv_cached(x->t, v, w, b, x->runs_SX, cache, "conv");
}

/* One product, one convolution. */
static struct parts make_together(struct layer_ctx *x, tid h_TD, int layer, struct space s)
{
    tid all = product(x, region_enter(x, h_TD), layer, "z", 5);
    tid xbc = convolved(x, tape_cols(x->t, all, s.inner, s.inner + 2 * s.bc), layer, "conv_x", 3, 0);
    return (struct parts){tape_cols(x->t, all, 0, s.inner), tape_cols(x->t, xbc, 0, s.inner),
                          tape_cols(x->t, xbc, s.inner, 2 * s.bc), tape_cols(x->t, all, 2 * (s.inner + s.bc), s.heads)};
}

/* b and c whole on every rank. */
static struct parts make_apart(struct layer_ctx *x, tid h_TD, int layer, struct space s)
{
    tid in = region_enter(x, h_TD), zx = product(x, in, layer, "z", 2), dt = product(x, in, layer, "dt", 1);
    tid bc = region_enter(x, product(x, h_TD, layer, "b", 2));
    tid x_TI = convolved(x, tape_cols(x->t, zx, s.inner, s.inner), layer, "conv_x", 1, 0);
    return (struct parts){tape_cols(x->t, zx, 0, s.inner), x_TI, convolved(x, bc, layer, "conv_b", 2, 1), dt};
}

static tid scanned(struct layer_ctx *x, struct parts p, int layer, struct space s)
{
    const struct ssm_config *c = &x->c->ssm;
    struct times_attrs limits = {(float)c->step_least, c->step_most > 0 ? (float)c->step_most : INFINITY};
    struct scan_attrs a = {.at = {.batch = x->s->batch, .seq = x->s->seq},
                           .heads = to_int(s.heads),
                           .head_dim = to_int(c->head_dim),
                           .groups = to_int(s.groups),
                           .state = to_int(c->state)};
    tid times = op_times(x->t, p.dt, layer_param(x, 1, "layers.%d.ssm.decay", layer),
                         layer_param(x, 1, "layers.%d.ssm.step", layer), limits, "times");
    tid skip = layer_param(x, 1, "layers.%d.ssm.skip", layer);
    if (x->s->mode != MODEL_DECODE) return par_scan(x->t, x->par, p.x, p.bc, times, skip, x->doc_T, a, "scan");
    if (x->t->err.code) return TID_NONE;
    int64_t n[2] = {x->decode->sequences, s.inner * c->state};
    tid cache = tape_input(x->t, "cache_state", slot_cache(x->params->n, layer) + 1, DT_F32, 2, n,
                           tape_tensor(x->t, p.x)->type);
    return op_scan_cached(x->t, p.x, p.bc, times, x->runs_SX, cache, skip, a, "scan");
}

static tid normalised(struct layer_ctx *x, tid y, tid z, int layer, struct space s)
{
    struct norm_attrs a = {.eps = (float)x->c->norm_eps, .heads = to_int(s.groups)};
    tid w_I = layer_param(x, 1, "layers.%d.ssm.norm.weight", layer);
    if (s.split) return op_gated_norm(x->t, y, z, w_I, a, "ssm.norm");
    a.heads = 1;
    tid g = op_gated_norm(x->t, y, z, TID_NONE, a, "ssm.gate");
    tid s_T1 = par_enter(x->t, x->par, par_reduce(x->t, x->par, op_squares(x->t, g, "squares"), AXIS_TP), AXIS_TP);
    a.heads = 0;
    a.whole = x->c->ssm.heads * x->c->ssm.head_dim;
    return op_norm_by(x->t, g, s_T1, w_I, a, "ssm.norm");
}

tid mamba_record(struct layer_ctx *x, tid n_TD, int l)
{
    struct space s = space_here(x->c, x->par);
    struct parts p = s.split ? make_together(x, n_TD, l, s) : make_apart(x, n_TD, l, s);
    tid o_TI = normalised(x, scanned(x, p, l, s), p.z, l, s);
    tid w = layer_param(x, 1, "layers.%d.ssm.out.weight", l);
    tid b = x->c->ssm.bias ? layer_param(x, 1, "layers.%d.ssm.out.bias", l) : TID_NONE;
    return region_leave(x, layer_linear(x, o_TI, w, b, x->par->rank[AXIS_TP] != 0, "ssm.out"));
}
