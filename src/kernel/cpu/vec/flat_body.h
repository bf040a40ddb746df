/* SPDX-License-Identifier: Apache-2.0 */
/* flat_body.h: the flat operations over vec.h, included by the flat_<isa>.c files.
 *
 * All are bound by memory: AdamW moves 30 bytes per bf16 parameter (reads master, m, v, grad; writes master, m, v,
 * param), so each is one pass, split over the team in contiguous pieces. Elementwise results cannot depend on the
 * split; the sum of squares forms fixed blocks and adds them in order on the caller. Rejected: non-temporal stores,
 * since all but the 2-byte parameter lines were read a moment before. */
#ifndef TUTTI_KERNEL_CPU_VEC_FLAT_BODY_H
#define TUTTI_KERNEL_CPU_VEC_FLAT_BODY_H

#include <stdatomic.h>

#include "base/mem.h"
#include "kernel/cpu/vec/vec.h"
#include "kernel/flat_ops.h"
#include "kernel/kernel.h"

/* Pieces are whole cache lines of the narrowest type, so that members never write to one line. */
enum { FLAT_GRAIN = 64 };
static void flat_split(int64_t n, int member, int n_members, int64_t *lo, int64_t *hi)
{
    team_split((n + FLAT_GRAIN - 1) / FLAT_GRAIN, member, n_members, lo, hi);
    *lo = *lo * FLAT_GRAIN < n ? *lo * FLAT_GRAIN : n;
    *hi = *hi * FLAT_GRAIN < n ? *hi * FLAT_GRAIN : n;
}

/* ---- AdamW ---- */
VEC_INLINE void adamw_vector(const struct adamw_args *a, const struct adamw_factors *f, int64_t i, int n, enum dtype t)
{
    vf g = v_get(a->grad, i, n, DT_F32) * vf_set(a->grad_scale);
    vf m = vf_fma(vf_set(a->beta1), v_get(a->m, i, n, DT_F32), vf_set(f->new1) * g);
    vf v = vf_fma(vf_set(a->beta2), v_get(a->v, i, n, DT_F32), vf_set(f->new2) * g * g);
    vf root = vf_fma(vf_sqrt(v), vf_set(f->root_scale), vf_set(a->eps));
    vf p = v_get(a->master, i, n, DT_F32);
    p = vf_fma(vf_set(f->step), m / root, vf_fma(vf_set(f->decay), p, p));
    v_put(a->m, i, n, DT_F32, m);
    v_put(a->v, i, n, DT_F32, v);
    v_put(a->master, i, n, DT_F32, p);
    if (t != DT_N) v_put(a->param, i, n, t, p);
}
VEC_INLINE void adamw_range(const struct adamw_args *args, int64_t lo, int64_t hi, enum dtype t)
{
    struct adamw_args a = *args; /* a copy: no store below can change it, for all the compiler knows */
    struct adamw_factors f = adamw_factors(&a);
    int64_t i = lo;
    for (; i + VL <= hi; i += VL) adamw_vector(&a, &f, i, VL, t);
    if (i < hi) adamw_vector(&a, &f, i, (int)(hi - i), t);
}

/* Also writes the parameter when that is bf16 or another fp32 array; DT_N: there is none to write. */
static enum dtype param_written(const void *param, const void *master, enum dtype t)
{
    return param && param != master ? t : DT_N;
}
static void adamw_member(void *arg, int member, int n_members)
{
    const struct adamw_args *a = arg;
    int64_t lo, hi;
    flat_split(a->n, member, n_members, &lo, &hi);
    switch (param_written(a->param, a->master, a->param_dtype)) {
    case DT_BF16: adamw_range(a, lo, hi, DT_BF16); break;
    case DT_F32: adamw_range(a, lo, hi, DT_F32); break;
    default: adamw_range(a, lo, hi, DT_N);
    }
}

/* ---- SGD ---- */
VEC_INLINE void sgd_vector(const struct sgd_args *a, int64_t i, int n, enum dtype t)
{
    vf p = v_get(a->master, i, n, DT_F32);
    vf g = vf_fma(vf_set(a->weight_decay), p, v_get(a->grad, i, n, DT_F32) * vf_set(a->grad_scale));
    if (a->m) {
        vf m = vf_fma(vf_set(a->momentum), v_get(a->m, i, n, DT_F32), g);
        v_put(a->m, i, n, DT_F32, m);
        g = a->nesterov ? vf_fma(vf_set(a->momentum), m, g) : m;
    }
    p = vf_fma(vf_set(-a->lr), g, p);
    v_put(a->master, i, n, DT_F32, p);
    if (t != DT_N) v_put(a->param, i, n, t, p);
}
VEC_INLINE void sgd_range(const struct sgd_args *args, int64_t lo, int64_t hi, enum dtype t)
{
    struct sgd_args a = *args;
    int64_t i = lo;
    for (; i + VL <= hi; i += VL) sgd_vector(&a, i, VL, t);
    if (i < hi) sgd_vector(&a, i, (int)(hi - i), t);
}
static void sgd_member(void *arg, int member, int n_members)
{
    const struct sgd_args *a = arg;
    int64_t lo, hi;
    flat_split(a->n, member, n_members, &lo, &hi);
    switch (param_written(a->param, a->master, a->param_dtype)) {
    case DT_BF16: sgd_range(a, lo, hi, DT_BF16); break;
    case DT_F32: sgd_range(a, lo, hi, DT_F32); break;
    default: sgd_range(a, lo, hi, DT_N);
    }
}

