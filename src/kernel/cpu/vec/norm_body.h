/* SPDX-License-Identifier: Apache-2.0 */
/* norm_body.h: RMSNORM (of rows, or of each head in them) and LAYERNORM over vec.h.
 *
 * Forward and backward-input read a row two or three times, from L1 after the first: 4 bytes per bf16 element from
 * memory forward, 6 to 8 backward. A layer norm's variance is the mean square of (x - mean), never E[x^2] - mean^2.
 *
 *     xhat = (x - mean) * rstd,  g = dy * w           (RMSNORM: plus + w)
 *     dx   = rstd * (g - mean(g) - xhat * mean(g * xhat))        (RMSNORM: no means of x or g)
 *     dw   = sum over rows of dy * xhat,  db = sum of dy
 *
 * Weight gradients sum over fixed chunks of NORM_CHUNK rows into scratch, then the chunks in order: the same bits
 * for any team, and a shorter chain of roundings than one long sum.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_NORM_BODY_H
#define TUTTI_KERNEL_CPU_VEC_NORM_BODY_H

#include <math.h>

#include "kernel/cpu/vec/vec_rows.h"

/* Sum of (x - shift)^power over a row, power 1 or 2, in four chains. */
VEC_INLINE float row_power_sum_of(const void *x, int64_t n, float shift, int power, enum dtype t)
{
    vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, m = vf_set(shift);
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL)
        for (int k = 0; k < 4; k++) {
            vf v = v_get(x, i + k * VL, VL, t) - m;
            if (power == 2) v = v * v;
            s[k] += v;
        }
    for (; i < n; i += VL) {
        int k = v_count(n - i);
        vf v = vf_pick(vm_first(k), v_get(x, i, k, t) - m, vf_zero());
        if (power == 2) v = v * v;
        s[0] += v;
    }
    return vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}
VEC_APART float row_sum(const void *x, int64_t n, enum dtype t)
{
    return V_TYPED_VALUE(t, row_power_sum_of, x, n, 0, 1);
}
VEC_APART float row_squares(const void *x, int64_t n, float shift, enum dtype t)
{
    return V_TYPED_VALUE(t, row_power_sum_of, x, n, shift, 2);
}

/* y = (x - mean) * rstd * (plus + w) + b; b NULL: none. */
VEC_INLINE void norm_apply_of(void *y, const void *x, const void *w, float plus, const void *b, int64_t n, float mean,
                              float rstd, enum dtype t)
{
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        vf xhat = (v_get(x, i, k, t) - vf_set(mean)) * vf_set(rstd);
        v_put(y, i, k, t, vf_fma(xhat, v_get(w, i, k, t) + vf_set(plus), v_get_or_zero(b, i, k, t)));
    }
}

VEC_APART void norm_apply(void *y, const void *x, const void *w, float plus, const void *b, int64_t n, float mean,
                          float rstd, enum dtype t)
{
    V_TYPED(t, norm_apply_of, y, x, w, plus, b, n, mean, rstd);
}

/* Columns that are normalised together: a head's, or a row's. Head h begins at element h * n. */
static int64_t norm_heads(const struct kernel_call *c) { return c->op == OP_HEADNORM ? at_norm(&c->at)->heads : 1; }
static int64_t norm_cols(const struct kernel_call *c)
{
    return norm_heads(c) > 0 ? view_cols(&c->in[0]) / norm_heads(c) : 0;
}
VEC_INLINE void *norm_at(const void *row, int64_t i, enum dtype t)
{
    return row ? (char *)(uintptr_t)row + (size_t)i * dtype_bytes(t) : NULL;
}

