/* SPDX-License-Identifier: Apache-2.0 */
/* xent_body.h: XENT over vec.h.
 *
 * A row of logits (100 KB at 50257 bf16) fits in L2, so the maximum is one cheap pass and the sum of exponentials a
 * second that reads L2; rescaling on the way (the online form) would put a dependent multiply on every vector to
 * save nothing. Backward repeats both and writes softmax - onehot over the logits: three passes, one from memory.
 * The log and the final difference are in double; per-token nats are added in token order by the caller.
 * exp(x - max) goes through a power of 2: the product with log2 e errs by 6e-8 of the difference, so a probability
 * of e^-20 by 1e-6 of itself.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_XENT_BODY_H
#define TUTTI_KERNEL_CPU_VEC_XENT_BODY_H

#include <math.h>

#include "kernel/cpu/vec/vec_rows.h"
#include "kernel/xent_parts.h"

VEC_INLINE float xent_max_of(const void *x, int64_t n, enum dtype t)
{
    vf low = vf_set(-INFINITY), m[4] = {low, low, low, low};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL)
        for (int k = 0; k < 4; k++) m[k] = vf_max(m[k], v_get(x, i + k * VL, VL, t));
    for (; i < n; i += VL) {
        int k = v_count(n - i);
        m[0] = vf_max(m[0], vf_pick(vm_first(k), v_get(x, i, k, t), low));
    }
    return vf_hmax(vf_max(vf_max(m[0], m[1]), vf_max(m[2], m[3])));
}
VEC_APART float xent_max(const void *x, int64_t n, enum dtype t) { return V_TYPED_VALUE(t, xent_max_of, x, n); }
/* exp of a difference <= 0; -inf gives 0, NaN stays. */
VEC_INLINE vf xent_exp(vf d) { return v_exp2(vf_max(vf_set(-200.0f), d * vf_set(1.44269504f)), 0); }

/* Sum of exp(x - max): float lanes over blocks of XENT_BLOCK elements, blocks in double. */
enum { XENT_BLOCK = 4096 };
VEC_INLINE double xent_sum_of(const void *x, int64_t n, float max, enum dtype t)
{
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += XENT_BLOCK) {
        int64_t end = begin + XENT_BLOCK < n ? begin + XENT_BLOCK : n, i = begin;
        vf s[2] = {vf_zero(), vf_zero()}, m = vf_set(max);
        for (; i + 2 * VL <= end; i += 2 * VL)
            for (int k = 0; k < 2; k++) s[k] += xent_exp(v_get(x, i + k * VL, VL, t) - m);
        for (; i < end; i += VL) {
            int k = v_count(end - i);
            s[0] += vf_pick(vm_first(k), xent_exp(v_get(x, i, k, t) - m), vf_zero());
        }
        total += (double)vf_sum(s[0] + s[1]);
    }
    return total;
}
VEC_APART double xent_sum(const void *x, int64_t n, float max, enum dtype t)
{
    return V_TYPED_VALUE(t, xent_sum_of, x, n, max);
}
static float xent_logit(const struct kernel_call *c, int64_t r, int64_t v)
{
    const void *x = row_at(&c->in[0], r);
    return v_get_one(x, v, c->in[0].dtype);
}

/* Of the columns that are here; of the whole row, from all parts where there are several. */
VEC_INLINE struct xent_row xent_here(const struct kernel_call *c, int64_t r, enum dtype t)
{
    const void *x = row_at(&c->in[0], r);
    int64_t n = c->in[0].n[1], target = xent_column(c, r);
    if (at_vocab(&c->at)->plain) return (struct xent_row){0, 1, target < 0 ? 0 : (double)xent_logit(c, r, target)};
    float max = xent_max(x, n, t);
    return (struct xent_row){(double)max, xent_sum(x, n, max, t), target < 0 ? 0 : (double)xent_logit(c, r, target)};
}
VEC_INLINE struct xent_row xent_whole(const struct kernel_call *c, int64_t r, enum dtype t)
{
    return xent_has_parts(c) ? xent_combine(c, r) : xent_here(c, r, t);
}

