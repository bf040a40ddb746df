/* SPDX-License-Identifier: Apache-2.0 */
/* packed256.h: codes as numbers in AVX2. A block's 16 values times its scale, rounded to the type that is computed in,
 * are two registers; eight codes pick from both, and their highest bit says from which. A code of 8 bits becomes a
 * float and is multiplied. The products are those of the reference, one for each value. Included by *_avx2.c only. */
#ifndef TUTTI_KERNEL_CPU_TILE_PACKED256_H
#define TUTTI_KERNEL_CPU_TILE_PACKED256_H

#include <immintrin.h>

#include "kernel/packed_rows.h"
#include "layout/bits.h"

struct packed256_table {
    __m256 lo, hi; /* of codes 0 to 7, and 8 to 15 */
};

/* As bf16_from_f32 does it; none is NaN. What is left lies in the upper half of each lane. */
static inline __m256 packed256_round(__m256 v)
{
    __m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32((int)0xffff0000)));
}

static inline struct packed256_table packed256_table(const float value[PACKING_CODES], float scale, enum dtype t)
{
    const __m256 by = _mm256_set1_ps(scale);
    struct packed256_table x = {_mm256_mul_ps(_mm256_loadu_ps(value), by),
                                _mm256_mul_ps(_mm256_loadu_ps(value + 8), by)};
    if (t == DT_F32) return x;
    return (struct packed256_table){packed256_round(x.lo), packed256_round(x.hi)};
}

/* Eight codes, a byte each. */
static inline __m256 packed256_pick(struct packed256_table x, __m128i codes)
{
    const __m256i i = _mm256_cvtepu8_epi32(codes);
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)); /* the sign is what counts */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(x.lo, i), _mm256_permutevar8x32_ps(x.hi, i), upper);
}

/* 32 numbers of 16 bytes. */
static inline void packed256_four(struct packed256_table x, const uint8_t *codes, __m256 out[4])
{
    const __m128i low = _mm_set1_epi8(15), two = _mm_loadu_si128((const void *)codes);
    const __m128i first = _mm_and_si128(_mm_srli_epi16(two, 4), low), second = _mm_and_si128(two, low);
    const __m128i a = _mm_unpacklo_epi8(first, second), b = _mm_unpackhi_epi8(first, second);
    out[0] = packed256_pick(x, a);
    out[1] = packed256_pick(x, _mm_srli_si128(a, 8));
    out[2] = packed256_pick(x, b);
    out[3] = packed256_pick(x, _mm_srli_si128(b, 8));
}

/* The same of 32 codes of 8 bits, without their scale. */
static inline void packed256_bytes(const uint8_t *codes, __m256 out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(codes + 8 * i))));
}

/* A power of two as a byte of its exponent: packed_scale without groups, which rounds nothing. */
static inline float packed256_power(uint8_t code) { return float_of(code ? (uint32_t)code << 23 : 0x400000u); }

static inline void packed256_put(void *x, enum dtype t, int64_t i, __m256 v)
{
    if (t == DT_F32) {
        _mm256_storeu_ps((float *)x + i, v);
        return;
    }
    const __m256i u = _mm256_srli_epi32(_mm256_castps_si256(v), 16);
    _mm_storeu_si128((void *)((bf16 *)x + i),
                     _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1)));
}

#endif
