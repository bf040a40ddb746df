/* SPDX-License-Identifier: Apache-2.0 */
/* vec_avx2.h: the vector words of vec.h, 8 lanes wide. Included by vec.h only. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_AVX2_H
#define TUTTI_KERNEL_CPU_VEC_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline, unused))
enum { VL = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m256i vmask; /* all bits of a lane set or clear */

VEC_INLINE vf vf_set(float a) { return _mm256_set1_ps(a); }
VEC_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
VEC_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
VEC_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
VEC_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
VEC_INLINE vf vf_reciprocal(vf a) { return _mm256_div_ps(vf_set(1.0f), a); }
VEC_INLINE vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
VEC_INLINE vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
VEC_INLINE vi vf_bits(vf a) { return _mm256_castps_si256(a); }
VEC_INLINE vf vi_float_bits(vi a) { return _mm256_castsi256_ps(a); }

VEC_INLINE vi vi_set(uint32_t a) { return _mm256_set1_epi32((int)a); }
VEC_INLINE vi vi_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
VEC_INLINE void vi_store(void *p, vi a) { _mm256_storeu_si256((__m256i *)p, a); }
VEC_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
VEC_INLINE vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); } /* signed */
VEC_INLINE vi vi_min(vi a, vi b) { return _mm256_min_epi32(a, b); } /* signed */
VEC_INLINE vi vi_max_u16(vi a, vi b) { return _mm256_max_epu16(a, b); }
VEC_INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
VEC_INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
VEC_INLINE vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
#define vi_shl(a, n) _mm256_slli_epi32(a, n)
#define vi_shr(a, n) _mm256_srli_epi32(a, n)
/* Each lane by its own count; 32 and more: 0. */
VEC_INLINE vi vi_shlv(vi a, vi n) { return _mm256_sllv_epi32(a, n); }
VEC_INLINE vi vi_shrv(vi a, vi n) { return _mm256_srlv_epi32(a, n); }