static void rmsnorm_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    float eps = at_norm(&c->at)->eps, plus = at_norm(&c->at)->plus;
    int64_t n = norm_cols(c), heads = norm_heads(c);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < heads; h++) {
            const void *x = norm_at(row_at(&c->in[0], r), h * n, t);
            float rstd = 1.0f / sqrtf(row_squares(x, n, 0, t) / (float)n + eps);
            ((float *)c->out[1].p)[r * heads + h] = rstd;
            norm_apply(norm_at(row_at(&c->out[0], r), h * n, t), x, c->in[1].p, plus, NULL, n, 0, rstd, t);
        }
}
VEC_BLOCK_KERNEL(rmsnorm_fwd)

static void layernorm_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    float eps = at_norm(&c->at)->eps;
    int64_t n = view_cols(&c->in[0]);
    for (int64_t r = lo; r < hi; r++) {
        const void *x = row_at(&c->in[0], r);
        float *stat = row_at(&c->out[1], r);
        float mean = row_sum(x, n, t) / (float)n;
        float rstd = 1.0f / sqrtf(row_squares(x, n, mean, t) / (float)n + eps);
        stat[0] = mean;
        stat[1] = rstd;
        norm_apply(row_at(&c->out[0], r), x, c->in[1].p, 0, c->in[2].p, n, mean, rstd, t);
    }
}
VEC_BLOCK_KERNEL(layernorm_fwd)

/* ---- backward of x ---- */
VEC_INLINE void norm_bwd_row_of(const struct kernel_call *c, int64_t r, int64_t h, float mean, float rstd, bool centred,
                                enum dtype t)
{
    int64_t n = norm_cols(c), i = 0;
    const void *x = norm_at(row_at(&c->in[0], r), h * n, t), *w = c->in[1].p;
    const void *dy = norm_at(row_at(&c->dout[0], r), h * n, t), *acc = norm_at(row_or_null(&c->acc[0], r), h * n, t);
    void *dx = norm_at(row_at(&c->din[0], r), h * n, t);
    vf plus = vf_set(at_norm(&c->at)->plus);
    vf sg[2] = {vf_zero(), vf_zero()}, sgx[2] = {vf_zero(), vf_zero()};
    for (; i + 2 * VL <= n; i += 2 * VL)
        for (int k = 0; k < 2; k++) {
            vf g = v_get(dy, i + k * VL, VL, t) * (v_get(w, i + k * VL, VL, t) + plus);
            sgx[k] = vf_fma(g, v_get(x, i + k * VL, VL, t) - vf_set(mean), sgx[k]);
            sg[k] += g;
        }
    for (; i < n; i += VL) { /* g is 0 in the lanes past the end */
        int k = v_count(n - i);
        vf g = v_get(dy, i, k, t) * (v_get(w, i, k, t) + plus);
        sgx[0] = vf_fma(g, v_get(x, i, k, t) - vf_set(mean), sgx[0]);
        sg[0] += g;
    }
    vf mean_g = vf_set(centred ? vf_sum(sg[0] + sg[1]) / (float)n : 0);
    vf mean_gx = vf_set(vf_sum(sgx[0] + sgx[1]) * rstd / (float)n);
    for (i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        vf g = v_get(dy, i, k, t) * (v_get(w, i, k, t) + plus);
        vf xhat = (v_get(x, i, k, t) - vf_set(mean)) * vf_set(rstd);
        vf d = vf_set(rstd) * (g - mean_g - xhat * mean_gx);
        v_put(dx, i, k, t, d + v_get_or_zero(acc, i, k, t));
    }
}
VEC_APART void norm_bwd_row(const struct kernel_call *c, int64_t r, int64_t h, float mean, float rstd, bool centred,
                            enum dtype t)
{
    V_TYPED(t, norm_bwd_row_of, c, r, h, mean, rstd, centred);
}
static void rmsnorm_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t heads = norm_heads(c);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < heads; h++)
            norm_bwd_row(c, r, h, 0, ((const float *)c->out[1].p)[r * heads + h], false, t);
}
VEC_BLOCK_KERNEL(rmsnorm_bwd_in)

