/* SPDX-License-Identifier: Apache-2.0 */
/* gate_body.h: GATED_NORM over vec.h (kernel/ref/conv.c has the formulas). What the gate lets through is made again in
 * each pass over a group's columns, which are in the cache then: two passes forward, two backward. Gradients of the
 * weights are sums over chunks of rows, then over the chunks in order: the same bits for any team. */
#ifndef TUTTI_KERNEL_CPU_VEC_GATE_BODY_H
#define TUTTI_KERNEL_CPU_VEC_GATE_BODY_H

#include <math.h>

#include "kernel/cpu/vec/act_body.h"

enum { GATE_CHUNK = 64 /* rows */ };

/* One vector of a row, from element i on. */
struct gated {
    vf y, z;
    struct logistic l;
    vf g; /* y silu(z) */
};
VEC_INLINE struct gated gated_at(const struct kernel_call *c, int64_t row, int64_t i, int k, enum dtype t)
{
    struct gated v = {.y = v_get(row_at(&c->in[0], row), i, k, t), .z = v_get(row_at(&c->in[1], row), i, k, t)};
    v.l = logistic_of(v.z);
    v.g = v.y * v.z * v.l.s;
    return v;
}

VEC_INLINE void gated_norm_fwd_group(const struct kernel_call *c, int64_t row, int64_t group, int64_t n, enum dtype t)
{
    const struct norm_attrs *at = at_norm(&c->at);
    const void *w = c->n_in > 2 ? c->in[2].p : NULL;
    int64_t lo = group * n, hi = lo + n;
    vf squares = vf_zero();
    for (int64_t i = lo; w && i < hi; i += VL) {
        vf g = gated_at(c, row, i, v_count(hi - i), t).g; /* lanes past the end are 0 */
        squares = vf_fma(g, g, squares);
    }
    float r = w ? 1.0f / sqrtf(vf_sum(squares) / (float)n + at->eps) : 1.0f;
    ((float *)row_at(&c->out[1], row))[group] = r;
    for (int64_t i = lo; i < hi; i += VL) {
        int k = v_count(hi - i);
        vf g = gated_at(c, row, i, k, t).g;
        if (w) g = g * vf_set(r) * v_get(w, i, k, t);
        v_put(row_at(&c->out[0], row), i, k, t, g);
    }
}
VEC_INLINE void gated_norm_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t groups = at_norm(&c->at)->heads, n = view_cols(&c->in[0]) / groups;
    for (int64_t row = lo; row < hi; row++)
        for (int64_t g = 0; g < groups; g++) gated_norm_fwd_group(c, row, g, n, t);
}
VEC_ROW_KERNEL(gated_norm_fwd)

VEC_INLINE void gated_norm_bwd_group(const struct kernel_call *c, int64_t row, int64_t group, int64_t n, enum dtype t)
{
    const void *w = c->n_in > 2 ? c->in[2].p : NULL, *dout = row_at(&c->dout[0], row);
    int64_t lo = group * n, hi = lo + n;
    float r = ((const float *)row_at(&c->out[1], row))[group];
    vf with_g = vf_zero();
    for (int64_t i = lo; w && i < hi; i += VL) {
        int k = v_count(hi - i);
        with_g = vf_fma(v_get(dout, i, k, t) * v_get(w, i, k, t), gated_at(c, row, i, k, t).g, with_g);
    }
    vf back = vf_set(vf_sum(with_g) * r * r / (float)n);
    for (int64_t i = lo; i < hi; i += VL) {
        int k = v_count(hi - i);
        struct gated v = gated_at(c, row, i, k, t);
        vf d = v_get(dout, i, k, t);
        if (w) d = vf_set(r) * (d * v_get(w, i, k, t) - v.g * back);
        if (c->din[0].p)
            v_put(row_at(&c->din[0], row), i, k, t,
                  vf_fma(d * v.z, v.l.s, v_get_or_zero(row_or_null(&c->acc[0], row), i, k, t)));
        if (c->din[1].p)
            v_put(row_at(&c->din[1], row), i, k, t,
                  vf_fma(d * v.y * v.l.s, vf_fma(v.z, v.l.rest, vf_set(1.0f)),
                         v_get_or_zero(row_or_null(&c->acc[1], row), i, k, t)));
    }
}
VEC_INLINE void gated_norm_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t groups = at_norm(&c->at)->heads, n = view_cols(&c->in[0]) / groups;
    for (int64_t row = lo; row < hi; row++)
        for (int64_t g = 0; g < groups; g++) gated_norm_bwd_group(c, row, g, n, t);
}
VEC_ROW_KERNEL(gated_norm_bwd_in)

/* ---- backward of the weights ---- */
static int64_t gate_chunks(const struct kernel_call *c) { return (view_rows(&c->in[0]) + GATE_CHUNK - 1) / GATE_CHUNK; }
static size_t gated_norm_bwd_w_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(gate_chunks(c) * view_cols(&c->in[0])) * sizeof(float);
}
VEC_INLINE void gated_norm_dw_chunk(const struct kernel_call *c, int64_t chunk, enum dtype t)
{
    int64_t C = view_cols(&c->in[0]), groups = at_norm(&c->at)->heads, n = C / groups, rows = view_rows(&c->in[0]);
    int64_t lo = chunk * GATE_CHUNK, hi = lo + GATE_CHUNK < rows ? lo + GATE_CHUNK : rows;
    float *to = (float *)c->scratch + chunk * C;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t i = g * n; i < (g + 1) * n; i += VL) {
            int k = v_count((g + 1) * n - i);
            vf sum = vf_zero();
            for (int64_t row = lo; row < hi; row++) {
                vf r = vf_set(((const float *)row_at(&c->out[1], row))[g]);
                sum = vf_fma(v_get(row_at(&c->dout[0], row), i, k, t) * r, gated_at(c, row, i, k, t).g, sum);
            }
            v_put(to, i, k, DT_F32, sum);
        }
}
static void gated_norm_bwd_w_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi, C = view_cols(&c->in[0]);
    float *dw = c->din[2].p;
    team_split(gate_chunks(c), member, n_members, &lo, &hi);
    for (int64_t q = lo; q < hi; q++) {
        V_TYPED(c->in[0].dtype, gated_norm_dw_chunk, c, q);
    }
    team_barrier(kernel_team(c));
    if (!dw) return;
    team_split((C + VL - 1) / VL, member, n_members, &lo, &hi);
    for (int64_t i = lo * VL; i < hi * VL && i < C; i += VL) {
        int k = v_count(C - i);
        vf s = v_get_or_zero(c->acc[2].p, i, k, DT_F32);
        for (int64_t q = 0; q < gate_chunks(c); q++) s += v_get((const float *)c->scratch + q * C, i, k, DT_F32);
        v_put(dw, i, k, DT_F32, s);
    }
}
static void gated_norm_bwd_w(const struct kernel_call *c) { team_run_call(gated_norm_bwd_w_member, c); }

#endif
