/* SPDX-License-Identifier: Apache-2.0 */
/* LINEAR_SCALED, plainly: each operand's number times its descale, multiplied and summed in double, rounded once. */
#include "kernel/ref/ref.h"

/* Element (r, c) of an operand, times its descale. */
static double scaled(const struct kernel_call *c, const struct view *v, int i, const struct scale_blocks *b, int64_t r,
                     int64_t k)
{
    const struct view *s = &c->in[i];
    double x = ref_get(v, r, k);
    if (i >= c->n_in || !s->nd) return x;
    if (s->nd == 1) return x * ref_get(s, 0, 0);
    return x * ref_get(s, (b->row_at + r) / b->rows, (b->col_at + k) / b->cols);
}

static double x_at(const struct kernel_call *c, int64_t t, int64_t k)
{
    return scaled(c, &c->in[0], 3, &at_linear_scaled(&c->at)->x, t, k);
}
static double w_at(const struct kernel_call *c, int64_t n, int64_t k)
{
    return scaled(c, &c->in[1], 4, &at_linear_scaled(&c->at)->w, n, k);
}
static double dy_at(const struct kernel_call *c, int64_t t, int64_t n)
{
    return scaled(c, &c->dout[0], 5, &at_linear_scaled(&c->at)->dy, t, n);
}

static void forward_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    for (int64_t n = 0; n < c->in[1].n[0]; n++) {
        double sum = 0;
        for (int64_t k = 0; k < c->in[1].n[1]; k++) sum += x_at(c, t, k) * w_at(c, n, k);
        if (c->n_in > 2 && c->in[2].nd) sum += ref_get(&c->in[2], 0, n);
        ref_set(&c->out[0], t, n, sum);
    }
}

void linear_scaled_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, forward_row); }

static void dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    for (int64_t k = 0; k < c->in[1].n[1]; k++) {
        double sum = 0;
        for (int64_t n = 0; n < c->in[1].n[0]; n++) sum += dy_at(c, t, n) * w_at(c, n, k);
        ref_put_grad(c, 0, t, k, sum);
    }
}

void linear_scaled_bwd_in_ref(const struct kernel_call *c)
{
    if (c->din[0].p) ref_each_row(c, c->in[0].n[0], 0, dx_row);
}

static void dw_row(const struct kernel_call *c, int64_t n, double *mine)
{
    (void)mine;
    for (int64_t k = 0; k < c->in[1].n[1]; k++) {
        double sum = 0;
        for (int64_t t = 0; t < c->in[0].n[0]; t++) sum += dy_at(c, t, n) * x_at(c, t, k);
        ref_put_grad(c, 1, n, k, sum);
    }
}

void linear_scaled_bwd_w_ref(const struct kernel_call *c)
{
    if (c->din[1].p) ref_each_row(c, c->in[1].n[0], 0, dw_row);
}