static void layernorm_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    for (int64_t r = lo; r < hi; r++) {
        const float *stat = row_at(&c->out[1], r);
        norm_bwd_row(c, r, 0, stat[0], stat[1], true, t);
    }
}
VEC_BLOCK_KERNEL(layernorm_bwd_in)

/* ---- columns on several ranks (kernel/ref/norm.c has the formulas) ---- */
static void squares_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    for (int64_t r = lo; r < hi; r++)
        *(float *)row_at(&c->out[0], r) = row_squares(row_at(&c->in[0], r), view_cols(&c->in[0]), 0, t);
}
VEC_BLOCK_KERNEL(squares_fwd)

VEC_INLINE void squares_bwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t n = view_cols(&c->in[0]);
    for (int64_t r = lo; r < hi; r++) {
        vf twice = vf_set(2 * *(const float *)row_at(&c->dout[0], r));
        for (int64_t i = 0; i < n; i += VL) {
            int k = v_count(n - i);
            vf x = v_get(row_at(&c->in[0], r), i, k, t);
            v_put(row_at(&c->din[0], r), i, k, t, vf_fma(twice, x, v_get_or_zero(row_or_null(&c->acc[0], r), i, k, t)));
        }
    }
}
static void squares_bwd_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(view_rows(&c->in[0]), member, n_members, &lo, &hi);
    V_TYPED(c->in[0].dtype, squares_bwd_rows, c, lo, hi);
}
static void squares_bwd(const struct kernel_call *c) { team_run_call(squares_bwd_member, c); }

static float norm_by_rstd(const struct kernel_call *c, int64_t r)
{
    const struct norm_attrs *at = at_norm(&c->at);
    return 1.0f / sqrtf(*(const float *)row_at(&c->in[1], r) / (float)at->whole + at->eps);
}
static void norm_by_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    for (int64_t r = lo; r < hi; r++)
        norm_apply(row_at(&c->out[0], r), row_at(&c->in[0], r), c->in[2].p, at_norm(&c->at)->plus, NULL,
                   view_cols(&c->in[0]), 0, norm_by_rstd(c, r), t);
}
VEC_BLOCK_KERNEL(norm_by_fwd)

VEC_INLINE void norm_by_bwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t n = view_cols(&c->in[0]);
    vf plus = vf_set(at_norm(&c->at)->plus);
    for (int64_t r = lo; r < hi; r++) {
        const void *x = row_at(&c->in[0], r), *dy = row_at(&c->dout[0], r);
        float rstd = norm_by_rstd(c, r);
        vf gx = vf_zero();
        for (int64_t i = 0; i < n; i += VL) {
            int k = v_count(n - i);
            vf g = v_get(dy, i, k, t) * (v_get(c->in[2].p, i, k, t) + plus);
            gx = vf_fma(g, v_get(x, i, k, t), gx);
            if (c->din[0].p)
                v_put(row_at(&c->din[0], r), i, k, t,
                      vf_fma(g, vf_set(rstd), v_get_or_zero(row_or_null(&c->acc[0], r), i, k, t)));
        }
        if (!c->din[1].p) continue;
        const float *acc = row_or_null(&c->acc[1], r);
        *(float *)row_at(&c->din[1], r) =
            (acc ? *acc : 0) - 0.5f * rstd * rstd * rstd * vf_sum(gx) / (float)at_norm(&c->at)->whole;
    }
}
VEC_ROW_KERNEL(norm_by_bwd)

/* ---- backward of the weights ---- */
enum { NORM_CHUNK = 64, NORM_BLOCK = 4 /* vectors of columns held in registers */ };
static int64_t norm_chunks(const struct kernel_call *c) { return (view_rows(&c->in[0]) + NORM_CHUNK - 1) / NORM_CHUNK; }
static size_t norm_bwd_w_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(norm_chunks(c) * 2 * norm_cols(c)) * sizeof(float);
}

