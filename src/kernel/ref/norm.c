/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba, Kiros and Hinton 2016), plainly.
 *
 *   y = (x - m) r w + b    r = 1 / sqrt(mean((x - m)^2) + eps); m is the row's mean, or 0 for RMSNorm, which has no b
 *   dx = r (g - mean(g) - n mean(g n))    g = dy w, n = (x - m) r; the first mean only for LayerNorm
 *   dw = sum over tokens of dy n          db = sum over tokens of dy
 * RMSNorm's w may be plus + w. HEADNORM is RMSNorm of each head's columns, whose weights' gradients are sums over heads
 * too.
 *
 * Forward keeps m and r, not n: n costs a subtraction and a product, and x is kept by others anyway. */
#include <math.h>

#include "kernel/ref/ref.h"

struct moments {
    double mean, rstd;
};

/* Columns [at, at + n) of a row are normalised by themselves: a head, or all. */
struct head_cols {
    int64_t at, n;
};

static struct head_cols cols_of(const struct kernel_call *c, int64_t head)
{
    int64_t n = view_cols(c->phase == KERNEL_FWD ? &c->out[0] : &c->dout[0]);
    if (c->op == OP_HEADNORM) n /= at_norm(&c->at)->heads; /* asked of a head, so there is one */
    return (struct head_cols){head * n, n};
}

static struct moments row_moments(const struct kernel_call *c, int64_t t, bool centred, struct head_cols h)
{
    int64_t n = h.n;
    double sum = 0, squares = 0;
    for (int64_t d = 0; centred && d < n; d++) sum += ref_get(&c->in[0], t, h.at + d);
    double mean = sum / (double)n;
    for (int64_t d = 0; d < n; d++) {
        double x = ref_get(&c->in[0], t, h.at + d) - mean;
        squares += x * x;
    }
    return (struct moments){mean, 1 / sqrt(squares / (double)n + (double)at_norm(&c->at)->eps)};
}

static struct moments saved_moments(const struct kernel_call *c, int64_t t, int64_t head)
{
    if (c->op == OP_HEADNORM) return (struct moments){0, ref_get(&c->out[1], t, head)};
    if (c->op == OP_RMSNORM) return (struct moments){0, ref_get(&c->out[1], 0, t)};
    return (struct moments){ref_get(&c->out[1], t, 0), ref_get(&c->out[1], t, 1)};
}

static double weight(const struct kernel_call *c, int64_t d)
{
    return (double)at_norm(&c->at)->plus + ref_get(&c->in[1], 0, d);
}

static void norm_row(const struct kernel_call *c, int64_t t, struct moments m, struct head_cols h)
{
    for (int64_t d = 0; d < h.n; d++) {
        double y = (ref_get(&c->in[0], t, h.at + d) - m.mean) * m.rstd * weight(c, d);
        if (c->n_in > 2) y += ref_get(&c->in[2], 0, d);
        ref_set(&c->out[0], t, h.at + d, y);
    }
}

static void headnorm_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    for (int64_t i = 0; i < at_norm(&c->at)->heads; i++) {
        struct moments m = row_moments(c, t, false, cols_of(c, i));
        ref_set(&c->out[1], t, i, m.rstd);
        norm_row(c, t, m, cols_of(c, i));
    }
}

static void rmsnorm_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    struct moments m = row_moments(c, t, false, cols_of(c, 0));
    ref_set(&c->out[1], 0, t, m.rstd);
    norm_row(c, t, m, cols_of(c, 0));
}

static void layernorm_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    struct moments m = row_moments(c, t, true, cols_of(c, 0));
    ref_set(&c->out[1], t, 0, m.mean);
    ref_set(&c->out[1], t, 1, m.rstd);
    norm_row(c, t, m, cols_of(c, 0));
}

static void norm_dx_head(const struct kernel_call *c, int64_t t, int64_t head)
{
    struct head_cols h = cols_of(c, head);
    int64_t n_d = h.n;
    struct moments m = saved_moments(c, t, head);
    double mean_g = 0, mean_gn = 0;
    for (int64_t d = 0; d < n_d; d++) {
        double g = ref_get(&c->dout[0], t, h.at + d) * weight(c, d);
        mean_g += g / (double)n_d;
        mean_gn += g * (ref_get(&c->in[0], t, h.at + d) - m.mean) * m.rstd / (double)n_d;
    }
    if (c->op != OP_LAYERNORM) mean_g = 0;
    for (int64_t d = 0; d < n_d; d++) {
        double g = ref_get(&c->dout[0], t, h.at + d) * weight(c, d);
        double n = (ref_get(&c->in[0], t, h.at + d) - m.mean) * m.rstd;
        ref_put_grad(c, 0, t, h.at + d, m.rstd * (g - mean_g - n * mean_gn));
    }
}

