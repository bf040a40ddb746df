/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on single elements (or pairs), plainly: rotary positions, activations, residual add, dropout, copy.
 *
 *   rotary (Su et al. 2021)   (x1, x2) turned by the angle of its position; x2 is half a head after x1
 *   gelu (Hendrycks and Gimpel 2016), tanh form   y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   gelu by the error function                    y = x/2 erfc(-x / sqrt(2))
 *   swiglu (Shazeer 2020)     y = gate sigmoid(gate) up; geglu: y = gelu(gate) up
 *   clamped (gpt-oss)         y = g sigmoid(1.702 g) (u + 1), g = min(gate, limit), u = up within the limits
 *   soft cap                  y = cap tanh(x / cap)
 *   relu                      y = max(x, 0); relu2 (So et al. 2021): its square
 *   times                     y = cap x
 *
 * All read an element of dout before they write din there, so the two may share memory where the row says so. */
#include <math.h>

#include "kernel/dropout.h"
#include "kernel/ref/ref.h"

/* Columns of the token that are not turned. */
static void rotary_rest(const struct kernel_call *c, int64_t t)
{
    const struct rotary_attrs *at = at_rotary(&c->at);
    int64_t head = at->head_dim, from = at->at, end = from + at->dim;
    for (int64_t col = 0; col < at->heads * head; col++) {
        if (col % head >= from && col % head < end) continue;
        if (c->phase == KERNEL_FWD) ref_set(&c->out[0], t, col, ref_get(&c->in[0], t, col));
        else ref_put_grad(c, 0, t, col, ref_get(&c->dout[0], t, col));
    }
}

static void rotary_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct rotary_attrs *at = at_rotary(&c->at);
    (void)mine;
    bool backward = c->phase != KERNEL_FWD;
    const struct view *x = backward ? &c->dout[0] : &c->in[0];
    int64_t wide = at->dim ? at->dim : at->head_dim, half = wide / 2, pos = ref_int(&c->in[1], t);
    int64_t step = at->pairs ? 2 : 1, apart = at->pairs ? 1 : half;
    CHECK(pos >= 0 && pos < c->in[2].n[0], "position %lld is beyond the table of %lld", (long long)pos,
          (long long)c->in[2].n[0]);
    if (at->dim) rotary_rest(c, t);
    for (int h = 0; h < at->heads; h++)
        for (int64_t i = 0; i < half; i++) {
            int64_t c1 = h * at->head_dim + at->at + i * step, c2 = c1 + apart;
            double co = ref_get(&c->in[2], pos, i), si = ref_get(&c->in[2], pos, half + i);
            double x1 = ref_get(x, t, c1), x2 = ref_get(x, t, c2);
            if (backward) {
                ref_put_grad(c, 0, t, c1, x1 * co + x2 * si);
                ref_put_grad(c, 0, t, c2, x2 * co - x1 * si);
            } else {
                ref_set(&c->out[0], t, c1, x1 * co - x2 * si);
                ref_set(&c->out[0], t, c2, x2 * co + x1 * si);
            }
        }
}

void rotary_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, rotary_row); }

void rotary_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, rotary_row); }

/* Value and slope of an activation at one place. */
struct tangent {
    double y, dy;
};

static struct tangent gelu(double x)
{
    const double k = 0.79788456080286535588, cube = 0.044715; /* k = sqrt(2 / pi) */
    double th = tanh(k * (x + cube * x * x * x));
    double inner = k * (1 + 3 * cube * x * x);
    return (struct tangent){0.5 * x * (1 + th), 0.5 * (1 + th) + 0.5 * x * (1 - th * th) * inner};
}

static struct tangent gelu_erf(double x)
{
    double below = 0.5 * erfc(-x * 0.70710678118654752440), here = 0.39894228040143267794 * exp(-0.5 * x * x);
    return (struct tangent){x * below, below + x * here};
}

static struct tangent soft_cap(double x, double cap)
{
    double th = tanh(x / cap);
    return (struct tangent){cap * th, 1 - th * th};
}

static struct tangent silu(double x)
{
    double s = 1 / (1 + exp(-x));
    return (struct tangent){x * s, s * (1 + x * (1 - s))};
}

static struct tangent gelu_quick(double x)
{
    double k = (double)ACT_CLAMPED_SLOPE, s = 1 / (1 + exp(-k * x));
    return (struct tangent){x * s, s * (1 + k * x * (1 - s))};
}

static struct tangent relu_squared(double x)
{
    double y = fmax(x, 0);
    return x == x ? (struct tangent){y * y, 2 * y} : (struct tangent){x, x}; /* fmax would drop a NaN */
}

/* gpt-oss: the gate from above, up from both sides; a slope of 0 beyond; a NaN passes. */
static struct tangent clamped_gate(double g, double limit)
{
    double x = g > limit ? limit : g, k = (double)ACT_CLAMPED_SLOPE, s = 1 / (1 + exp(-k * x));
    return (struct tangent){x * s, g > limit ? 0 : s * (1 + k * x * (1 - s))};
}

static struct tangent clamped_up(double u, double limit)
{
    double x = u > limit ? limit : u < -limit ? -limit : u;
    return (struct tangent){x + 1, u > limit || u < -limit ? 0 : 1};
}