static void xent_part_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    for (int64_t r = lo; r < hi; r++) {
        struct xent_row x = xent_here(c, r, t);
        float *s = row_at(&c->out[0], r);
        s[0] = (float)x.max;
        s[1] = (float)x.sum;
        s[2] = (float)x.logit;
    }
}
VEC_BLOCK_KERNEL(xent_part)

static void xent_nats_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    double *nats = c->scratch;
    for (int64_t r = lo; r < hi; r++) {
        struct xent_row x = {0, 1, 0};
        if (xent_column(c, r) != -1) x = xent_whole(c, r, t);
        nats[r] = x.max + log(x.sum) - x.logit;
    }
}
VEC_BLOCK_KERNEL(xent_nats)

static double xent_get(const struct view *v, int64_t r, int64_t c)
{
    return (double)v_get_one(row_at(v, r), c, v->dtype);
}

static void xent_fwd(const struct kernel_call *c)
{
    xent_nats(c);
    double sum = 0, trained = 0, *stat = c->out[0].p, *each = xent_each(c);
    for (int64_t r = 0; r < view_rows(&c->in[0]); r++) {
        if (each) each[r] = ((const double *)c->scratch)[r];
        sum += ((const double *)c->scratch)[r];
        trained += xent_column(c, r) != -1;
    }
    stat[0] += sum;
    stat[1] += trained;
    for (int64_t r = 0; at_vocab(&c->at)->right && r < view_rows(&c->in[0]); r++) stat[2] += xent_right(c, r, xent_get);
}
static size_t xent_fwd_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)view_rows(&c->in[0]) * sizeof(double);
}

/* d = acc + (softmax(x) - onehot(target)) * scale. exp(x - lse) in float: lse's rounding moves all of them alike, so
 * it is taken apart into the maximum (exact) and a factor 1/sum. */
VEC_INLINE void xent_grad_row(void *d, const void *acc, const void *x, int64_t n, int64_t target, float scale,
                              const struct xent_row *whole, enum dtype t)
{
    float max = (float)whole->max, at = 0, lane[VL], before = 0;
    vf m = vf_set(max), f = vf_set((float)((double)scale / whole->sum));
    if (target >= 0) at = v_get_one(x, target, t);
    if (acc && target >= 0) before = v_get_one(acc, target, t);
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        v_put(d, i, k, t, xent_exp(v_get(x, i, k, t) - m) * f + v_get_or_zero(acc, i, k, t));
    }
    if (target < 0) return; /* in another part */
    vf_store(lane, xent_exp(vf_set(at - max)) * f);
    float g = before + (lane[0] - scale);
    v_put_one(d, target, t, g);
}
VEC_INLINE void xent_keep_row(void *d, const void *acc, int64_t n, enum dtype t)
{
    if (!acc) memset(d, 0, (size_t)n * dtype_bytes(t));
    else if (acc != d) memcpy(d, acc, (size_t)n * dtype_bytes(t));
}
/* Of plain columns: what was there, less scale at the target. */
VEC_INLINE void xent_plain_row(void *d, const void *acc, int64_t n, int64_t target, float scale, enum dtype t)
{
    xent_keep_row(d, acc, n, t);
    v_put_one(d, target, t, v_get_one(d, target, t) - scale);
}
VEC_INLINE void xent_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t n = c->in[0].n[1];
    for (int64_t r = lo; r < hi; r++) {
        int64_t target = xent_column(c, r);
        void *d = row_at(&c->din[0], r);
        const void *acc = row_or_null(&c->acc[0], r);
        struct xent_row whole = {0, 1, 0};
        bool plain = at_vocab(&c->at)->plain;
        if (target != -1 && !plain) whole = xent_whole(c, r, t);
        if (target == -1) xent_keep_row(d, acc, n, t);
        else if (plain) xent_plain_row(d, acc, n, target, xent_scale(c, r), t);
        else xent_grad_row(d, acc, row_at(&c->in[0], r), n, target, xent_scale(c, r), &whole, t);
    }
}
VEC_ROW_KERNEL(xent_bwd_in)

#endif
