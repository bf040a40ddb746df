/* SPDX-License-Identifier: Apache-2.0 */
/* rotary_body.h: ROTARY over vec.h: every head's pairs (i, i + A/2) turned by the position's angle, in place or not.
 *
 * The cosines and sines of a position come from the table and are used by all heads of the token, so the table's
 * row stays in L1 and the operation moves its tensor once in and once out. Backward turns the other way. Neighbours as
 * pairs (latent attention) go one by one: they are a tenth of the columns or fewer.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_ROTARY_BODY_H
#define TUTTI_KERNEL_CPU_VEC_ROTARY_BODY_H

#include "kernel/cpu/vec/vec_rows.h"

VEC_INLINE void rotary_turn(void *y, const void *acc, const void *x, const float *cosines, int64_t half, bool back,
                            enum dtype t)
{
    for (int64_t i = 0; i < half; i += VL) {
        int k = v_count(half - i);
        vf co = v_get(cosines, i, k, DT_F32), si = v_get(cosines, half + i, k, DT_F32);
        if (back) si = vf_zero() - si;
        vf a = v_get(x, i, k, t), b = v_get(x, half + i, k, t);
        vf u = a * co - b * si, v = b * co + a * si;
        v_put(y, i, k, t, u + v_get_or_zero(acc, i, k, t));
        v_put(y, half + i, k, t, v + v_get_or_zero(acc, half + i, k, t));
    }
}
VEC_APART void rotary_turn_apart(void *y, const void *acc, const void *x, const float *cosines, int64_t half, bool back,
                                 enum dtype t)
{
    V_TYPED(t, rotary_turn, y, acc, x, cosines, half, back);
}
VEC_INLINE void rotary_put(void *p, const void *acc, int64_t i, enum dtype t, float x)
{
    if (acc) x += v_get_one(acc, i, t);
    v_put_one(p, i, t, x);
}
/* One head whose columns [at, at + wide) are turned, the rest copied. */
VEC_APART void rotary_part(const struct rotary_attrs *a, void *y, const void *acc, const void *x, const float *cosines,
                           bool back, enum dtype t)
{
    int64_t wide = a->dim ? a->dim : a->head_dim, half = wide / 2;
    for (int64_t i = 0; (x != y || acc) && i < a->head_dim; i++)
        if (i < a->at || i >= a->at + wide) rotary_put(y, acc, i, t, v_get_one(x, i, t));
    if (!a->pairs) {
        size_t off = (size_t)a->at * dtype_bytes(t);
        rotary_turn_apart((char *)y + off, acc ? (const char *)acc + off : NULL, (const char *)x + off, cosines, half,
                          back, t);
        return;
    }
    for (int64_t i = 0; i < half; i++) {
        int64_t c1 = a->at + 2 * i, c2 = c1 + 1;
        float co = cosines[i], si = back ? -cosines[half + i] : cosines[half + i];
        float u = v_get_one(x, c1, t), v = v_get_one(x, c2, t);
        rotary_put(y, acc, c1, t, u * co - v * si);
        rotary_put(y, acc, c2, t, v * co + u * si);
    }
}
VEC_INLINE void rotary_run_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    const struct rotary_attrs *at = at_rotary(&c->at);
    bool back = c->phase != KERNEL_FWD;
    const struct view *x = main_view(c), *y = back ? &c->din[0] : &c->out[0], absent = {0};
    const struct view *acc = back ? &c->acc[0] : &absent;
    int64_t half = at->head_dim / 2;
    bool plain = !at->dim && !at->pairs;
    size_t head_bytes = (size_t)at->head_dim * dtype_bytes(t);
    for (int64_t r = lo; r < hi; r++) {
        int32_t pos = ((const int32_t *)c->in[1].p)[r];
        CHECK(pos >= 0 && pos < c->in[2].n[0], "position %d is beyond the table of %lld", (int)pos,
              (long long)c->in[2].n[0]);
        const float *cosines = row_at(&c->in[2], pos);
        const char *xr = row_at(x, r), *ar = row_or_null(acc, r);
        char *yr = row_at(y, r);
        for (int h = 0; h < at->heads; h++) {
            size_t off = (size_t)h * head_bytes;
            if (plain) rotary_turn(yr + off, ar ? ar + off : NULL, xr + off, cosines, half, back, t);
            else rotary_part(at, yr + off, ar ? ar + off : NULL, xr + off, cosines, back, t);
        }
    }
}
VEC_ROW_KERNEL(rotary_run)

#endif
