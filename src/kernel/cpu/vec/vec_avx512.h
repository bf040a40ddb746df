/* SPDX-License-Identifier: Apache-2.0 */
/* vec_avx512.h: the vector words of vec.h, 16 lanes wide. Included by vec.h only. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_AVX512_H
#define TUTTI_KERNEL_CPU_VEC_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define VEC_INLINE static inline __attribute__((always_inline, unused))
enum { VL = 16 };
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vmask;

VEC_INLINE vf vf_set(float a) { return _mm512_set1_ps(a); }
VEC_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
VEC_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
VEC_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
VEC_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
/* 1 / a to an ulp for normal a and 1 / a: an estimate of 14 bits and one step of Newton. */
VEC_INLINE vf vf_reciprocal(vf a)
{
    vf r = _mm512_rcp14_ps(a);
    return _mm512_mul_ps(r, _mm512_fnmadd_ps(a, r, vf_set(2.0f)));
}
VEC_INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
VEC_INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
VEC_INLINE vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }
VEC_INLINE float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
VEC_INLINE float vf_hmax(vf a) { return _mm512_reduce_max_ps(a); }
VEC_INLINE vi vf_bits(vf a) { return _mm512_castps_si512(a); }
VEC_INLINE vf vi_float_bits(vi a) { return _mm512_castsi512_ps(a); }

VEC_INLINE vi vi_set(uint32_t a) { return _mm512_set1_epi32((int)a); }
VEC_INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
VEC_INLINE void vi_store(void *p, vi a) { _mm512_storeu_si512(p, a); }
VEC_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
VEC_INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); } /* signed */
VEC_INLINE vi vi_min(vi a, vi b) { return _mm512_min_epi32(a, b); } /* signed */
VEC_INLINE vi vi_max_u16(vi a, vi b) { return _mm512_max_epu16(a, b); }
VEC_INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
VEC_INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
VEC_INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
#define vi_shl(a, n) _mm512_slli_epi32(a, n)
#define vi_shr(a, n) _mm512_srli_epi32(a, n)
/* Each lane by its own count; 32 and more: 0. */
VEC_INLINE vi vi_shlv(vi a, vi n) { return _mm512_sllv_epi32(a, n); }
VEC_INLINE vi vi_shrv(vi a, vi n) { return _mm512_srlv_epi32(a, n); }

/* Lanes 0 .. n-1. */
VEC_INLINE vmask vm_first(int n) { return (vmask)((1u << n) - 1); }
VEC_INLINE vmask vm_and(vmask a, vmask b) { return (vmask)(a & b); }
VEC_INLINE vmask vm_or(vmask a, vmask b) { return (vmask)(a | b); }
VEC_INLINE vmask vi_eq(vi a, vi b) { return _mm512_cmpeq_epi32_mask(a, b); }
VEC_INLINE vmask vi_gt(vi a, vi b) { return _mm512_cmpgt_epi32_mask(a, b); } /* signed */
VEC_INLINE vmask vf_unordered(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
VEC_INLINE vmask vf_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
VEC_INLINE int vm_any(vmask m) { return m != 0; }
VEC_INLINE int vm_lowest(vmask m) { return __builtin_ctz(m); }
VEC_INLINE vf vf_pick(vmask m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
VEC_INLINE vi vi_pick(vmask m, vi yes, vi no) { return _mm512_mask_blend_epi32(m, no, yes); }

VEC_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
VEC_INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
VEC_INLINE vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(vm_first(n), p); }
VEC_INLINE void vf_store_n(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, vm_first(n), a); }
VEC_INLINE vi vi_load_n(const void *p, int n) { return _mm512_maskz_loadu_epi32(vm_first(n), p); }

/* 16-bit words, zero-extended to lanes, and back (the low half of each lane). */
VEC_INLINE vi vi_load_u16(const uint16_t *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
VEC_INLINE vf vf_load_bf16(const uint16_t *p) { return vi_float_bits(vi_shl(vi_load_u16(p), 16)); }
VEC_INLINE vi vi_load_u16_n(const uint16_t *p, int n)
{
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
VEC_INLINE void vi_store_u16(uint16_t *p, vi a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(a)); }
VEC_INLINE void vi_store_u16_n(uint16_t *p, vi a, int n)
{
    _mm256_mask_storeu_epi16(p, vm_first(n), _mm512_cvtepi32_epi16(a));
}
/* Bytes, likewise. */
VEC_INLINE vi vi_load_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
VEC_INLINE void vi_store_u8(uint8_t *p, vi a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }
VEC_INLINE vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
VEC_INLINE void vf_store_f16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* r[i][j] <-> r[j][i] over VL x VL: pairs of rows interleave 32 bits, then 64, then 128-bit quarters twice. */
VEC_INLINE void vf_transpose(vf r[16])
{
    vf t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

/* Lane numbers 0 .. VL-1. */
VEC_INLINE vi vi_iota(void) { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }

/* Doubles: VL lanes are two vectors. */
enum { VDL = 8 };
typedef __m512d vd;
VEC_INLINE vd vd_zero(void) { return _mm512_setzero_pd(); }
VEC_INLINE vd vd_from_float(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
VEC_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
VEC_INLINE void vd_store(double *p, vd a) { _mm512_storeu_pd(p, a); }

/* Words for Philox: 32-bit numbers in the low halves of 64-bit lanes. */
enum { VQL = 8 };
VEC_INLINE vi vq_set(uint64_t a) { return _mm512_set1_epi64((long long)a); }
VEC_INLINE vi vq_count(uint64_t a) { return _mm512_add_epi64(vq_set(a), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0)); }
VEC_INLINE vi vq_mul(vi a, vi b) { return _mm512_mul_epu32(a, b); }
VEC_INLINE vi vq_high(vi a) { return _mm512_srli_epi64(a, 32); }
VEC_INLINE vi vq_to_high(vi a) { return _mm512_slli_epi64(a, 32); }
VEC_INLINE vi vq_low(vi a) { return _mm512_and_si512(a, vq_set(0xffffffffu)); }
/* a, b hold words (0,1) and (2,3) of VQL blocks; out: the 4*VQL words in order. */
VEC_INLINE void vq_interleave(vi a, vi b, uint32_t *out)
{
    vi lo = _mm512_unpacklo_epi64(a, b), hi = _mm512_unpackhi_epi64(a, b);
    const vi first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    vi_store(out, _mm512_permutex2var_epi64(lo, first, hi));
    vi_store(out + 16, _mm512_permutex2var_epi64(lo, second, hi));
}

#endif
