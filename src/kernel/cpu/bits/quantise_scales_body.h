/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_scales_body.h: what quantise.h says of one number, of a vector of them: largest numbers, scales of VL blocks
 * at a time, and sizes rounded to the values of a format. To the bit: each is the same operation of fp32.
 *
 * Two bf16 lie in 32 bits, so a vector of them is two of fp32 without a shuffle: the even ones shifted up, the odd ones
 * with their lower half cleared. A *pair* is these two; largest sizes of bf16 are found 16 bits at a time. */
#ifndef TUTTI_KERNEL_CPU_BITS_QUANTISE_SCALES_BODY_H
#define TUTTI_KERNEL_CPU_BITS_QUANTISE_SCALES_BODY_H

#include "kernel/cpu/vec/vec_rows.h"
#include "kernel/quantise.h"

enum { PAIR = 2 * VL }; /* numbers of bf16 in a vector */

/* ---- the largest ---- */
VEC_INLINE vi quantise_size(vf x) { return vi_and(vf_bits(x), vi_set(0x7fffffff)); }

/* Sizes of a pair from those of its halves, 16 bits each. */
VEC_INLINE vi quantise_even(vi u) { return vi_shl(u, 16); }
VEC_INLINE vi quantise_odd(vi u) { return vi_and(u, vi_set(0xffff0000u)); }

/* The larger of m and the sizes in [lo, hi) of a row: every size is in some lane. */
VEC_INLINE vi quantise_largest(vi m, const void *row, int64_t lo, int64_t hi, enum dtype t)
{
    int64_t k = lo;
    if (t == DT_BF16 && k + PAIR <= hi) {
        const vi sizes = vi_set(0x7fff7fff);
        vi a = vi_set(0), b = a;
        for (; k + 2 * PAIR <= hi; k += 2 * PAIR) {
            a = vi_max_u16(a, vi_and(vi_load((const uint16_t *)row + k), sizes));
            b = vi_max_u16(b, vi_and(vi_load((const uint16_t *)row + k + PAIR), sizes));
        }
        if (k + PAIR <= hi) {
            a = vi_max_u16(a, vi_and(vi_load((const uint16_t *)row + k), sizes));
            k += PAIR;
        }
        a = vi_max_u16(a, b);
        m = vi_max(m, vi_max(quantise_even(a), quantise_odd(a)));
    }
    vi other = m;
    for (; k + 2 * VL <= hi; k += 2 * VL) {
        m = vi_max(m, quantise_size(v_get(row, k, VL, t)));
        other = vi_max(other, quantise_size(v_get(row, k + VL, VL, t)));
    }
    for (; k < hi; k += VL) m = vi_max(m, quantise_size(v_get(row, k, v_count(hi - k), t)));
    return vi_max(m, other);
}

/* Lane i: the largest lane of m[i]. */
VEC_INLINE vi quantise_across(const vi m[VL])
{
    vf r[VL];
    for (int i = 0; i < VL; i++) r[i] = vi_float_bits(m[i]);
    vf_transpose(r);
    vi most = vf_bits(r[0]);
    for (int i = 1; i < VL; i++) most = vi_max(most, vf_bits(r[i]));
    return most;
}

/* Of all lanes, as a number: NaN or Inf where there is one. */
static inline float quantise_hmax(vi m)
{
    uint32_t lane[VL], most = 0;
    vi_store(lane, m);
    for (int i = 0; i < VL; i++) most = lane[i] > most ? lane[i] : most;
    return float_of(most);
}

/* ---- values ---- */
struct quantise_lanes {
    vi most, lowest, align;
};
VEC_INLINE struct quantise_lanes quantise_lanes(const struct quantise_rounding *f)
{
    return (struct quantise_lanes){vi_set(f->most), vi_set(f->lowest), vi_set((uint32_t)f->cut << 23)};
}
/* Sizes to sizes. Added to a power of two whose last bit is the format's at this size, and taken away again: fp32
 * rounds to nearest even there. Below the smallest normal value it is that of the smallest. NaN becomes the largest. */
VEC_INLINE vi quantise_value(vi size, const struct quantise_lanes *f)
{
    size = vi_min(size, f->most);
    vf by = vi_float_bits(vi_add(vi_max(vi_and(size, vi_set(0x7f800000)), f->lowest), f->align));
    return vf_bits((vi_float_bits(size) + by) - by);
}

