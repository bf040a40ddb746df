/* SPDX-License-Identifier: Apache-2.0 */
/* embed_body.h: EMBED and COPY over vec.h: moving rows, with a cast where the types differ.
 *
 * The gradient of an embedding adds dy's rows into rows chosen by token, and tokens repeat. Members take columns,
 * not tokens or vocabulary: every sum is formed by one member in token order whatever the team, and a text of one
 * repeated token is as balanced as any other.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_EMBED_BODY_H
#define TUTTI_KERNEL_CPU_VEC_EMBED_BODY_H

#include "kernel/cpu/vec/vec_rows.h"

/* The row of the table, or -1: in another part of the vocabulary. */
static int64_t embed_row(const struct kernel_call *c, int64_t t)
{
    const struct vocab_attrs *at = at_vocab(&c->at);
    int64_t id = ((const int32_t *)c->in[0].p)[t], n = c->phase == KERNEL_FWD ? c->in[1].n[0] : c->din[1].n[0];
    int64_t whole = at->whole ? at->whole : n, row = id - at->first;
    CHECK(id >= 0 && id < whole, "token %lld has id %lld, the vocabulary has %lld", (long long)t, (long long)id,
          (long long)whole);
    return row >= 0 && row < n ? row : -1;
}

VEC_INLINE void embed_scaled_row(void *y, const void *w, int64_t n, float scale, enum dtype t)
{
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        v_put(y, i, k, t, v_get(w, i, k, t) * vf_set(scale));
    }
}

static void embed_fwd_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(view_cols(&c->in[0]), member, n_members, &lo, &hi);
    size_t bytes = (size_t)view_cols(&c->in[1]) * dtype_bytes(c->in[1].dtype);
    float scale = at_vocab(&c->at)->scale;
    for (int64_t t = lo; t < hi; t++) {
        int64_t row = embed_row(c, t);
        if (row < 0) {
            memset(row_at(&c->out[0], t), 0, bytes);
        } else if (scale == 0) {
            memcpy(row_at(&c->out[0], t), row_at(&c->in[1], row), bytes);
        } else {
            V_TYPED(c->in[1].dtype, embed_scaled_row, row_at(&c->out[0], t), row_at(&c->in[1], row),
                    view_cols(&c->in[1]), scale);
        }
    }
}
static void embed_fwd(const struct kernel_call *c) { team_run_call(embed_fwd_member, c); }

/* Columns i .. i+n-1 start from acc, or from zero. */
static void embed_start(const struct kernel_call *c, int64_t i, int64_t n)
{
    if (c->acc[1].p == c->din[1].p || n <= 0) return;
    size_t bytes = (size_t)n * sizeof(float);
    for (int64_t v = 0; v < c->din[1].n[0]; v++) {
        float *d = (float *)row_at(&c->din[1], v) + i;
        if (c->acc[1].p) memcpy(d, (const float *)row_at(&c->acc[1], v) + i, bytes);
        else memset(d, 0, bytes);
    }
}
VEC_INLINE void embed_bwd_w_columns(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    embed_start(c, lo, hi - lo);
    vf by = vf_set(at_vocab(&c->at)->scale != 0 ? at_vocab(&c->at)->scale : 1);
    for (int64_t r = 0; r < view_rows(&c->dout[0]); r++) {
        int64_t row = embed_row(c, r);
        if (row < 0) continue;
        float *d = row_at(&c->din[1], row);
        const void *dy = row_at(&c->dout[0], r);
        for (int64_t i = lo; i < hi; i += VL) {
            int k = v_count(hi - i);
            v_put(d, i, k, DT_F32, vf_fma(v_get(dy, i, k, t), by, v_get(d, i, k, DT_F32)));
        }
    }
}
static void embed_bwd_w_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi, n = view_cols(&c->dout[0]);
    team_split((n + 15) / 16, member, n_members, &lo, &hi); /* whole cache lines of the gradient */
    lo *= 16;
    hi = hi * 16 < n ? hi * 16 : n;
    V_TYPED(c->dout[0].dtype, embed_bwd_w_columns, c, lo, hi);
}
static void embed_bwd_w(const struct kernel_call *c) { team_run_call(embed_bwd_w_member, c); }

/* ---- COPY ---- */
VEC_INLINE void copy_row_as(void *dst, enum dtype to, const void *acc, enum dtype acc_type, const void *src,
                            enum dtype from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        v_put(dst, i, k, to, v_get(src, i, k, from) + v_get_or_zero(acc, i, k, acc_type));
    }
}
/* dst = acc + src, row by row; plain bytes where nothing is to be done to them. */
static void copy_rows(const struct view *dst, const struct view *acc, const struct view *src, int64_t lo, int64_t hi)
{
    int64_t n = view_cols(src);
    for (int64_t r = lo; r < hi; r++) {
        void *d = row_at(dst, r);
        const void *a = row_or_null(acc, r), *s = row_at(src, r);
        switch (dst->dtype * 8 + src->dtype * 2 + (a != NULL)) {
        case DT_F32 * 8 + DT_F32 * 2:
        case DT_F16 * 8 + DT_F16 * 2:
        case DT_BF16 * 8 + DT_BF16 * 2: memmove(d, s, (size_t)n * dtype_bytes(src->dtype)); break;
        case DT_F32 * 8 + DT_BF16 * 2: copy_row_as(d, DT_F32, NULL, DT_F32, s, DT_BF16, n); break;
        case DT_BF16 * 8 + DT_F32 * 2: copy_row_as(d, DT_BF16, NULL, DT_F32, s, DT_F32, n); break;
        case DT_F32 * 8 + DT_F16 * 2: copy_row_as(d, DT_F32, NULL, DT_F32, s, DT_F16, n); break;
        case DT_F16 * 8 + DT_F32 * 2: copy_row_as(d, DT_F16, NULL, DT_F32, s, DT_F32, n); break;
        default: copy_row_as(d, dst->dtype, a, acc->dtype, s, src->dtype, n);
        }
    }
}
static void copy_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(view_rows(main_view(c)), member, n_members, &lo, &hi);
    const struct view absent = {0};
    if (c->phase == KERNEL_FWD) copy_rows(&c->out[0], &absent, &c->in[0], lo, hi);
    else copy_rows(&c->din[0], &c->acc[0], &c->dout[0], lo, hi);
}
static void copy_run(const struct kernel_call *c) { team_run_call(copy_member, c); }

static bool copy_accepts(const struct kernel_call *c)
{
    enum dtype from = main_view(c)->dtype, to = c->phase == KERNEL_FWD ? c->out[0].dtype : c->din[0].dtype;
    return v_takes(from) && v_takes(to);
}

#endif
