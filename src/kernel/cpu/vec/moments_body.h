/* SPDX-License-Identifier: Apache-2.0 */
/* moments_body.h: AdamW with moments in blocks (kernel/moments.h) over vec.h. A block's new moments stay in a buffer of
 * the stack until its largest is known. Cost: some 150 instructions per vector; bytes: 2 read and 2 written per
 * element beside gradient, master and copy. */
#ifndef TUTTI_KERNEL_CPU_VEC_MOMENTS_BODY_H
#define TUTTI_KERNEL_CPU_VEC_MOMENTS_BODY_H

#include "kernel/cpu/vec/flat_body.h"
#include "kernel/moments.h"
#include "kernel/update.h"

struct moment_maps {
    struct moment_map m, v;
};

VEC_INLINE vi moments_load(const void *p, int64_t i, int n)
{
    uint8_t some[VL] = {0};
    if (n == VL) return vi_load_u8((const uint8_t *)p + i);
    memcpy(some, (const uint8_t *)p + i, (size_t)n);
    return vi_load_u8(some);
}

VEC_INLINE void moments_store(void *p, int64_t i, int n, vi code)
{
    uint8_t some[VL];
    vi_store_u8(n == VL ? (uint8_t *)p + i : some, code);
    if (n < VL) memcpy((uint8_t *)p + i, some, (size_t)n);
}

VEC_INLINE vf moments_abs(vf x) { return vi_float_bits(vi_and(vf_bits(x), vi_set(0x7fffffff))); }
VEC_INLINE vf moments_signed(vf size, vi sign) { return vi_float_bits(vi_or(vf_bits(size), sign)); }

/* Codes up to 255 as floats, and back. */
VEC_INLINE vf moments_number(vi k) { return vi_float_bits(vi_or(k, vi_set(0x4b000000))) - vf_set(8388608.0f); }
VEC_INLINE vi moments_code(vf k) { return vi_and(vf_bits(k + vf_set(8388608.0f)), vi_set(0xff)); }

VEC_INLINE vf map_value(const struct moment_map *m, vi code)
{
    vf k = moments_number(code), step = vf_zero(), base = vf_zero();
    for (int e = 0; e < MOMENT_DECADES; e++) {
        vmask in = vf_gt(k, vf_set(m->n[e] - 0.5f));
        step = vf_pick(in, vf_set(m->step[e]), step);
        base = vf_pick(in, vf_set(m->base[e]), base);
    }
    return vf_fma(step, k, base);
}

VEC_INLINE vi map_code(const struct moment_map *m, vf y)
{
    vf inverse = vf_zero(), shift = vf_zero(), n = vf_zero();
    for (int e = 0; e < MOMENT_DECADES; e++) {
        vmask in = vf_gt(y, vf_set(m->at[e]));
        inverse = vf_pick(in, vf_set(m->inverse[e]), inverse);
        shift = vf_pick(in, vf_set(-m->shift[e]), shift);
        n = vf_pick(in, vf_set(m->n[e]), n);
    }
    vf k = vf_round(vf_fma(inverse, y, shift));
    return moments_code(vf_max(n, vf_min(n + n - vf_set(1), k)));
}

/* E4M3 by its fields: with its exponent moved by 120 a code is an fp32, and where it is subnormal the multiple of 2^-9
 * that it counts. */
VEC_INLINE vf e4m3_value(vi code)
{
    vi size = vi_and(code, vi_set(0x7f)), sign = vi_shl(vi_and(code, vi_set(0x80)), 24);
    vf small = moments_number(size) * vf_set(0x1p-9f);
    vf normal = vi_float_bits(vi_add(vi_shl(size, 20), vi_set(120u << 23)));
    return moments_signed(vf_pick(vi_gt(vi_set(8), size), small, normal), sign);
}

/* Rounded by adding a power of two of which the last place is the code's. */
VEC_INLINE vi e4m3_code(vf y)
{
    vi sign = vi_shr(vi_and(vf_bits(y), vi_set(0x80000000u)), 24);
    vf size = vf_min(moments_abs(y), vf_set(448)), least = vf_set(0x1p-6f);
    vi exponent = vi_and(vf_bits(vf_max(size, least)), vi_set(0x7f800000));
    vf power = vi_float_bits(vi_add(exponent, vi_set(20u << 23)));
    vf rounded = (size + power) - power;
    vi normal = vi_shr(vi_add(vf_bits(rounded), vi_set((uint32_t) - (120 << 23))), 20);
    vi small = moments_code(rounded * vf_set(0x1p9f));
    return vi_or(sign, vi_pick(vf_gt(least, rounded), small, normal));
}

VEC_INLINE vf first_moment(const struct moment_maps *x, const void *p, int64_t i, int n, bool fp8)
{
    vi code = moments_load(p, i, n);
    if (fp8) return e4m3_value(code);
    vf size = map_value(&x->m, vi_and(code, vi_set(0x7f)));
    vf v = moments_signed(size, vi_shl(vi_and(code, vi_set(0x80)), 24));
    return vf_pick(vi_eq(code, vi_set(0x80)), vf_set(1), v);
}

