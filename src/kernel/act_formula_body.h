/* SPDX-License-Identifier: Apache-2.0 */
/* act_formula_body.h: what ACT computes, value and slope, in the words of vec.h, as exp_body.h has them.
 *
 * All follow from a logistic function, since (1 + tanh u)/2 = s(2u): one exponential and one division per element,
 * no cancellation for very negative x. With s = s(z):
 *     gelu   z = 2 sqrt(2/pi) (x + 0.044715 x^3),  y = x s,      y' = s + x s (1-s) z'
 *     swiglu z = gate,                             y = z s up,   dgate = dy up s (1 + z (1-s)),  dup = dy z s
 *     clamped  z = 1.702 g,  y = g s (u + 1),     dgate = dy (u + 1) s (1 + z (1-s)),  dup = dy g s, 0 where clamped
 *     tanh   z = 2x,                               y = s - (1-s),     y' = 4 s (1-s)
 * 1-s is e^-z s, which keeps its digits when s is near 1. Cost: about 20 instructions per vector; in bf16 the
 * exponential, not memory, sets the pace.
 *
 * gelu by the error function needs the normal distribution's share below x. Of its tail, with a = |x|,
 *     tail(a) = e^(-a^2/2) p(t),  t = 1/(1 + 0.3 a)
 * where p is a polynomial of degree 8 without a constant term, fitted over 0 <= a <= 13 to 1.2e-7 of the tail itself
 * (beyond, both are less than any float): it keeps its digits for very negative x, and the slope needs the same
 * exponential. In all: y within 4e-7 at |x| = 13, and within 8e-7 of itself where it is above 0.001.
 */
#ifndef TUTTI_KERNEL_ACT_FORMULA_BODY_H
#define TUTTI_KERNEL_ACT_FORMULA_BODY_H

#include "kernel/act_kind.h"
#include "kernel/tanh_body.h"

struct logistic {
    vf s, rest; /* s(z) and 1 - s(z) */
};
VEC_INLINE struct logistic logistic_of(vf z)
{
    vf e = v_exp(vf_min(vf_set(86.0f), vf_zero() - z)); /* e and s stay normal numbers; NaN passes */
    vf s = vf_reciprocal(vf_set(1.0f) + e);
    struct logistic l = {s, e * s};
    return l;
}

#define GELU_A 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_B 0.044715f
VEC_INLINE vf gelu_z(vf x) { return vf_set(GELU_A) * x * vf_fma(vf_set(GELU_B) * x, x, vf_set(1.0f)); }
VEC_INLINE vf gelu(vf x) { return x * logistic_of(gelu_z(x)).s; }
VEC_INLINE vf gelu_slope(vf x)
{
    struct logistic l = logistic_of(gelu_z(x));
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
    struct normal n = {vf_pick(vf_unordered(x), x, below), e * vf_set(0.3989422804014327f)};
    return n;
}
VEC_INLINE vf gelu_erf_slope(vf x)
{
    struct normal n = normal_at(x);
    return vf_fma(x, n.here, n.below);
}

VEC_INLINE vf tanh_of(vf x)
{
    struct logistic l = logistic_of(x + x);
    return l.s - l.rest;
}

VEC_INLINE vf above_0(vf x) { return vf_pick(vf_gt(vf_zero(), x), vf_zero(), x); } /* NaN passes */

VEC_INLINE vf squared_above_0(vf x)
{
    vf y = above_0(x);
    return y * y;
}

