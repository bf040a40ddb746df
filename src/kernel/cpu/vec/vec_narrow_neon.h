/* SPDX-License-Identifier: Apache-2.0 */
/* vec_narrow_neon.h: rounding to bf16 on Arm, bit for bit bf16_from_f32 with and without the instruction made for it
 * (which, unlike AVX-512's, keeps numbers below 2^-126 and quiets NaN the same way). Included by vec.h only. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_NARROW_NEON_H
#define TUTTI_KERNEL_CPU_VEC_VEC_NARROW_NEON_H

VEC_INLINE uint16x4_t v4_bf16(vf a)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return vreinterpret_u16_bf16(vcvt_bf16_f32(a));
#else
    vi u = vf_bits(a), odd = vi_and(vi_shr(u, 16), vi_set(1));
    uint16x4_t rounded = vaddhn_u32(vi_add(u, odd), vi_set(0x7fff)); /* the sum's upper halves */
    uint16x4_t quiet = vorr_u16(vshrn_n_u32(u, 16), vdup_n_u16(0x40));
    return vbsl_u16(vmovn_u32(vceqq_f32(a, a)), rounded, quiet);
#endif
}
/* Lane i: bf16(even[i]) in the low half, bf16(odd[i]) in the high half: one unit of a panel (tile.h). */
VEC_INLINE vi vf_pair_bf16(vf even, vf odd)
{
    uint16x8_t a = vcombine_u16(v4_bf16(even), vdup_n_u16(0)), b = vcombine_u16(v4_bf16(odd), vdup_n_u16(0));
    return vreinterpretq_u32_u16(vzip1q_u16(a, b));
}
/* VL, or the first n, elements rounded to bf16. */
VEC_INLINE void vf_narrow_bf16(uint16_t *p, vf a) { vst1_u16(p, v4_bf16(a)); }
VEC_INLINE void vf_narrow_bf16_n(uint16_t *p, vf a, int n) { v4_store_n(p, v4_bf16(a), n); }

#endif