/* ---- cast ---- */
struct flat_cast {
    void *dst;
    const void *src;
    enum dtype to, from;
    int64_t n;
};
VEC_INLINE vf flat_get(const void *p, int64_t i, enum dtype t)
{
    return t == DT_F16 ? vf_load_f16((const uint16_t *)p + i) : v_get(p, i, VL, t);
}
VEC_INLINE void flat_put(void *p, int64_t i, enum dtype t, vf a)
{
    if (t == DT_F16) vf_store_f16((uint16_t *)p + i, a);
    else v_put(p, i, VL, t, a);
}
VEC_INLINE void cast_range(const struct flat_cast *c, int64_t lo, int64_t hi, enum dtype to, enum dtype from)
{
    int64_t i = lo;
    for (; i + VL <= hi; i += VL) flat_put(c->dst, i, to, flat_get(c->src, i, from));
    if (i == hi) return;
    size_t in_bytes = dtype_bytes(from), out_bytes = dtype_bytes(to);
    float in[VL] = {0}, out[VL];
    memcpy(in, (const char *)c->src + (size_t)i * in_bytes, (size_t)(hi - i) * in_bytes);
    flat_put(out, 0, to, flat_get(in, 0, from));
    memcpy((char *)c->dst + (size_t)i * out_bytes, out, (size_t)(hi - i) * out_bytes);
}
static void cast_member(void *arg, int member, int n_members)
{
    const struct flat_cast *c = arg;
    int64_t lo, hi;
    flat_split(c->n, member, n_members, &lo, &hi);
    switch (c->to * DT_N + c->from) {
    case DT_F32 *DT_N + DT_BF16: cast_range(c, lo, hi, DT_F32, DT_BF16); break;
    case DT_F32 *DT_N + DT_F16: cast_range(c, lo, hi, DT_F32, DT_F16); break;
    case DT_BF16 *DT_N + DT_F32: cast_range(c, lo, hi, DT_BF16, DT_F32); break;
    case DT_BF16 *DT_N + DT_F16: cast_range(c, lo, hi, DT_BF16, DT_F16); break;
    case DT_F16 *DT_N + DT_F32: cast_range(c, lo, hi, DT_F16, DT_F32); break;
    case DT_F16 *DT_N + DT_BF16: cast_range(c, lo, hi, DT_F16, DT_BF16); break;
    default: { /* the same type on both sides */
        size_t b = dtype_bytes(c->to), at = (size_t)lo * b;
        if (lo < hi) memcpy((char *)c->dst + at, (const char *)c->src + at, (size_t)(hi - lo) * b);
    }
    }
}
static int is_float16_or_32(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }
static void cast_vec(struct team *team, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n)
{
    if (to != from && !(is_float16_or_32(to) && is_float16_or_32(from))) {
        flat_ops_ref.cast(team, dst, to, src, from, n);
        return;
    }
    struct flat_cast c = {dst, src, to, from, n};
    team_run(team, cast_member, &c);
}

static void adamw_vec(struct team *team, const struct adamw_args *a)
{
    team_run(team, adamw_member, (void *)(uintptr_t)a);
    if (param_written(a->param, a->master, a->param_dtype) == DT_F16)
        cast_vec(team, a->param, DT_F16, a->master, DT_F32, a->n);
}
static void sgd_vec(struct team *team, const struct sgd_args *a)
{
    team_run(team, sgd_member, (void *)(uintptr_t)a);
    if (param_written(a->param, a->master, a->param_dtype) == DT_F16)
        cast_vec(team, a->param, DT_F16, a->master, DT_F32, a->n);
}

