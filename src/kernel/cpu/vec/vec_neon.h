/* SPDX-License-Identifier: Apache-2.0 */
/* vec_neon.h: the vector words of vec.h, 4 lanes wide, for 64-bit Arm. Included by vec.h only. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_NEON_H
#define TUTTI_KERNEL_CPU_VEC_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline, unused))
enum { VL = 4 };
typedef float32x4_t vf;
typedef uint32x4_t vi;
typedef uint32x4_t vmask; /* all bits of a lane set or clear */

VEC_INLINE vf vf_set(float a) { return vdupq_n_f32(a); }
VEC_INLINE vf vf_zero(void) { return vdupq_n_f32(0); }
VEC_INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
VEC_INLINE vf vf_max(vf a, vf b) { return vmaxq_f32(a, b); } /* NaN in either operand stays */
VEC_INLINE vf vf_min(vf a, vf b) { return vminq_f32(a, b); }
VEC_INLINE vf vf_reciprocal(vf a) { return vdivq_f32(vf_set(1.0f), a); }
VEC_INLINE vf vf_sqrt(vf a) { return vsqrtq_f32(a); }
VEC_INLINE vf vf_round(vf a) { return vrndnq_f32(a); }
VEC_INLINE vi vf_bits(vf a) { return vreinterpretq_u32_f32(a); }
VEC_INLINE vf vi_float_bits(vi a) { return vreinterpretq_f32_u32(a); }

VEC_INLINE vi vi_set(uint32_t a) { return vdupq_n_u32(a); }
VEC_INLINE vi vi_load(const void *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
VEC_INLINE void vi_store(void *p, vi a) { vst1q_u8(p, vreinterpretq_u8_u32(a)); }
VEC_INLINE vi vi_add(vi a, vi b) { return vaddq_u32(a, b); }
VEC_INLINE vi vi_max(vi a, vi b)
{
    return vreinterpretq_u32_s32(vmaxq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b)));
} /* signed */
VEC_INLINE vi vi_min(vi a, vi b)
{
    return vreinterpretq_u32_s32(vminq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b)));
} /* signed */
VEC_INLINE vi vi_max_u16(vi a, vi b)
{
    return vreinterpretq_u32_u16(vmaxq_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
}
VEC_INLINE vi vi_and(vi a, vi b) { return vandq_u32(a, b); }
VEC_INLINE vi vi_or(vi a, vi b) { return vorrq_u32(a, b); }
VEC_INLINE vi vi_xor(vi a, vi b) { return veorq_u32(a, b); }
#define vi_shl(a, n) vshlq_n_u32(a, n)
#define vi_shr(a, n) vshrq_n_u32(a, n)
/* Each lane by its own count; 32 to 127: 0. */
VEC_INLINE vi vi_shlv(vi a, vi n) { return vshlq_u32(a, vreinterpretq_s32_u32(n)); }
VEC_INLINE vi vi_shrv(vi a, vi n) { return vshlq_u32(a, vnegq_s32(vreinterpretq_s32_u32(n))); }

/* a * 2^n for integral n <= 128: two factors, so that neither overflows; far below, the result is 0. */
VEC_INLINE vf vf_scale2(vf a, vf n)
{
    int32x4_t k = vcvtq_s32_f32(vmaxq_f32(n, vdupq_n_f32(-252.0f))), h = vshrq_n_s32(k, 1), bias = vdupq_n_s32(127);
    vf f = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(h, bias), 23));
    vf g = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(k, h), bias), 23));
    return a * f * g;
}
VEC_INLINE float vf_sum(vf a) { return vaddvq_f32(a); } /* (a0 + a1) + (a2 + a3) */
VEC_INLINE float vf_hmax(vf a) { return vmaxvq_f32(a); }

/* Lane numbers 0 .. VL-1. */
VEC_INLINE vi vi_iota(void)
{
    static const uint32_t lanes[VL] = {0, 1, 2, 3};
    return vld1q_u32(lanes);
}
/* Lanes 0 .. n-1. */
VEC_INLINE vmask vm_first(int n) { return vcltq_u32(vi_iota(), vi_set((uint32_t)n)); }
VEC_INLINE vmask vm_and(vmask a, vmask b) { return vandq_u32(a, b); }
VEC_INLINE vmask vm_or(vmask a, vmask b) { return vorrq_u32(a, b); }
VEC_INLINE vmask vi_eq(vi a, vi b) { return vceqq_u32(a, b); }
VEC_INLINE vmask vi_gt(vi a, vi b)
{
    return vcgtq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b));
} /* signed */
VEC_INLINE vmask vf_unordered(vf a) { return vmvnq_u32(vceqq_f32(a, a)); }
VEC_INLINE vmask vf_gt(vf a, vf b) { return vcgtq_f32(a, b); }
VEC_INLINE int vm_any(vmask m) { return vmaxvq_u32(m) != 0; }
VEC_INLINE int vm_lowest(vmask m) { return (int)vminvq_u32(vornq_u32(vi_iota(), m)); } /* lanes not set: past the end */
VEC_INLINE vf vf_pick(vmask m, vf yes, vf no) { return vbslq_f32(m, yes, no); }
VEC_INLINE vi vi_pick(vmask m, vi yes, vi no) { return vbslq_u32(m, yes, no); }

