/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.h: the instructions of AVX-512, AVX512-BF16 and AMX that the kernels use, on a processor that has AVX2.
 *
 * With the option TUTTI_EMULATE cmake puts this file before every *_avx512.c, *_avx512bf16.c and *_amx.c instead of the
 * flags that would let the compiler use those instructions: the same kernels, with the same order of sums and the same
 * roundings, run where they otherwise would be left out. SIMDe (libsimde-dev) has most of AVX-512; what it lacks, and
 * what must be exact where the manual says more than SIMDe does, stands below, named as the intrinsics are.
 *
 *   VDPBF16PS   per lane: the odd pair's product is added first, then the even pair's, each by one fused multiply-add;
 *               subnormal inputs and results count as zero (Intel SDM vol. 2, VDPBF16PS)
 *   TDPBF16PS   even and odd elements are summed apart, then added together and to C (kernel/cpu/tile/tile_reg_sim.h)
 *   VRCP14PS    the true reciprocal rounded to 14 bits: not the bits of any processor, as near as all of them
 *
 * Rates mean nothing here.
 */
#ifndef TUTTI_EMULATE_AVX512_H
#define TUTTI_EMULATE_AVX512_H

#define SIMDE_NO_INLINE /* quick to compile: all in one was minutes a file */
#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <simde/x86/avx512.h>
#pragma GCC diagnostic pop
#include <math.h>
#include <stdint.h>
#include <string.h>

#define EMULATED static __attribute__((noinline, unused))

/* -- lanes of a vector as arrays ------------------------------------------------------------------------------- */

#define LANES(type, n, name, v)                                                                                        \
    type name[n];                                                                                                      \
    memcpy(name, &(v), sizeof name)
#define VECTOR(vector, from)                                                                                           \
    ({                                                                                                                 \
        vector vector_;                                                                                                \
        _Static_assert(sizeof vector_ == sizeof(from), "as many lanes");                                               \
        memcpy(&vector_, from, sizeof vector_);                                                                        \
        vector_;                                                                                                       \
    })
/* Memory of lanes that a mask leaves out is not touched: it may lie behind a page's end. */
#define MASKED_LOAD(vector, type, n, mask, p)                                                                          \
    ({                                                                                                                 \
        type lanes_[n] = {0};                                                                                          \
        for (int lane_ = 0; lane_ < n; lane_++)                                                                        \
            if ((mask) >> lane_ & 1)                                                                                   \
                memcpy(&lanes_[lane_], (const char *)(p) + (size_t)lane_ * sizeof(type), sizeof(type));                \
        VECTOR(vector, lanes_);                                                                                        \
    })
#define MASKED_STORE(type, n, p, mask, v)                                                                              \
    do {                                                                                                               \
        LANES(type, n, lanes_, v);                                                                                     \
        for (int lane_ = 0; lane_ < n; lane_++)                                                                        \
            if ((mask) >> lane_ & 1) memcpy((char *)(p) + (size_t)lane_ * sizeof(type), &lanes_[lane_], sizeof(type)); \
    } while (0)

/* -- AVX-512 that SIMDe lacks ---------------------------------------------------------------------------------- */

EMULATED __m512 emulated_maskz_loadu_ps(unsigned m, const void *p) { return MASKED_LOAD(__m512, float, 16, m, p); }
EMULATED __m512i emulated_maskz_loadu_epi32(unsigned m, const void *p)
{
    return MASKED_LOAD(__m512i, int32_t, 16, m, p);
}
EMULATED __m512i emulated_maskz_loadu_epi16(unsigned m, const void *p)
{
    return MASKED_LOAD(__m512i, int16_t, 32, m, p);
}
EMULATED __m256i emulated_256_maskz_loadu_epi16(unsigned m, const void *p)
{
    return MASKED_LOAD(__m256i, int16_t, 16, m, p);
}
EMULATED void emulated_mask_storeu_ps(void *p, unsigned m, __m512 v) { MASKED_STORE(float, 16, p, m, v); }
EMULATED void emulated_mask_storeu_epi32(void *p, unsigned m, __m512i v) { MASKED_STORE(int32_t, 16, p, m, v); }
EMULATED void emulated_256_mask_storeu_epi16(void *p, unsigned m, __m256i v) { MASKED_STORE(int16_t, 16, p, m, v); }