/* ---- sum of squares ---- */
enum { SQUARES_ROUND = 2048 }; /* block sums held at once: 16 KiB of stack stand for 32 MiB of elements */
struct flat_squares {
    const float *x;
    int64_t n, first_block, n_blocks;
    double sum[SQUARES_ROUND];
};
static double squares_block(const float *x, int64_t n)
{
    enum { K = FLAT_LANES / VDL };
    vd acc[K];
#pragma GCC unroll 8
    for (int k = 0; k < K; k++) acc[k] = vd_zero();
    int64_t i = 0;
    for (; i + FLAT_LANES <= n; i += FLAT_LANES)
#pragma GCC unroll 8
        for (int k = 0; k < K; k++) {
            vd v = vd_from_float(x + i + k * VDL);
            acc[k] = vd_fma(v, v, acc[k]); /* the square is exact in fp64: fused or not, the same bits */
        }
    double lane[FLAT_LANES];
#pragma GCC unroll 8
    for (int k = 0; k < K; k++) vd_store(lane + k * VDL, acc[k]);
    for (int k = 0; i < n; i++, k++) lane[k] += (double)x[i] * x[i];
    return flat_fold(lane);
}
static void squares_member(void *arg, int member, int n_members)
{
    struct flat_squares *s = arg;
    int64_t lo, hi;
    team_split(s->n_blocks, member, n_members, &lo, &hi);
    for (int64_t b = lo; b < hi; b++) {
        int64_t begin = (s->first_block + b) * FLAT_BLOCK, left = s->n - begin;
        s->sum[b] = squares_block(s->x + begin, left < FLAT_BLOCK ? left : FLAT_BLOCK);
    }
}
static void sum_squares_vec(struct team *team, const float *x, int64_t n, double *sum)
{
    struct flat_squares s = {.x = x, .n = n};
    int64_t n_blocks = (n + FLAT_BLOCK - 1) / FLAT_BLOCK;
    double total = 0;
    for (; s.first_block < n_blocks; s.first_block += SQUARES_ROUND) {
        int64_t left = n_blocks - s.first_block;
        s.n_blocks = left < SQUARES_ROUND ? left : SQUARES_ROUND;
        team_run(team, squares_member, &s);
        for (int64_t b = 0; b < s.n_blocks; b++) total += s.sum[b];
    }
    *sum += total;
}

/* ---- NaN and Inf: an exponent of all ones ---- */
struct flat_find {
    const void *x;
    enum dtype dtype;
    int64_t n;
    _Atomic int64_t first; /* smallest index found so far; n: none */
};
VEC_INLINE vmask nonfinite_lanes(vi u, enum dtype t)
{
    vi ones = vi_set(t == DT_F32 ? 0x7f800000u : t == DT_BF16 ? 0x7f80u : 0x7c00u);
    return vi_eq(vi_and(u, ones), ones);
}
VEC_INLINE vmask nonfinite_at(const void *p, int64_t i, enum dtype t)
{
    if (t == DT_F32) return nonfinite_lanes(vi_load((const float *)p + i), t);
    return nonfinite_lanes(vi_load_u16((const uint16_t *)p + i), t);
}
/* Eight vectors share one branch; the place is looked for only where there is one. */
VEC_INLINE int64_t find_range(const struct flat_find *f, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t i = lo;
    for (; i + 8 * VL <= hi; i += 8 * VL) {
        vmask any = nonfinite_at(f->x, i, t);
        for (int k = 1; k < 8; k++) any = vm_or(any, nonfinite_at(f->x, i + k * VL, t));
        if (vm_any(any)) break;
    }
    for (; i < hi; i += VL) {
        int n = v_count(hi - i);
        vi u = t == DT_F32 ? vi_load_n((const float *)f->x + i, n) : vi_load_u16_n((const uint16_t *)f->x + i, n);
        vmask m = nonfinite_lanes(u, t);
        if (vm_any(m)) return i + vm_lowest(m);
    }
    return f->n;
}
static void find_member(void *arg, int member, int n_members)
{
    struct flat_find *f = arg;
    int64_t lo, hi, at;
    flat_split(f->n, member, n_members, &lo, &hi);
    switch (f->dtype) {
    case DT_F32: at = find_range(f, lo, hi, DT_F32); break;
    case DT_BF16: at = find_range(f, lo, hi, DT_BF16); break;
    default: at = find_range(f, lo, hi, DT_F16);
    }
    int64_t seen = atomic_load(&f->first);
    while (at < seen && !atomic_compare_exchange_weak(&f->first, &seen, at)) continue;
}
static int64_t find_nonfinite_vec(struct team *team, const void *x, enum dtype dtype, int64_t n)
{
    if (!is_float16_or_32(dtype)) return flat_ops_ref.find_nonfinite(team, x, dtype, n);
    struct flat_find f = {.x = x, .dtype = dtype, .n = n};
    atomic_init(&f.first, n);
    team_run(team, find_member, &f);
    int64_t first = atomic_load(&f.first);
    return first < n ? first : -1;
}

#endif
