/* SPDX-License-Identifier: Apache-2.0 */
/* adapted_body.h: matrices that are a direction and lengths, by vectors (kernel/ref/adapted.c has the formulas).
 *
 * Squares: a row of w goes through the cache once, VL columns at a time, with all r rows of a on top, whose columns are
 * used by every row of w and stay in a near cache. Columns of tokens: blocks of columns, so that a factor is made
 * once for all of a member's rows. Sums over columns and over tokens are f32, in an order that threads do not change.
 * Includes: vec_rows.h. Order: Local. */
#ifndef TUTTI_KERNEL_CPU_VEC_ADAPTED_BODY_H
#define TUTTI_KERNEL_CPU_VEC_ADAPTED_BODY_H

#include <math.h>

#include "kernel/cpu/vec/vec_rows.h"

VEC_INLINE void adapted_squares_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    const struct adapted_attrs *at = at_adapted(&c->at);
    int64_t n = view_cols(&c->in[0]), rank = c->in[2].n[1], before = 0;
    for (int p = 0; p < at->n_parts; before += at->part[p++].n)
        for (int64_t i = lo > before ? lo : before; i < hi && i < before + at->part[p].n; i++) {
            const void *w = row_at(&c->in[0], at->part[p].first + i - before), *b = row_at(&c->in[2 + p], i - before);
            vf was = vf_zero(), is = vf_zero();
            for (int64_t d = 0; d < n; d += VL) {
                int k = v_count(n - d);
                vf x = v_get(w, d, k, t), add = vf_zero();
                for (int64_t r = 0; r < rank; r++)
                    add = vf_fma(vf_set(v_get_one(b, r, t)), v_get(row_at(&c->in[1], p * rank + r), d, k, t), add);
                vf v = vf_fma(vf_set(at->times), add, x);
                was = vf_fma(x, x, was);
                is = vf_fma(v, v, is);
            }
            float *s = row_at(&c->out[0], i);
            s[0] = vf_sum(was), s[1] = vf_sum(is);
        }
}
static void adapted_squares_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(c->out[0].n[0], member, n_members, &lo, &hi);
    V_TYPED(c->in[0].dtype, adapted_squares_rows, c, lo, hi);
}
static void adapted_squares_fwd(const struct kernel_call *c) { team_run_call(adapted_squares_member, c); }

/* ---- columns of tokens ---- */
enum { ADAPTED_BLOCK = 256 };

/* Of columns lo .. hi-1 of x: what each is multiplied by (lengths: 1 over its row's length, 0 without one). */
static void adapted_factors(const struct kernel_call *c, int64_t lo, int64_t hi, bool lengths, enum dtype t,
                            float out[ADAPTED_BLOCK])
{
    const struct adapted_attrs *at = at_adapted(&c->at);
    int64_t before = 0;
    for (int64_t d = lo; d < hi; d++) out[d - lo] = lengths ? 0.0f : 1.0f;
    for (int p = 0; p < at->n_parts; before += at->part[p++].n) {
        int64_t first = at->part[p].first, end = first + at->part[p].n;
        for (int64_t d = lo > first ? lo : first; d < hi && d < end; d++) {
            int64_t i = before + d - first;
            const float *s = row_at(&c->in[1], i);
            float length = sqrtf(s[1]);
            if (!(length > 0)) continue;
            out[d - lo] = lengths ? 1.0f / length : (sqrtf(s[0]) + v_get_one(c->in[2].p, i, t)) / length;
        }
    }
}

VEC_INLINE void magnitudes_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    bool fwd = c->phase == KERNEL_FWD;
    const struct view *x = fwd ? &c->in[0] : &c->dout[0], *y = fwd ? &c->out[0] : &c->din[0];
    const void *bias = fwd && c->n_in > 3 && !at_adapted(&c->at)->bias_off ? c->in[3].p : NULL;
    int64_t n = view_cols(x);
    float g[ADAPTED_BLOCK];
    for (int64_t from = 0; from < n; from += ADAPTED_BLOCK) {
        int64_t to = from + ADAPTED_BLOCK < n ? from + ADAPTED_BLOCK : n;
        adapted_factors(c, from, to, false, t, g);
        for (int64_t r = lo; r < hi; r++)
            for (int64_t d = from; d < to; d += VL) {
                int k = v_count(to - d);
                vf add = fwd ? v_get_or_zero(bias, d, k, t) : v_get_or_zero(row_or_null(&c->acc[0], r), d, k, t);
                v_put(row_at(y, r), d, k, t, vf_fma(v_get(row_at(x, r), d, k, t), v_get(g, d - from, k, DT_F32), add));
            }
    }
}
VEC_ROW_KERNEL(magnitudes) /* forward, and the gradient of x */

/* Of columns from .. to-1, over all tokens, a chunk of rows at a time: sums of dy x, and of dy. */
VEC_INLINE void magnitudes_sums(const struct kernel_call *c, int64_t from, int64_t to, float *with_x, float *alone,
                                enum dtype t)
{
    enum { CHUNK = 64 };
    int64_t rows = view_rows(&c->dout[0]);
    for (int64_t d = from; d < to; d += VL) {
        int k = v_count(to - d);
        vf all_x = vf_zero(), all = vf_zero();
        for (int64_t lo = 0; lo < rows; lo += CHUNK) {
            vf sum_x = vf_zero(), sum = vf_zero();
            for (int64_t r = lo; r < rows && r < lo + CHUNK; r++) {
                vf dy = v_get(row_at(&c->dout[0], r), d, k, t);
                sum_x = vf_fma(dy, v_get(row_at(&c->in[0], r), d, k, t), sum_x);
                sum += dy;
            }
            all_x += sum_x;
            all += sum;
        }
        v_put(with_x, d - from, k, DT_F32, all_x);
        v_put(alone, d - from, k, DT_F32, all);
    }
}

static void magnitudes_bwd_w_block(const struct kernel_call *c, int64_t from, int64_t to)
{
    const struct adapted_attrs *at = at_adapted(&c->at);
    float by[ADAPTED_BLOCK], with_x[ADAPTED_BLOCK], alone[ADAPTED_BLOCK], *dm = c->din[2].p, *db = c->din[3].p;
    const float *acc_m = c->acc[2].p, *acc_b = c->acc[3].p;
    int64_t before = 0;
    V_TYPED(c->dout[0].dtype, magnitudes_sums, c, from, to, with_x, alone);
    adapted_factors(c, from, to, true, DT_F32, by);
    for (int p = 0; dm && p < at->n_parts; before += at->part[p++].n) {
        int64_t first = at->part[p].first, end = first + at->part[p].n;
        for (int64_t d = from > first ? from : first; d < to && d < end; d++) {
            int64_t i = before + d - first;
            dm[i] = (acc_m ? acc_m[i] : 0) + with_x[d - from] * by[d - from];
        }
    }
    for (int64_t d = from; db && d < to; d++) db[d] = (acc_b ? acc_b[d] : 0) + alone[d - from];
}
static void magnitudes_bwd_w_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi, n = view_cols(&c->dout[0]);
    team_split((n + ADAPTED_BLOCK - 1) / ADAPTED_BLOCK, member, n_members, &lo, &hi);
    for (int64_t q = lo; q < hi; q++)
        magnitudes_bwd_w_block(c, q * ADAPTED_BLOCK, (q + 1) * ADAPTED_BLOCK < n ? (q + 1) * ADAPTED_BLOCK : n);
}
static void magnitudes_bwd_w(const struct kernel_call *c) { team_run_call(magnitudes_bwd_w_member, c); }

#endif