EMULATED __m512i emulated_cvtepu16_epi32(__m256i v)
{
    LANES(uint16_t, 16, from, v);
    uint32_t to[16];
    for (int i = 0; i < 16; i++) to[i] = from[i];
    return VECTOR(__m512i, to);
}
EMULATED __m512i emulated_cvtepu8_epi32(__m128i v)
{
    LANES(uint8_t, 16, from, v);
    uint32_t to[16];
    for (int i = 0; i < 16; i++) to[i] = from[i];
    return VECTOR(__m512i, to);
}
EMULATED __m256i emulated_cvtepi32_epi16(__m512i v)
{
    LANES(uint32_t, 16, from, v);
    uint16_t to[16];
    for (int i = 0; i < 16; i++) to[i] = (uint16_t)from[i];
    return VECTOR(__m256i, to);
}
EMULATED __m128i emulated_cvtepi32_epi8(__m512i v)
{
    LANES(uint32_t, 16, from, v);
    uint8_t to[16];
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)from[i];
    return VECTOR(__m128i, to);
}
EMULATED __m512 emulated_cvtph_ps(__m256i v)
{
    LANES(__m128i, 2, from, v);
    __m256 to[2] = {_mm256_cvtph_ps(from[0]), _mm256_cvtph_ps(from[1])};
    return VECTOR(__m512, to);
}
EMULATED __m256i emulated_cvtps_ph(__m512 v)
{
    LANES(__m256, 2, from, v);
    __m128i to[2] = {_mm256_cvtps_ph(from[0], _MM_FROUND_TO_NEAREST_INT),
                     _mm256_cvtps_ph(from[1], _MM_FROUND_TO_NEAREST_INT)};
    return VECTOR(__m256i, to);
}
EMULATED __m512d emulated_cvtps_pd(__m256 v)
{
    LANES(float, 8, from, v);
    double to[8];
    for (int i = 0; i < 8; i++) to[i] = (double)from[i];
    return VECTOR(__m512d, to);
}
EMULATED __m512 emulated_shuffle_f32x4(__m512 a, __m512 b, int order)
{
    LANES(__m128, 4, from_a, a);
    LANES(__m128, 4, from_b, b);
    __m128 to[4] = {from_a[order & 3], from_a[order >> 2 & 3], from_b[order >> 4 & 3], from_b[order >> 6 & 3]};
    return VECTOR(__m512, to);
}
/* As gcc and clang write them: halves, quarters, pairs. */
#define HALVING(name, combine)                                                                                         \
    EMULATED float name(__m512 v)                                                                                      \
    {                                                                                                                  \
        LANES(float, 16, x, v);                                                                                        \
        for (int n = 8; n; n /= 2)                                                                                     \
            for (int i = 0; i < n; i++) x[i] = combine(x[i], x[i + n]);                                                \
        return x[0];                                                                                                   \
    }
#define ADDED(a, b) ((a) + (b))
#define GREATER(a, b) ((a) > (b) ? (a) : (b)) /* as VMAXPS: the second where one is no number */
HALVING(emulated_reduce_add_ps, ADDED)
HALVING(emulated_reduce_max_ps, GREATER)

EMULATED __m512 emulated_rcp14_ps(__m512 v)
{
    LANES(float, 16, x, v);
    for (int i = 0; i < 16; i++) {
        uint32_t bits;
        x[i] = 1.0f / x[i];
        memcpy(&bits, &x[i], 4);
        if (isfinite(x[i])) bits = (bits + 0x100) & ~0x1ffu;
        memcpy(&x[i], &bits, 4);
    }
    return VECTOR(__m512, x);
}