VEC_INLINE vf second_moment(const struct moment_maps *x, const void *p, int64_t i, int n, bool fp8)
{
    if (fp8) return v_get(p, i, n, DT_F16);
    vi code = moments_load(p, i, n);
    return vf_pick(vi_eq(code, vi_set(1)), vf_set(1), map_value(&x->v, code));
}

VEC_INLINE void keep_first(const struct moment_maps *x, void *p, int64_t i, int n, vf y, bool fp8)
{
    vf size = moments_abs(y);
    vi code = fp8 ? e4m3_code(y) : map_code(&x->m, size), sign = vi_shr(vi_and(vf_bits(y), vi_set(0x80000000u)), 24);
    if (!fp8) {
        vi with = vi_pick(vi_eq(code, vi_set(0)), code, vi_or(code, sign));
        vi one = vi_pick(vi_eq(sign, vi_set(0)), vi_set(0x80), vi_set(0xff));
        code = vi_pick(vf_gt(size, vf_set(x->m.top)), one, with);
    }
    moments_store(p, i, n, code);
}

VEC_INLINE void keep_second(const struct moment_maps *x, void *p, int64_t i, int n, vf y, bool fp8)
{
    vf least = vf_set(fp8 ? MOMENT_LEAST_F16 : moment_least(&x->v));
    y = vf_pick(vf_gt(y, vf_zero()), vf_max(y, least), y);
    if (fp8) v_put(p, i, n, DT_F16, y);
    else moments_store(p, i, n, vi_pick(vf_gt(y, vf_set(x->v.top)), vi_set(1), map_code(&x->v, y)));
}

VEC_INLINE void adamw8_block(const struct update_args *a, const struct moment_maps *x, int64_t b, bool fp8,
                             enum dtype t)
{
    const float *f = a->f;
    float *ms = a->at[ADAMW8_M_SCALE].p, *vs = a->at[ADAMW8_V_SCALE].p, m[MOMENTS_BLOCK + VL], v[MOMENTS_BLOCK + VL];
    int64_t n, at = update_block(a, b, &n);
    vf most_m = vf_zero(), most_v = vf_zero(), m_scale = vf_set(ms[b]), v_scale = vf_set(vs[b]);
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        vf g = v_get(a->at[ADAMW8_GRAD].p, at + i, k, DT_F32) * vf_set(f[ADAMW16_SCALE]);
        vf p = v_get(a->at[ADAMW8_MASTER].p, at + i, k, DT_F32);
        vf first = vf_fma(vf_set(f[ADAMW16_BETA1]), first_moment(x, a->at[ADAMW8_M].p, at + i, k, fp8) * m_scale,
                          vf_set(1 - f[ADAMW16_BETA1]) * g);
        vf second = vf_fma(vf_set(f[ADAMW16_BETA2]), second_moment(x, a->at[ADAMW8_V].p, at + i, k, fp8) * v_scale,
                           vf_set(1 - f[ADAMW16_BETA2]) * g * g);
        vf root = vf_fma(vf_sqrt(second), vf_set(f[ADAMW16_ROOT]), vf_set(f[ADAMW16_EPS]));
        p = vf_fma(vf_set(f[ADAMW16_STEP]), first / root, vf_fma(vf_set(f[ADAMW16_DECAY]), p, p));
        v_put(a->at[ADAMW8_MASTER].p, at + i, k, DT_F32, p);
        if (t != DT_N) v_put(a->at[ADAMW8_PARAM].p, at + i, k, t, p);
        most_m = vf_max(most_m, moments_abs(first));
        most_v = vf_max(most_v, second);
        vf_store(m + i, first);
        vf_store(v + i, second);
    }
    struct moment_scale sm = moment_scale_of(vf_hmax(most_m), fp8 ? MOMENT_RANGE_E4M3 : MOMENT_RANGE_MAP),
                        sv = moment_scale_of(vf_hmax(most_v), fp8 ? MOMENT_RANGE_F16 : MOMENT_RANGE_MAP);
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        keep_first(x, a->at[ADAMW8_M].p, at + i, k, vf_load(m + i) * vf_set(sm.inverse), fp8);
        keep_second(x, a->at[ADAMW8_V].p, at + i, k, vf_load(v + i) * vf_set(sv.inverse), fp8);
    }
    ms[b] = sm.scale;
    vs[b] = sv.scale;
}

#define ADAMW8_BLOCKS(fp8, t)                                                                                          \
    for (int64_t b = lo; b < hi; b++) adamw8_block(a, &x, b, fp8, t)

static void adamw8_range(const struct update_args *a, int64_t lo, int64_t hi, enum dtype copy)
{
    struct moment_maps x;
    moment_map_init(&x.m, true);
    moment_map_init(&x.v, false);
    if (a->flag && copy == DT_BF16) ADAMW8_BLOCKS(true, DT_BF16);
    else if (a->flag && copy == DT_F32) ADAMW8_BLOCKS(true, DT_F32);
    else if (a->flag) ADAMW8_BLOCKS(true, DT_N);
    else if (copy == DT_BF16) ADAMW8_BLOCKS(false, DT_BF16);
    else if (copy == DT_F32) ADAMW8_BLOCKS(false, DT_F32);
    else ADAMW8_BLOCKS(false, DT_N);
}

#endif
