/* SPDX-License-Identifier: Apache-2.0 */
/* experts_body.h: PERMUTE and UNPERMUTE over vec.h, and the copies around latent attention: rows of thousands of
 * columns picked up by number.
 *
 * A row is moved as it is (PERMUTE, MLA_KV, TRIM without acc) or as a sum of k rows in f32, in order of choice. Rows
 * are split over the team by token; two tokens never write one row, so nothing depends on the number of threads. Rows
 * of the buffer that hold no token are the last ones, and are zeros.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_EXPERTS_BODY_H
#define TUTTI_KERNEL_CPU_VEC_EXPERTS_BODY_H

#include "kernel/cpu/vec/vec_rows.h"
#include "kernel/experts.h"

/* Rows of a buffer that hold tokens: row numbers are 0 .. used-1 in some order. */
static int64_t rows_used(const struct view *row_Tk)
{
    int64_t used = 0;
    for (int64_t t = 0; t < row_Tk->n[0]; t++)
        for (int64_t j = 0; j < row_Tk->n[1]; j++) used += ints_row(row_Tk, t)[j] >= 0;
    return used;
}
/* A row that gets nothing: acc, or zeros. */
static void row_nothing(const struct view *to, const struct view *acc, int64_t r)
{
    size_t bytes = (size_t)view_cols(to) * dtype_bytes(to->dtype);
    if (!acc || !acc->p) memset(row_at(to, r), 0, bytes);
    else if (acc->p != to->p) memcpy(row_at(to, r), row_at(acc, r), bytes);
}
static void rest_nothing(const struct view *to, const struct view *acc, int64_t used, int member, int n_members)
{
    int64_t lo, hi;
    team_split(to->n[0] - used, member, n_members, &lo, &hi);
    for (int64_t r = used + lo; r < used + hi; r++) row_nothing(to, acc, r);
}
/* to = acc + g x over a row. */
VEC_INLINE void row_scaled(void *to, const void *acc, const void *x, float g, int64_t n, enum dtype t)
{
    vf f = vf_set(g);
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        v_put(to, i, k, t, vf_fma(f, v_get(x, i, k, t), v_get_or_zero(acc, i, k, t)));
    }
}
VEC_INLINE float row_dot(const void *a, const void *b, int64_t n, enum dtype t)
{
    vf s[2] = {vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL)
        for (int k = 0; k < 2; k++) s[k] = vf_fma(v_get(a, i + k * VL, VL, t), v_get(b, i + k * VL, VL, t), s[k]);
    for (; i < n; i += VL) {
        int k = v_count(n - i);
        s[0] = vf_fma(v_get(a, i, k, t), v_get(b, i, k, t), s[0]);
    }
    return vf_sum(s[0] + s[1]);
}
/* to = acc + sum over j of gate[j] times row row[j] of y; gate NULL: ones. */
VEC_INLINE void rows_sum(void *to, const void *acc, const struct view *y, const int32_t *row, const float *gate, int k,
                         enum dtype t)
{
    int64_t n = view_cols(y);
    for (int64_t i = 0; i < n; i += VL) {
        int m = v_count(n - i);
        vf s = vf_zero();
        for (int j = 0; j < k; j++)
            if (row[j] >= 0) s = vf_fma(vf_set(gate ? gate[j] : 1.0f), v_get(row_at(y, row[j]), i, m, t), s);
        v_put(to, i, m, t, s + v_get_or_zero(acc, i, m, t));
    }
}

static void permute_fwd_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int top_k = at_permute(&c->at)->top_k;
    size_t bytes = (size_t)c->in[0].n[1] * dtype_bytes(c->in[0].dtype);
    int64_t lo, hi;
    team_split(c->in[0].n[0], member, n_members, &lo, &hi);
    for (int64_t t = lo; t < hi; t++)
        for (int j = 0; j < top_k; j++) {
            int32_t r = ints_row(&c->out[1], t)[j];
            if (r >= 0) memcpy(row_at(&c->out[0], r), row_at(&c->in[0], t), bytes);
        }
    rest_nothing(&c->out[0], NULL, rows_used(&c->out[1]), member, n_members);
}
static void permute_fwd(const struct kernel_call *c)
{
    (void)permute_deal(c);
    team_run_call(permute_fwd_member, c);
}
static size_t permute_fwd_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return permute_scratch_bytes(c);
}

VEC_INLINE void permute_bwd_tokens(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int top_k = at_permute(&c->at)->top_k;
    for (int64_t r = lo; r < hi; r++)
        rows_sum(row_at(&c->din[0], r), row_or_null(&c->acc[0], r), &c->dout[0], ints_row(&c->out[1], r), NULL, top_k,
                 t);
}
static void permute_bwd_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(c->in[0].n[0], member, n_members, &lo, &hi);
    V_TYPED(c->dout[0].dtype, permute_bwd_tokens, c, lo, hi);
}
static void permute_bwd_in(const struct kernel_call *c)
{
    if (c->din[0].p) team_run_call(permute_bwd_member, c);
}