/* ---- scales, as quantise_block() ---- */
struct quantise_vectors {
    vf up, down, descale;
};

VEC_INLINE vi quantise_powers(vi e) /* quantise_power() */
{
    const vi least = vi_set((uint32_t)-127);
    return vi_pick(vi_gt(e, least), vi_shl(vi_add(e, vi_set(127)), 23), vi_set(0x400000));
}

VEC_INLINE struct quantise_vectors quantise_mx_of(vi amax, const struct quantise_rule *r)
{
    const uint32_t m = float_bits(r->most);
    const vi one = vi_set(1), none = vi_set(0);
    const vmask small = vi_gt(vi_set(0x800000), amax), zero = vi_eq(amax, none);
    vi u = vi_pick(small, vf_bits(vi_float_bits(amax) * vf_set(0x1p64f)), amax);
    vi e = vi_add(vi_shr(u, 23), vi_set(0u - (m >> 23)));
    e = vi_add(e, vi_pick(small, vi_set((uint32_t)-64), none));
    if (r->at->up) e = vi_add(e, vi_pick(vi_gt(vi_and(u, vi_set(0x7fffff)), vi_set(m & 0x7fffff)), one, none));
    e = vi_pick(zero, none, e);
    e = vi_min(vi_max(e, vi_set((uint32_t)-127)), vi_set(127));
    vi minus = vi_add(vi_xor(e, vi_set(~0u)), one);
    return (struct quantise_vectors){vi_float_bits(quantise_powers(minus)), vi_float_bits(quantise_powers(e)),
                                     vf_set(1)};
}

VEC_INLINE struct quantise_vectors quantise_nv_of(vi amax, const struct quantise_rule *r)
{
    const struct quantise_rounding rounding = quantise_rounding(FORMAT_E4M3);
    const struct quantise_lanes e4m3 = quantise_lanes(&rounding);
    const float s_tensor = r->tensor.up, back = 1.0f / s_tensor;
    vf s = vi_float_bits(quantise_value(vf_bits(vi_float_bits(amax) / vf_set(6.0f) * vf_set(s_tensor)), &e4m3));
    vf up = vf_set(1.0f) / (s * vf_set(back));
    up = vf_pick(vf_gt(vf_set(FLT_MAX), up), up, vf_set(FLT_MAX));
    return (struct quantise_vectors){up, vf_pick(vi_eq(amax, vi_set(0)), vf_set(1), s), vf_set(1)};
}

VEC_INLINE struct quantise_vectors quantise_block_of(vi amax, const struct quantise_rule *r)
{
    vf s = vf_set(r->most) / vi_float_bits(amax);
    s = vf_pick(vf_gt(s, vf_set(FLT_MAX)), vf_set(FLT_MAX), s);
    s = vf_pick(vi_eq(amax, vi_set(0)), vf_set(1), s);
    if (r->at->power_of_two) s = vi_float_bits(vi_and(vf_bits(s), vi_set(0xff800000u)));
    vf back = vf_set(1) / s;
    return r->at->power_of_two ? (struct quantise_vectors){s, back, vf_set(1)}
                               : (struct quantise_vectors){s, vf_set(1), back};
}

/* Of n blocks with these largest sizes. There is room for whole vectors in all four. */
static void quantise_scales(const struct quantise_rule *r, const uint32_t *most, int64_t n, float *up, float *down,
                            float *descale)
{
    const vf none = vi_float_bits(vi_set(0x7fc00000));
    const bool no_tensor = isnan(r->tensor.up);
    for (int64_t i = 0; i < n; i += VL) {
        vi amax = vi_load(most + i);
        struct quantise_vectors s = r->at->scaling == SCALING_MX   ? quantise_mx_of(amax, r)
                                    : r->at->scaling == SCALING_NV ? quantise_nv_of(amax, r)
                                                                   : quantise_block_of(amax, r);
        vmask bad = vi_gt(amax, vi_set(no_tensor ? (uint32_t)-1 : 0x7f7fffffu));
        vf_store(up + i, vf_pick(bad, none, s.up));
        vf_store(down + i, vf_pick(bad, none, s.down));
        vf_store(descale + i, vf_pick(bad, none, s.descale));
    }
}

#endif