/* Of all that goes in, or of the gate. */
static struct tangent act_of(const struct kernel_call *c, double x)
{
    const struct act_attrs *at = at_act(&c->at);
    switch (at->kind) {
    case ACT_SWIGLU: return silu(x);
    case ACT_GELU_ERF: return gelu_erf(x);
    case ACT_GELU_QUICK: return gelu_quick(x);
    case ACT_TANH: return soft_cap(x, 1);
    case ACT_CAP: return soft_cap(x, (double)at->cap);
    case ACT_CLAMPED: return clamped_gate(x, (double)at->cap);
    case ACT_RELU2: return relu_squared(x);
    case ACT_RELU: return (struct tangent){x < 0 ? 0 : x, x > 0}; /* a NaN passes */
    case ACT_TIMES: return (struct tangent){(double)at->cap * x, (double)at->cap};
    default: return gelu(x);
    }
}

/* What the gate is multiplied with, and its slope. */
static struct tangent up_of(const struct kernel_call *c, double up)
{
    const struct act_attrs *at = at_act(&c->at);
    return at->kind == ACT_CLAMPED ? clamped_up(up, (double)at->cap) : (struct tangent){up, 1};
}

static void act_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    bool gated = act_gated(at_act(&c->at)->kind);
    int64_t n = c->out[0].n[1];
    for (int64_t f = 0; f < n; f++) {
        double x = ref_get(&c->in[0], t, f);
        ref_set(&c->out[0], t, f, act_of(c, x).y * (gated ? up_of(c, ref_get(&c->in[0], t, n + f)).y : 1));
    }
}

static void act_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    bool gated = act_gated(at_act(&c->at)->kind);
    int64_t n = c->dout[0].n[1];
    for (int64_t f = 0; f < n; f++) {
        double x = ref_get(&c->in[0], t, f), dy = ref_get(&c->dout[0], t, f);
        if (gated) {
            struct tangent gate = act_of(c, x), up = up_of(c, ref_get(&c->in[0], t, n + f));
            ref_put_grad(c, 0, t, f, dy * up.y * gate.dy);
            ref_put_grad(c, 0, t, n + f, dy * gate.y * up.dy);
        } else {
            ref_put_grad(c, 0, t, f, dy * act_of(c, x).dy);
        }
    }
}

void act_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, act_row); }

void act_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, act_dx_row); }

/* What dropout multiplies element (t, d) of a tensor with n_d columns by: 0, or 1/(1-p), or 1 when it is off. */
static double dropout_factor(const struct kernel_call *c, int64_t t, int64_t d, int64_t n_d)
{
    const struct dropout_attrs *at = at_dropout(&c->at);
    if (!dropout_active(at, c->step)) return 1;
    const struct view *index_T = &c->in[c->op == OP_ADD ? 2 : 1];
    uint64_t token = index_T->p ? (uint64_t)ref_int(index_T, t) : (uint64_t)t;
    uint64_t index = (c->step->first_token + token) * (uint64_t)n_d + (uint64_t)d;
    bool keep = dropout_keep(c->step->seed, at->stream, c->step->step, index, at->p);
    return keep ? (double)dropout_scale(at->p) : 0;
}

/* What b is multiplied by. */
static double b_factor(const struct kernel_call *c, int64_t t, int64_t d, int64_t n_d)
{
    float times = at_dropout(&c->at)->times;
    return dropout_factor(c, t, d, n_d) * (times != 0 ? (double)times : 1);
}

static void add_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    int64_t n = c->in[0].n[1];
    for (int64_t d = 0; d < n; d++)
        ref_set(&c->out[0], t, d, ref_get(&c->in[0], t, d) + ref_get(&c->in[1], t, d) * b_factor(c, t, d, n));
}

static void add_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    int64_t n = c->dout[0].n[1];
    for (int64_t d = 0; d < n; d++) {
        double dy = ref_get(&c->dout[0], t, d);
        ref_put_grad(c, 0, t, d, dy);
        ref_put_grad(c, 1, t, d, dy * b_factor(c, t, d, n));
    }
}

static void dropout_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    int64_t n = c->in[0].n[1];
    for (int64_t d = 0; d < n; d++) ref_set(&c->out[0], t, d, ref_get(&c->in[0], t, d) * dropout_factor(c, t, d, n));
}

static void dropout_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    int64_t n = c->dout[0].n[1];
    for (int64_t d = 0; d < n; d++) ref_put_grad(c, 0, t, d, ref_get(&c->dout[0], t, d) * dropout_factor(c, t, d, n));
}

void add_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, add_row); }

void add_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->dout[0].n[0], 0, add_dx_row); }

void dropout_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, dropout_row); }

void dropout_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->dout[0].n[0], 0, dropout_dx_row); }

static void copy_row(const struct kernel_call *c, int64_t r, double *mine)
{
    (void)mine;
    for (int64_t i = 0; i < view_cols(&c->in[0]); i++) ref_set(&c->out[0], r, i, ref_get(&c->in[0], r, i));
}

static void copy_dx_row(const struct kernel_call *c, int64_t r, double *mine)
{
    (void)mine;
    for (int64_t i = 0; i < view_cols(&c->dout[0]); i++) ref_put_grad(c, 0, r, i, ref_get(&c->dout[0], r, i));
}

void copy_fwd_ref(const struct kernel_call *c) { ref_each_row(c, view_rows(&c->in[0]), 0, copy_row); }

void copy_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, view_rows(&c->dout[0]), 0, copy_dx_row); }