VEC_INLINE void unpermute_tokens(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int top_k = at_unpermute(&c->at)->top_k;
    for (int64_t r = lo; r < hi; r++)
        rows_sum(row_at(&c->out[0], r), NULL, &c->in[0], ints_row(&c->in[2], r), row_at(&c->in[1], r), top_k, t);
}
static void unpermute_fwd_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(c->out[0].n[0], member, n_members, &lo, &hi);
    V_TYPED(c->out[0].dtype, unpermute_tokens, c, lo, hi);
}
static void unpermute_fwd(const struct kernel_call *c) { team_run_call(unpermute_fwd_member, c); }

VEC_INLINE void unpermute_bwd_tokens(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    int top_k = at_unpermute(&c->at)->top_k;
    int64_t n = c->dout[0].n[1];
    for (int64_t r = lo; r < hi; r++) {
        const int32_t *row = ints_row(&c->in[2], r);
        const float *gate = row_at(&c->in[1], r), *acc = row_or_null(&c->acc[1], r);
        float *dgate = c->din[1].p ? row_at(&c->din[1], r) : NULL;
        const void *dz = row_at(&c->dout[0], r);
        for (int j = 0; j < top_k; j++) {
            float d = dgate && row[j] >= 0 ? row_dot(dz, row_at(&c->in[0], row[j]), n, t) : 0;
            if (dgate) dgate[j] = d + (acc ? acc[j] : 0);
            if (c->din[0].p && row[j] >= 0)
                row_scaled(row_at(&c->din[0], row[j]), row_or_null(&c->acc[0], row[j]), dz, gate[j], n, t);
        }
    }
}
static void unpermute_bwd_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(c->dout[0].n[0], member, n_members, &lo, &hi);
    V_TYPED(c->dout[0].dtype, unpermute_bwd_tokens, c, lo, hi);
    if (c->din[0].p) rest_nothing(&c->din[0], &c->acc[0], rows_used(&c->in[2]), member, n_members);
}
static void unpermute_bwd_in(const struct kernel_call *c) { team_run_call(unpermute_bwd_member, c); }

/* ---- latent attention ---- */
VEC_INLINE void span_put_of(void *to, int64_t at, const void *acc, const void *x, int64_t from, int64_t n, enum dtype t)
{
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        v_put(to, at + i, k, t, (x ? v_get(x, from + i, k, t) : vf_zero()) + v_get_or_zero(acc, at + i, k, t));
    }
}
VEC_APART void span_put(void *to, int64_t at, const void *acc, const void *x, int64_t from, int64_t n, enum dtype t)
{
    V_TYPED(t, span_put_of, to, at, acc, x, from, n);
}
/* to = acc + x from column `from` on. */
VEC_INLINE void grad_put(void *to, const void *acc, const void *x, int64_t from, int64_t n, enum dtype t)
{
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        v_put(to, i, k, t, v_get(x, from + i, k, t) + v_get_or_zero(acc, i, k, t));
    }
}
static void mla_kv_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    const struct mla_kv_attrs *at = at_mla_kv(&c->at);
    int64_t A = at->head_dim, nope = at->nope, value = at->value, HA = at->heads * A;
    for (int64_t r = lo; r < hi; r++) {
        const void *kv = row_at(&c->in[0], r), *rope = row_at(&c->in[1], r);
        void *y = row_at(&c->out[0], r);
        for (int64_t h = 0; h < at->heads; h++) {
            span_put(y, h * A, NULL, kv, h * (nope + value), nope, t);
            span_put(y, h * A + nope, NULL, rope, 0, A - nope, t);
            span_put(y, HA + h * A, NULL, kv, h * (nope + value) + nope, value, t);
            span_put(y, HA + h * A + value, NULL, NULL, 0, A - value, t);
        }
    }
}
VEC_BLOCK_KERNEL(mla_kv_fwd)
VEC_INLINE void mla_kv_bwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    const struct mla_kv_attrs *at = at_mla_kv(&c->at);
    int64_t A = at->head_dim, nope = at->nope, value = at->value, HA = at->heads * A;
    for (int64_t r = lo; r < hi; r++) {
        const void *dy = row_at(&c->dout[0], r), *acc = row_or_null(&c->acc[0], r), *acc1 = row_or_null(&c->acc[1], r);
        for (int64_t h = 0; c->din[0].p && h < at->heads; h++) {
            span_put(row_at(&c->din[0], r), h * (nope + value), acc, dy, h * A, nope, t);
            span_put(row_at(&c->din[0], r), h * (nope + value) + nope, acc, dy, HA + h * A, value, t);
        }
        for (int64_t i = 0; c->din[1].p && i < A - nope; i += VL) {
            int k = v_count(A - nope - i);
            vf s = vf_zero();
            for (int64_t h = 0; h < at->heads; h++) s += v_get(dy, h * A + nope + i, k, t);
            v_put(row_at(&c->din[1], r), i, k, t, s + v_get_or_zero(acc1, i, k, t));
        }
    }
}
VEC_ROW_KERNEL(mla_kv_bwd)
static void trim_run_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    const struct trim_attrs *at = at_trim(&c->at);
    int64_t A = at->head_dim, value = at->value;
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < at->heads; h++) {
            if (c->phase == KERNEL_FWD) {
                span_put(row_at(&c->out[0], r), h * value, NULL, row_at(&c->in[0], r), h * A, value, t);
                continue;
            }
            const void *acc = row_or_null(&c->acc[0], r);
            span_put(row_at(&c->din[0], r), h * A, acc, row_at(&c->dout[0], r), h * value, value, t);
            span_put(row_at(&c->din[0], r), h * A + value, acc, NULL, 0, A - value, t);
        }
}
VEC_BLOCK_KERNEL(trim_run)
VEC_INLINE void join_run_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    const int64_t n[2] = {c->in[0].n[1], c->in[1].n[1]}, at[2] = {0, n[0]};
    for (int64_t r = lo; r < hi; r++)
        for (int k = 0; k < 2; k++) {
            if (c->phase == KERNEL_FWD) span_put(row_at(&c->out[0], r), at[k], NULL, row_at(&c->in[k], r), 0, n[k], t);
            else if (c->din[k].p)
                grad_put(row_at(&c->din[k], r), row_or_null(&c->acc[k], r), row_at(&c->dout[0], r), at[k], n[k], t);
        }
}
VEC_ROW_KERNEL(join_run)

