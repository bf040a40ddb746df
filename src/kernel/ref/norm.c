/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba, Kiros and Hinton 2016), plainly.
 *
 *   y = (x - m) r w + b    r = 1 / sqrt(mean((x - m)^2) + eps); m is the row's mean, or 0 for RMSNorm, which has no b
 *   dx = r (g - mean(g) - n mean(g n))    g = dy w, n = (x - m) r; the first mean only for LayerNorm
 *   dw = sum over tokens of dy n          db = sum over tokens of dy
 *
 * Forward keeps m and r, not n: n costs a subtraction and a product, and x is kept by others anyway. */
#include <math.h>

#include "kernel/ref/ref.h"

struct moments {
    double mean, rstd;
};

static struct moments row_moments(const struct kernel_call *c, int64_t t, bool centred)
{
    int64_t n = c->in[0].n[1];
    double sum = 0, squares = 0;
    for (int64_t d = 0; centred && d < n; d++) sum += ref_get(&c->in[0], t, d);
    double mean = sum / (double)n;
    for (int64_t d = 0; d < n; d++) {
        double x = ref_get(&c->in[0], t, d) - mean;
        squares += x * x;
    }
    return (struct moments){mean, 1 / sqrt(squares / (double)n + (double)at_norm(&c->at)->eps)};
}

static struct moments saved_moments(const struct kernel_call *c, int64_t t)
{
    if (c->op == OP_RMSNORM) return (struct moments){0, ref_get(&c->out[1], 0, t)};
    return (struct moments){ref_get(&c->out[1], t, 0), ref_get(&c->out[1], t, 1)};
}

static void norm_row(const struct kernel_call *c, int64_t t, struct moments m)
{
    for (int64_t d = 0; d < c->in[0].n[1]; d++) {
        double y = (ref_get(&c->in[0], t, d) - m.mean) * m.rstd * ref_get(&c->in[1], 0, d);
        if (c->n_in > 2) y += ref_get(&c->in[2], 0, d);
        ref_set(&c->out[0], t, d, y);
    }
}

static void rmsnorm_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    struct moments m = row_moments(c, t, false);
    ref_set(&c->out[1], 0, t, m.rstd);
    norm_row(c, t, m);
}

static void layernorm_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    struct moments m = row_moments(c, t, true);
    ref_set(&c->out[1], t, 0, m.mean);
    ref_set(&c->out[1], t, 1, m.rstd);
    norm_row(c, t, m);
}

static void norm_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    int64_t n_d = c->in[0].n[1];
    struct moments m = saved_moments(c, t);
    double mean_g = 0, mean_gn = 0;
    for (int64_t d = 0; d < n_d; d++) {
        double g = ref_get(&c->dout[0], t, d) * ref_get(&c->in[1], 0, d);
        mean_g += g / (double)n_d;
        mean_gn += g * (ref_get(&c->in[0], t, d) - m.mean) * m.rstd / (double)n_d;
    }
    if (c->op == OP_RMSNORM) mean_g = 0;
    for (int64_t d = 0; d < n_d; d++) {
        double g = ref_get(&c->dout[0], t, d) * ref_get(&c->in[1], 0, d);
        double n = (ref_get(&c->in[0], t, d) - m.mean) * m.rstd;
        ref_put_grad(c, 0, t, d, m.rstd * (g - mean_g - n * mean_gn));
    }
}

static void norm_dw_column(const struct kernel_call *c, int64_t d, double *mine)
{
    (void)mine;
    double dw = 0, db = 0;
    for (int64_t t = 0; t < c->in[0].n[0]; t++) {
        struct moments m = saved_moments(c, t);
        double dy = ref_get(&c->dout[0], t, d);
        dw += dy * (ref_get(&c->in[0], t, d) - m.mean) * m.rstd;
        db += dy;
    }
    ref_put_grad(c, 1, 0, d, dw);
    if (c->n_in > 2) ref_put_grad(c, 2, 0, d, db);
}

void rmsnorm_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, rmsnorm_row); }

void rmsnorm_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, norm_dx_row); }

void rmsnorm_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[1], 0, norm_dw_column); }

void layernorm_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, layernorm_row); }

void layernorm_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, norm_dx_row); }

void layernorm_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[1], 0, norm_dw_column); }