static int64_t heads_of(const struct kernel_call *c) { return c->op == OP_HEADNORM ? at_norm(&c->at)->heads : 1; }

static void norm_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    for (int64_t i = 0; i < heads_of(c); i++) norm_dx_head(c, t, i);
}

static void norm_dw_column(const struct kernel_call *c, int64_t d, double *mine)
{
    (void)mine;
    double dw = 0, db = 0;
    for (int64_t t = 0; t < c->in[0].n[0]; t++)
        for (int64_t i = 0; i < heads_of(c); i++) {
            struct moments m = saved_moments(c, t, i);
            int64_t at = cols_of(c, i).at + d;
            double dy = ref_get(&c->dout[0], t, at);
            dw += dy * (ref_get(&c->in[0], t, at) - m.mean) * m.rstd;
            db += dy;
        }
    ref_put_grad(c, 1, 0, d, dw);
    if (c->n_in > 2) ref_put_grad(c, 2, 0, d, db);
}

void rmsnorm_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, rmsnorm_row); }

void rmsnorm_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, norm_dx_row); }

void rmsnorm_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[1], 0, norm_dw_column); }

void headnorm_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, headnorm_row); }

void headnorm_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, norm_dx_row); }

void headnorm_bwd_w_ref(const struct kernel_call *c)
{
    if (at_norm(&c->at)->heads) ref_each_row(c, cols_of(c, 0).n, 0, norm_dw_column);
    else
        for (int64_t d = 0; d < c->din[1].n[0]; d++) ref_put_grad(c, 1, 0, d, 0);
}

void layernorm_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, layernorm_row); }

void layernorm_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, norm_dx_row); }

void layernorm_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[1], 0, norm_dw_column); }

/* ---- columns on several ranks: y = x r w, r = (s / whole + eps)^(-1/2), s = sum of x^2 over all of them ----
 *   dx = g r, ds = -r^3 / (2 whole) sum(g x), g = dy w; and from s: dx += 2 x ds */
static void squares_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    double s = 0;
    for (int64_t d = 0; d < c->in[0].n[1]; d++) s += ref_get(&c->in[0], t, d) * ref_get(&c->in[0], t, d);
    ref_set(&c->out[0], t, 0, s);
}

static void squares_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    for (int64_t d = 0; d < c->in[0].n[1]; d++)
        ref_put_grad(c, 0, t, d, 2 * ref_get(&c->in[0], t, d) * ref_get(&c->dout[0], t, 0));
}

static double norm_by_rstd(const struct kernel_call *c, int64_t t)
{
    const struct norm_attrs *at = at_norm(&c->at);
    return 1 / sqrt(ref_get(&c->in[1], t, 0) / (double)at->whole + (double)at->eps);
}

static void norm_by_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    double r = norm_by_rstd(c, t);
    for (int64_t d = 0; d < c->in[0].n[1]; d++)
        ref_set(&c->out[0], t, d,
                ref_get(&c->in[0], t, d) * r * ((double)at_norm(&c->at)->plus + ref_get(&c->in[2], 0, d)));
}

static void norm_by_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    double r = norm_by_rstd(c, t), gx = 0;
    for (int64_t d = 0; d < c->in[0].n[1]; d++) {
        double g = ref_get(&c->dout[0], t, d) * ((double)at_norm(&c->at)->plus + ref_get(&c->in[2], 0, d));
        gx += g * ref_get(&c->in[0], t, d);
        if (c->din[0].p) ref_put_grad(c, 0, t, d, g * r);
    }
    if (c->din[1].p) ref_put_grad(c, 1, t, 0, -0.5 * r * r * r * gx / (double)at_norm(&c->at)->whole);
}

static void norm_by_dw_column(const struct kernel_call *c, int64_t d, double *mine)
{
    (void)mine;
    double dw = 0;
    for (int64_t t = 0; t < c->in[0].n[0]; t++)
        dw += ref_get(&c->dout[0], t, d) * ref_get(&c->in[0], t, d) * norm_by_rstd(c, t);
    ref_put_grad(c, 2, 0, d, dw);
}

void squares_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, squares_row); }

void squares_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, squares_dx_row); }

void norm_by_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, norm_by_row); }

void norm_by_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, norm_by_dx_row); }

void norm_by_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[1], 0, norm_by_dw_column); }