/* ---- a bias per expert: columns are split over the team, so that each sum is one member's ---- */
struct expert_bias_at {
    int64_t lo, hi, n; /* this member's columns, of all */
};
static struct expert_bias_at expert_bias_cols(const struct view *x, int member, int n_members)
{
    struct expert_bias_at a = {.n = view_cols(x)};
    team_split((a.n + VL - 1) / VL, member, n_members, &a.lo, &a.hi);
    a.lo *= VL;
    a.hi = a.hi * VL < a.n ? a.hi * VL : a.n;
    return a;
}
VEC_INLINE void expert_bias_add(const struct kernel_call *c, struct expert_bias_at a, enum dtype t)
{
    const int32_t *rows_E = c->in[2].p;
    int64_t first = 0;
    bool off = at_expert_bias(&c->at)->bias_off;
    for (int64_t e = 0; e < view_cols(&c->in[2]); first += rows_E[e++])
        for (int64_t i = a.lo; i < a.hi; i += VL) {
            int k = v_count(a.hi - i);
            vf b = off ? vf_zero() : v_get(c->in[1].p, e * a.n + i, k, t);
            for (int64_t r = first; r < first + rows_E[e]; r++)
                v_put(row_at(&c->out[0], r), i, k, t, v_get(row_at(&c->in[0], r), i, k, t) + b);
        }
    for (int64_t r = first; r < c->in[0].n[0] && c->out[0].p != c->in[0].p; r++)
        for (int64_t i = a.lo; i < a.hi; i += VL) {
            int k = v_count(a.hi - i);
            v_put(row_at(&c->out[0], r), i, k, t, v_get(row_at(&c->in[0], r), i, k, t));
        }
}
static void expert_bias_fwd_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    V_TYPED(c->in[0].dtype, expert_bias_add, c, expert_bias_cols(&c->in[0], member, n_members));
}
static void expert_bias_fwd(const struct kernel_call *c)
{
    if (at_expert_bias(&c->at)->bias_off && c->out[0].p == c->in[0].p) return;
    team_run_call(expert_bias_fwd_member, c);
}

VEC_INLINE void expert_bias_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    for (int64_t r = lo; r < hi; r++) {
        void *dx = row_at(&c->din[0], r), *dy = row_at(&c->dout[0], r);
        const void *acc = row_or_null(&c->acc[0], r);
        if (dx == dy && !acc) continue;
        for (int64_t i = 0; i < view_cols(&c->dout[0]); i += VL) {
            int k = v_count(view_cols(&c->dout[0]) - i);
            v_put(dx, i, k, t, v_get(dy, i, k, t) + v_get_or_zero(acc, i, k, t));
        }
    }
}
VEC_ROW_KERNEL(expert_bias_bwd_in)

VEC_INLINE void expert_bias_sum(const struct kernel_call *c, struct expert_bias_at a, enum dtype t)
{
    const int32_t *rows_E = c->in[2].p;
    int64_t first = 0;
    for (int64_t e = 0; e < view_cols(&c->in[2]); first += rows_E[e++])
        for (int64_t i = a.lo; i < a.hi; i += VL) {
            int k = v_count(a.hi - i);
            vf sum = v_get_or_zero(c->acc[1].p, e * a.n + i, k, DT_F32);
            for (int64_t r = first; r < first + rows_E[e]; r++) sum += v_get(row_at(&c->dout[0], r), i, k, t);
            v_put(c->din[1].p, e * a.n + i, k, DT_F32, sum);
        }
}
static void expert_bias_bwd_w_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    V_TYPED(c->dout[0].dtype, expert_bias_sum, c, expert_bias_cols(&c->dout[0], member, n_members));
}
static void expert_bias_bwd_w(const struct kernel_call *c)
{
    if (c->din[1].p) team_run_call(expert_bias_bwd_w_member, c);
}

#endif
