/* SPDX-License-Identifier: Apache-2.0 */
/* act_body.h: ACT over vec.h: gelu (both forms) and swiglu, forward and backward.
 *
 * Both are x times a logistic function, since (1 + tanh u)/2 = s(2u): one exponential and one division per element,
 * no cancellation for very negative x. With s = s(z):
 *     gelu   z = 2 sqrt(2/pi) (x + 0.044715 x^3),  y = x s,      y' = s + x s (1-s) z'
 *     swiglu z = gate,                             y = z s up,   dgate = dy up s (1 + z (1-s)),  dup = dy z s
 * 1-s is e^-z s, which keeps its digits when s is near 1. Cost: about 20 instructions per vector; in bf16 the
 * exponential, not memory, sets the pace.
 *
 * gelu by the error function needs the normal distribution's share below x. Of its tail, with a = |x|,
 *     tail(a) = e^(-a^2/2) p(t),  t = 1/(1 + 0.3 a)
 * where p is a polynomial of degree 8 without a constant term, fitted over 0 <= a <= 13 to 1.2e-7 of the tail itself
 * (beyond, both are less than any float): it keeps its digits for very negative x, and the slope needs the same
 * exponential. In all: y within 4e-7 at |x| = 13, and within 8e-7 of itself where it is above 0.001.
 */
#ifndef TUTTI_KERNEL_CPU_ACT_BODY_H
#define TUTTI_KERNEL_CPU_ACT_BODY_H

#include "kernel/cpu/vec_rows.h"

struct logistic {
    vf s, rest; /* s(z) and 1 - s(z) */
};
VEC_INLINE struct logistic logistic(vf z)
{
    vf e = v_exp(vf_min(vf_set(86.0f), vf_zero() - z)); /* e and s stay normal numbers; NaN passes */
    vf s = vf_reciprocal(vf_set(1.0f) + e);
    return (struct logistic){s, e * s};
}

#define GELU_A 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_B 0.044715f
VEC_INLINE vf gelu_z(vf x) { return vf_set(GELU_A) * x * vf_fma(vf_set(GELU_B) * x, x, vf_set(1.0f)); }
VEC_INLINE vf gelu(vf x) { return x * logistic(gelu_z(x)).s; }
VEC_INLINE vf gelu_slope(vf x)
{
    struct logistic l = logistic(gelu_z(x));
    vf dz = vf_set(GELU_A) * vf_fma(vf_set(3 * GELU_B) * x, x, vf_set(1.0f));
    return vf_fma(x * l.s * l.rest, dz, l.s);
}

struct normal {
    vf below, here; /* its share below x, and its density there */
};
VEC_INLINE struct normal normal_at(vf x)
{
    vf a = vf_max(x, vf_zero() - x), e = v_exp(vf_set(-0.5f) * a * a);
    vf t = vf_reciprocal(vf_fma(vf_set(0.3f), a, vf_set(1.0f)));
    vf p = vf_fma(t, vf_set(0.03619593381881714f), vf_set(-0.15938279032707214f));
    p = vf_fma(p, t, vf_set(0.2101261168718338f));
    p = vf_fma(p, t, vf_set(-0.05717449262738228f));
    p = vf_fma(p, t, vf_set(0.1304202526807785f));
    p = vf_fma(p, t, vf_set(0.09934595972299576f));
    p = vf_fma(p, t, vf_set(0.1208457201719284f));
    p = vf_fma(p, t, vf_set(0.11962325125932693f));
    vf tail = e * p * t;
    vf below = vf_pick(vf_gt(vf_zero(), x), tail, vf_set(1.0f) - tail);
    return (struct normal){vf_pick(vf_unordered(x), x, below), e * vf_set(0.3989422804014327f)};
}
VEC_INLINE vf gelu_erf_slope(vf x)
{
    struct normal n = normal_at(x);
    return vf_fma(x, n.here, n.below);
}

VEC_INLINE void act_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t n = view_cols(&c->out[0]);
    bool gated = at_act(&c->at)->kind == ACT_SWIGLU, by_erf = at_act(&c->at)->kind == ACT_GELU_ERF;
    for (int64_t r = lo; r < hi; r++) {
        const void *x = row_at(&c->in[0], r);
        void *y = row_at(&c->out[0], r);
        for (int64_t i = 0; i < n; i += VL) {
            int k = v_count(n - i);
            vf a = v_get(x, i, k, t);
            if (gated) v_put(y, i, k, t, a * logistic(a).s * v_get(x, n + i, k, t));
            else if (by_erf) v_put(y, i, k, t, a * normal_at(a).below);
            else v_put(y, i, k, t, gelu(a));
        }
    }
}
VEC_ROW_KERNEL(act_fwd)

VEC_INLINE void act_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    bool gated = at_act(&c->at)->kind == ACT_SWIGLU, by_erf = at_act(&c->at)->kind == ACT_GELU_ERF;
    int64_t n = view_cols(&c->in[0]) / (gated ? 2 : 1);
    for (int64_t r = lo; r < hi; r++) {
        const void *x = row_at(&c->in[0], r), *dy = row_at(&c->dout[0], r), *acc = row_or_null(&c->acc[0], r);
        void *dx = row_at(&c->din[0], r);
        for (int64_t i = 0; i < n; i += VL) {
            int k = v_count(n - i);
            vf a = v_get(x, i, k, t), g = v_get(dy, i, k, t), d;
            if (gated) {
                struct logistic l = logistic(a);
                vf dup = g * a * l.s + v_get_or_zero(acc, n + i, k, t);
                d = g * v_get(x, n + i, k, t) * l.s * vf_fma(a, l.rest, vf_set(1.0f));
                v_put(dx, n + i, k, t, dup);
            } else if (by_erf) {
                d = g * gelu_erf_slope(a);
            } else {
                d = g * gelu_slope(a);
            }
            v_put(dx, i, k, t, d + v_get_or_zero(acc, i, k, t));
        }
    }
}
VEC_ROW_KERNEL(act_bwd_in)

#endif