/* a * 2^n for integral n <= 128: two factors, so that neither overflows; far below, the result is 0. */
VEC_INLINE vf vf_scale2(vf a, vf n)
{
    vi k = _mm256_cvtps_epi32(_mm256_max_ps(n, _mm256_set1_ps(-252.0f)));
    vi h = _mm256_srai_epi32(k, 1), bias = vi_set(127);
    vf f = vi_float_bits(vi_shl(vi_add(h, bias), 23));
    vf g = vi_float_bits(vi_shl(vi_add(_mm256_sub_epi32(k, h), bias), 23));
    return a * f * g;
}
VEC_INLINE float vf_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
VEC_INLINE float vf_hmax(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Lanes 0 .. n-1. */
VEC_INLINE vmask vm_first(int n)
{
    return _mm256_cmpgt_epi32(vi_set((uint32_t)n), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}
VEC_INLINE vmask vm_and(vmask a, vmask b) { return vi_and(a, b); }
VEC_INLINE vmask vm_or(vmask a, vmask b) { return vi_or(a, b); }
VEC_INLINE vmask vi_eq(vi a, vi b) { return _mm256_cmpeq_epi32(a, b); }
VEC_INLINE vmask vi_gt(vi a, vi b) { return _mm256_cmpgt_epi32(a, b); } /* signed */
VEC_INLINE vmask vf_unordered(vf a) { return vf_bits(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
VEC_INLINE vmask vf_gt(vf a, vf b) { return vf_bits(_mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
VEC_INLINE int vm_any(vmask m) { return _mm256_movemask_ps(vi_float_bits(m)) != 0; }
VEC_INLINE int vm_lowest(vmask m) { return __builtin_ctz((unsigned)_mm256_movemask_ps(vi_float_bits(m))); }
VEC_INLINE vf vf_pick(vmask m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, vi_float_bits(m)); }
VEC_INLINE vi vi_pick(vmask m, vi yes, vi no) { return _mm256_blendv_epi8(no, yes, m); }

VEC_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
VEC_INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
VEC_INLINE vf vf_load_n(const float *p, int n) { return _mm256_maskload_ps(p, vm_first(n)); }
VEC_INLINE void vf_store_n(float *p, vf a, int n) { _mm256_maskstore_ps(p, vm_first(n), a); }
VEC_INLINE vi vi_load_n(const void *p, int n) { return _mm256_maskload_epi32(p, vm_first(n)); }

/* 16-bit words, zero-extended to lanes, and back (the low half of each lane). */
VEC_INLINE vi vi_load_u16(const uint16_t *p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
VEC_INLINE vf vf_load_bf16(const uint16_t *p) { return vi_float_bits(vi_shl(vi_load_u16(p), 16)); }
VEC_INLINE vi vi_load_u16_n(const uint16_t *p, int n)
{
    uint16_t t[8] = {0};
    memcpy(t, p, (size_t)n * 2);
    return vi_load_u16(t);
}
VEC_INLINE void vi_store_u16(uint16_t *p, vi a)
{
    vi low = vi_and(a, vi_set(0xffff));
    vi packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}
VEC_INLINE void vi_store_u16_n(uint16_t *p, vi a, int n)
{
    uint16_t t[8];
    vi_store_u16(t, a);
    memcpy(p, t, (size_t)n * 2);
}
/* Bytes, likewise. */
VEC_INLINE vi vi_load_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
VEC_INLINE void vi_store_u8(uint8_t *p, vi a)
{
    vi low = vi_and(a, vi_set(0xff)), words = _mm256_packus_epi32(low, low), bytes = _mm256_packus_epi16(words, words);
    uint32_t half[2] = {(uint32_t)_mm256_extract_epi32(bytes, 0), (uint32_t)_mm256_extract_epi32(bytes, 4)};
    memcpy(p, half, sizeof half);
}
VEC_INLINE vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
VEC_INLINE void vf_store_f16(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* r[i][j] <-> r[j][i] over VL x VL: pairs of rows interleave 32 bits, then 64, then halves. */
VEC_INLINE void vf_transpose(vf r[8])
{
    vf t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof t);
}

/* Lane numbers 0 .. VL-1. */
VEC_INLINE vi vi_iota(void) { return _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0); }

/* Doubles: VL lanes are two vectors. */
enum { VDL = 4 };
typedef __m256d vd;
VEC_INLINE vd vd_zero(void) { return _mm256_setzero_pd(); }
VEC_INLINE vd vd_from_float(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
VEC_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
VEC_INLINE void vd_store(double *p, vd a) { _mm256_storeu_pd(p, a); }

/* Words for Philox: 32-bit numbers in the low halves of 64-bit lanes. */
enum { VQL = 4 };
VEC_INLINE vi vq_set(uint64_t a) { return _mm256_set1_epi64x((long long)a); }
VEC_INLINE vi vq_count(uint64_t a) { return _mm256_add_epi64(vq_set(a), _mm256_set_epi64x(3, 2, 1, 0)); }
VEC_INLINE vi vq_mul(vi a, vi b) { return _mm256_mul_epu32(a, b); }
VEC_INLINE vi vq_high(vi a) { return _mm256_srli_epi64(a, 32); }
VEC_INLINE vi vq_to_high(vi a) { return _mm256_slli_epi64(a, 32); }
VEC_INLINE vi vq_low(vi a) { return vi_and(a, vq_set(0xffffffffu)); }
/* a, b hold words (0,1) and (2,3) of VQL blocks; out: the 4*VQL words in order. */
VEC_INLINE void vq_interleave(vi a, vi b, uint32_t *out)
{
    vi lo = _mm256_unpacklo_epi64(a, b), hi = _mm256_unpackhi_epi64(a, b);
    vi_store(out, _mm256_permute2x128_si256(lo, hi, 0x20));
    vi_store(out + 8, _mm256_permute2x128_si256(lo, hi, 0x31));
}

#endif