/* The first n of VL elements, n in 0 .. VL; what is not there reads as 0 and is not touched. */
VEC_INLINE vi vi_load_n(const void *p, int n)
{
    const uint32_t *q = p;
    vi a = vi_set(0);
    if (n >= VL) return vi_load(p);
    if (n > 0) a = vld1q_lane_u32(q, a, 0);
    if (n > 1) a = vld1q_lane_u32(q + 1, a, 1);
    if (n > 2) a = vld1q_lane_u32(q + 2, a, 2);
    return a;
}
VEC_INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
VEC_INLINE void vf_store(float *p, vf a) { vst1q_f32(p, a); }
VEC_INLINE vf vf_load_n(const float *p, int n) { return vi_float_bits(vi_load_n(p, n)); }
VEC_INLINE void vf_store_n(float *p, vf a, int n)
{
    if (n >= VL) vst1q_f32(p, a);
    if (n >= VL) return;
    if (n > 0) vst1q_lane_f32(p, a, 0);
    if (n > 1) vst1q_lane_f32(p + 1, a, 1);
    if (n > 2) vst1q_lane_f32(p + 2, a, 2);
}

/* 16-bit words, zero-extended to lanes, and back (the low half of each lane). */
VEC_INLINE vi vi_load_u16(const uint16_t *p) { return vmovl_u16(vld1_u16(p)); }
VEC_INLINE vf vf_load_bf16(const uint16_t *p) { return vi_float_bits(vshll_n_u16(vld1_u16(p), 16)); }
VEC_INLINE vi vi_load_u16_n(const uint16_t *p, int n)
{
    uint16x4_t a = vdup_n_u16(0);
    if (n >= VL) return vi_load_u16(p);
    if (n > 0) a = vld1_lane_u16(p, a, 0);
    if (n > 1) a = vld1_lane_u16(p + 1, a, 1);
    if (n > 2) a = vld1_lane_u16(p + 2, a, 2);
    return vmovl_u16(a);
}
VEC_INLINE void vi_store_u16(uint16_t *p, vi a) { vst1_u16(p, vmovn_u32(a)); }
VEC_INLINE void v4_store_n(uint16_t *p, uint16x4_t a, int n)
{
    if (n >= VL) vst1_u16(p, a);
    if (n >= VL) return;
    if (n > 0) vst1_lane_u16(p, a, 0);
    if (n > 1) vst1_lane_u16(p + 1, a, 1);
    if (n > 2) vst1_lane_u16(p + 2, a, 2);
}
VEC_INLINE void vi_store_u16_n(uint16_t *p, vi a, int n) { v4_store_n(p, vmovn_u32(a), n); }
/* Bytes, likewise. */
VEC_INLINE vi vi_load_u8(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(w))));
}
VEC_INLINE void vi_store_u8(uint8_t *p, vi a)
{
    uint16x4_t words = vmovn_u32(a);
    uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
    uint32_t w = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(p, &w, sizeof w);
}
VEC_INLINE vf vf_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
VEC_INLINE void vf_store_f16(uint16_t *p, vf a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }

/* r[i][j] <-> r[j][i] over VL x VL: pairs of rows interleave 32 bits, then 64. */
VEC_INLINE void vf_transpose(vf r[4])
{
    float64x2_t t0 = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])), t1 = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    float64x2_t t2 = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])), t3 = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(t0, t2));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(t1, t3));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(t0, t2));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(t1, t3));
}

/* Doubles: VL lanes are two vectors. */
enum { VDL = 2 };
typedef float64x2_t vd;
VEC_INLINE vd vd_zero(void) { return vdupq_n_f64(0); }
VEC_INLINE vd vd_from_float(const float *p) { return vcvt_f64_f32(vld1_f32(p)); }
VEC_INLINE vd vd_fma(vd a, vd b, vd c) { return vfmaq_f64(c, a, b); }
VEC_INLINE void vd_store(double *p, vd a) { vst1q_f64(p, a); }

/* Words for Philox: 32-bit numbers in the low halves of 64-bit lanes. */
enum { VQL = 2 };
#define VQ(a) vreinterpretq_u64_u32(a)
VEC_INLINE vi vq_set(uint64_t a) { return vreinterpretq_u32_u64(vdupq_n_u64(a)); }
VEC_INLINE vi vq_count(uint64_t a)
{
    static const uint64_t lanes[VQL] = {0, 1};
    return vreinterpretq_u32_u64(vaddq_u64(vdupq_n_u64(a), vld1q_u64(lanes)));
}
VEC_INLINE vi vq_mul(vi a, vi b) { return vreinterpretq_u32_u64(vmull_u32(vmovn_u64(VQ(a)), vmovn_u64(VQ(b)))); }
VEC_INLINE vi vq_high(vi a) { return vreinterpretq_u32_u64(vshrq_n_u64(VQ(a), 32)); }
VEC_INLINE vi vq_to_high(vi a) { return vreinterpretq_u32_u64(vshlq_n_u64(VQ(a), 32)); }
VEC_INLINE vi vq_low(vi a) { return vi_and(a, vq_set(0xffffffffu)); }
/* a, b hold words (0,1) and (2,3) of VQL blocks; out: the 4*VQL words in order. */
VEC_INLINE void vq_interleave(vi a, vi b, uint32_t *out)
{
    vi_store(out, vreinterpretq_u32_u64(vtrn1q_u64(VQ(a), VQ(b))));
    vi_store(out + 4, vreinterpretq_u32_u64(vtrn2q_u64(VQ(a), VQ(b))));
}

#endif