#undef _mm512_maskz_loadu_ps
#undef _mm512_rcp14_ps
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps
#define _mm512_maskz_loadu_epi32 emulated_maskz_loadu_epi32
#define _mm512_maskz_loadu_epi16 emulated_maskz_loadu_epi16
#define _mm256_maskz_loadu_epi16 emulated_256_maskz_loadu_epi16
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_mask_storeu_epi32 emulated_mask_storeu_epi32
#define _mm256_mask_storeu_epi16 emulated_256_mask_storeu_epi16
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16
#define _mm512_cvtepi32_epi8 emulated_cvtepi32_epi8
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtps_ph(v, rounding) emulated_cvtps_ph(v)
#define _mm512_cvtps_pd emulated_cvtps_pd
#define _mm512_shuffle_f32x4 emulated_shuffle_f32x4
#define _mm512_reduce_add_ps emulated_reduce_add_ps
#define _mm512_reduce_max_ps emulated_reduce_max_ps
#define _mm512_rcp14_ps emulated_rcp14_ps

/* -- AVX512-BF16 ----------------------------------------------------------------------------------------------- */

/* Vectors of bits: the kernels cast to them and from them. */
#define __m512bh __m512i
#define __m256bh __m256i

EMULATED uint32_t emulated_flush(uint32_t bits) { return bits & 0x7f800000u ? bits : bits & 0x80000000u; }
EMULATED float emulated_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
EMULATED uint32_t emulated_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
EMULATED float emulated_flushed(float x) { return emulated_float(emulated_flush(emulated_bits(x))); }
/* To nearest even; what is no number stays none, subnormal numbers are zero. */
EMULATED uint16_t emulated_bf16(float x)
{
    uint32_t bits = emulated_flush(emulated_bits(x));
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
EMULATED __m256i emulated_cvtneps_pbh(__m512 v)
{
    LANES(float, 16, from, v);
    uint16_t to[16];
    for (int i = 0; i < 16; i++) to[i] = emulated_bf16(from[i]);
    return VECTOR(__m256i, to);
}
EMULATED __m512i emulated_cvtne2ps_pbh(__m512 high, __m512 low)
{
    __m256i to[2] = {emulated_cvtneps_pbh(low), emulated_cvtneps_pbh(high)};
    return VECTOR(__m512i, to);
}
EMULATED __m512 emulated_dpbf16_ps(__m512 s, __m512i a, __m512i b)
{
    LANES(float, 16, sum, s);
    LANES(uint32_t, 16, x, a);
    LANES(uint32_t, 16, y, b);
    for (int i = 0; i < 16; i++) {
        float x1 = emulated_float(emulated_flush(x[i] & 0xffff0000u)),
              y1 = emulated_float(emulated_flush(y[i] & 0xffff0000u));
        float x0 = emulated_float(emulated_flush(x[i] << 16)), y0 = emulated_float(emulated_flush(y[i] << 16));
        sum[i] = emulated_flushed(__builtin_fmaf(x1, y1, emulated_flushed(sum[i])));
        sum[i] = emulated_flushed(__builtin_fmaf(x0, y0, sum[i]));
    }
    return VECTOR(__m512, sum);
}
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps emulated_dpbf16_ps
#define _mm512_cvtneps_pbh emulated_cvtneps_pbh
#define _mm512_cvtne2ps_pbh emulated_cvtne2ps_pbh

/* -- AMX ------------------------------------------------------------------------------------------------------- */

#if defined(TUTTI_EMULATE_AMX)
#include "kernel/cpu/tile/tile_reg_sim.h"

static __thread struct tile_reg emulated_tiles[8];
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(p) ((void)(p))
#define _tile_release() ((void)0)
#define _tile_zero(t) memset(&emulated_tiles[t], 0, sizeof emulated_tiles[t])
#define _tile_loadd(t, p, bytes) sim_load(&emulated_tiles[t], p, bytes)
#define _tile_stored(t, p, bytes) sim_store(p, bytes, &emulated_tiles[t])
#define _tile_dpbf16ps(c, a, b) sim_dot(&emulated_tiles[c], &emulated_tiles[a], &emulated_tiles[b])
#undef TILE_REGS
#undef TILE_ZERO
#undef TILE_LOAD
#undef TILE_STORE
#undef TILE_DOT
#endif

#define USED512(v) "+m"(v) /* kernel/cpu/tile/tile_mul512.h */

/* For the choices that the kernels' headers make by what the compiler was allowed. */
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#define __AVX512CD__ 1
#if defined(TUTTI_EMULATE_BF16)
#define __AVX512BF16__ 1
#endif

#endif