/* Of ACT_CLAMPED: gate at most the limit, up within it. */
struct clamped {
    vf gate, up;
};
VEC_INLINE struct clamped clamped_to(vf gate, vf up, float limit)
{
    vf top = vf_set(limit), low = vf_set(-limit);
    struct clamped c = {vf_pick(vf_gt(gate, top), top, gate), vf_pick(vf_gt(up, top), top, up)}; /* NaN passes */
    c.up = vf_pick(vf_gt(low, c.up), low, c.up);
    return c;
}
VEC_INLINE vf clamped_value(vf gate, vf up, float limit)
{
    struct clamped c = clamped_to(gate, up, limit);
    return c.gate * logistic_of(vf_set(ACT_CLAMPED_SLOPE) * c.gate).s * (c.up + vf_set(1.0f));
}
/* Gradients of gate and up per dy. */
VEC_INLINE struct clamped clamped_slope(vf gate, vf up, float limit)
{
    struct clamped c = clamped_to(gate, up, limit);
    vf z = vf_set(ACT_CLAMPED_SLOPE) * c.gate, none = vf_zero();
    struct logistic l = logistic_of(z);
    vf d_gate = (c.up + vf_set(1.0f)) * l.s * vf_fma(z, l.rest, vf_set(1.0f)), d_up = c.gate * l.s;
    d_gate = vf_pick(vf_gt(gate, vf_set(limit)), none, d_gate);
    d_up = vf_pick(vf_gt(up, vf_set(limit)), none, vf_pick(vf_gt(vf_set(-limit), up), none, d_up));
    struct clamped d = {d_gate, d_up};
    return d;
}

/* One vector of gate (or of all that goes in): its value, and its slope. The kind is a constant where this is called,
 * so that each has a loop of its own. */
VEC_INLINE vf act_value(enum act_kind kind, vf a, float cap)
{
    if (kind == ACT_SWIGLU) return a * logistic_of(a).s;
    if (kind == ACT_GELU_ERF) return a * normal_at(a).below;
    if (kind == ACT_GELU_QUICK) return a * logistic_of(vf_set(ACT_CLAMPED_SLOPE) * a).s;
    if (kind == ACT_TANH) return tanh_of(a);
    if (kind == ACT_RELU2) return squared_above_0(a);
    if (kind == ACT_CAP) return vf_set(cap) * v_tanh(a * vf_set(1.0f / cap));
    if (kind == ACT_RELU) return above_0(a);
    if (kind == ACT_TIMES) return vf_set(cap) * a;
    return gelu(a);
}
VEC_INLINE vf act_slope(enum act_kind kind, vf a, float cap)
{
    if (kind == ACT_GELU_ERF) return gelu_erf_slope(a);
    if (kind == ACT_GELU_QUICK) {
        vf z = vf_set(ACT_CLAMPED_SLOPE) * a;
        struct logistic l = logistic_of(z);
        return l.s * vf_fma(z, l.rest, vf_set(1.0f));
    }
    if (kind == ACT_RELU2) return vf_pick(vf_gt(vf_zero(), a), vf_zero(), a + a);
    if (kind == ACT_TANH) {
        struct logistic l = logistic_of(a + a);
        return vf_set(4.0f) * l.s * l.rest;
    }
    if (kind == ACT_CAP) {
        vf th = v_tanh(a * vf_set(1.0f / cap));
        return vf_fma(vf_zero() - th, th, vf_set(1.0f));
    }
    if (kind == ACT_RELU) return vf_pick(vf_gt(a, vf_zero()), vf_set(1.0f), vf_zero());
    if (kind == ACT_TIMES) return vf_set(cap);
    return gelu_slope(a);
}

/* One vector of y: of gate (or of all that goes in) and up, which is read where there is one. */
VEC_INLINE vf act_of(enum act_kind kind, vf a, vf up, float cap)
{
    if (kind == ACT_CLAMPED) return clamped_value(a, up, cap);
    vf y = act_value(kind, a, cap);
    if (act_gated(kind)) y *= up;
    return y;
}

/* Gradients of a and up from y's, g. */
struct act_gradients {
    vf a, up;
};
VEC_INLINE struct act_gradients act_gradients_of(enum act_kind kind, vf g, vf a, vf up, float cap)
{
    struct act_gradients d = {vf_zero(), vf_zero()};
    if (kind == ACT_SWIGLU) {
        struct logistic l = logistic_of(a);
        d.up = g * a * l.s;
        d.a = g * up * l.s * vf_fma(a, l.rest, vf_set(1.0f));
    } else if (kind == ACT_CLAMPED) {
        struct clamped by = clamped_slope(a, up, cap);
        d.up = g * by.up;
        d.a = g * by.gate;
    } else if (kind == ACT_GEGLU) {
        d.up = g * gelu(a);
        d.a = g * up * gelu_slope(a);
    } else {
        d.a = g * act_slope(kind, a, cap);
    }
    return d;
}

#endif