/* dw and db of columns i .. i + w*VL (the last vector short by k lanes when w is 1) over rows lo .. hi-1. */
VEC_INLINE void norm_bwd_w_columns(const struct kernel_call *c, int64_t lo, int64_t hi, int64_t i, int w, int k,
                                   float *dw, float *db, enum dtype t)
{
    vf sw[NORM_BLOCK], sb[NORM_BLOCK];
    for (int j = 0; j < w; j++) sw[j] = sb[j] = vf_zero();
    bool centred = c->op == OP_LAYERNORM, by = c->op == OP_NORM_BY;
    int64_t heads = norm_heads(c), n = norm_cols(c);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < heads; h++) {
            const float *stat = by        ? NULL
                                : centred ? row_at(&c->out[1], r)
                                          : (const float *)c->out[1].p + r * heads + h;
            float mean = centred ? stat[0] : 0, rstd = by ? norm_by_rstd(c, r) : centred ? stat[1] : stat[0];
            const void *x = row_at(&c->in[0], r), *dy = row_at(&c->dout[0], r);
            for (int j = 0; j < w; j++) {
                vf g = v_get(dy, h * n + i + j * VL, k, t);
                sw[j] = vf_fma(g, (v_get(x, h * n + i + j * VL, k, t) - vf_set(mean)) * vf_set(rstd), sw[j]);
                sb[j] += g;
            }
        }
    for (int j = 0; j < w; j++) {
        v_put(dw, i + j * VL, k, DT_F32, sw[j]);
        v_put(db, i + j * VL, k, DT_F32, sb[j]);
    }
}
VEC_INLINE void norm_bwd_w_chunk(const struct kernel_call *c, int64_t chunk, enum dtype t)
{
    int64_t n = norm_cols(c), rows = view_rows(&c->in[0]), lo = chunk * NORM_CHUNK, i = 0;
    int64_t hi = lo + NORM_CHUNK < rows ? lo + NORM_CHUNK : rows;
    float *dw = (float *)c->scratch + chunk * 2 * n, *db = dw + n;
    for (; i + NORM_BLOCK * VL <= n; i += NORM_BLOCK * VL) norm_bwd_w_columns(c, lo, hi, i, NORM_BLOCK, VL, dw, db, t);
    for (; i < n; i += VL) norm_bwd_w_columns(c, lo, hi, i, 1, v_count(n - i), dw, db, t);
}
/* din = acc + the chunks in order, columns lo .. hi-1; part 0 is dw, 1 is db. */
static void norm_bwd_w_combine(const struct kernel_call *c, int part, int64_t lo, int64_t hi)
{
    int w = c->op == OP_NORM_BY ? 2 : 1;
    float *d = c->din[w + part].p;
    const float *acc = c->acc[w + part].p;
    int64_t n = norm_cols(c), n_chunks = norm_chunks(c);
    if (!d) return;
    for (int64_t i = lo; i < hi; i += VL) {
        int k = v_count(hi - i);
        vf s = vf_zero();
        for (int64_t q = 0; q < n_chunks; q++) s += v_get((const float *)c->scratch + (2 * q + part) * n, i, k, DT_F32);
        v_put(d, i, k, DT_F32, s + v_get_or_zero(acc, i, k, DT_F32));
    }
}
static void norm_bwd_w_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi, n = norm_cols(c);
    team_split(norm_chunks(c), member, n_members, &lo, &hi);
    for (int64_t q = lo; q < hi; q++) {
        V_TYPED(c->in[0].dtype, norm_bwd_w_chunk, c, q);
    }
    team_barrier(kernel_team(c));
    team_split((n + VL - 1) / VL, member, n_members, &lo, &hi);
    hi = hi * VL < n ? hi * VL : n;
    norm_bwd_w_combine(c, 0, lo * VL, hi);
    if (c->op == OP_LAYERNORM) norm_bwd_w_combine(c, 1, lo * VL, hi);
}
static void norm_bwd_w(const struct kernel_call *c) { team_run_call(norm_bwd_w_member, c); }

#endif
