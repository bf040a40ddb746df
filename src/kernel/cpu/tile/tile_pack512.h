/* SPDX-License-Identifier: Apache-2.0 */
/* tile_pack512.h: AVX-512 packing into panels of 32-bit units (one f32, or a pair of bf16).
 *
 * Two loads cover every source: sixteen units along depth of one lane (depth dense), or one unit of sixteen lanes
 * (lanes dense); types are converted on the way. Two stores cover every panel: sixteen lanes of one unit side by
 * side (f32, and bf16 pairs), or sixteen units of one lane (the row tiles of AMX). Where the two disagree, a
 * 16 x 16 transposition in registers sits between: 64 shuffles per KiB, still faster than memory delivers.
 * Edges are masks, so there is one code path.
 *
 * Sources usually come from memory, in more streams at once than the hardware follows, so each piece asks for the
 * piece after it: that alone took whole products from 86 to 91 % of the rate from L2 (bf16, Zen 5).
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_PACK512_H
#define TUTTI_KERNEL_CPU_TILE_TILE_PACK512_H

#include <immintrin.h>

#include "kernel/cpu/tile/tile.h"

enum panel_kind { PACK_F32_F32, PACK_BF16_F32, PACK_F16_F32, PACK_BF16_BF16, PACK_F32_BF16 };

#define PACK_INLINE __attribute__((always_inline)) static inline

PACK_INLINE int64_t clamp_n(int64_t n, int64_t hi) { return n < 0 ? 0 : n < hi ? n : hi; }
PACK_INLINE __mmask16 mask16(int64_t n) { return (__mmask16)((1u << clamp_n(n, 16)) - 1); }

/* f32 to bf16, nearest even, NaN kept quiet: the same bits as bf16_from_f32. Sixteen results in 32-bit lanes. */
PACK_INLINE __m512i round_bf16(__m512 v)
{
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    return _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
}

/* Sixteen 16-bit or 32-bit elements from p, the first n of them, as floats or raw 16-bit values in 32-bit lanes. */
PACK_INLINE __m512i load16_raw(const void *p, __mmask16 m)
{
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p));
}
PACK_INLINE __m512 load16_f32(const void *p, enum panel_kind kind, __mmask16 m)
{
    if (kind == PACK_BF16_F32) return _mm512_castsi512_ps(_mm512_slli_epi32(load16_raw(p, m), 16));
    if (kind == PACK_F16_F32) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
    return _mm512_maskz_loadu_ps(m, p);
}

/* Sixteen units along depth of one lane; n elements are there. */
PACK_INLINE __m512i units_of_lane(const char *p, enum panel_kind kind, int64_t n)
{
    if (kind == PACK_BF16_BF16) return _mm512_maskz_loadu_epi16((__mmask32)((1ull << clamp_n(n, 32)) - 1), p);
    if (kind == PACK_F32_BF16) {
        __m256i lo = _mm512_cvtepi32_epi16(round_bf16(_mm512_maskz_loadu_ps(mask16(n), p)));
        __m256i hi = _mm512_cvtepi32_epi16(round_bf16(_mm512_maskz_loadu_ps(mask16(n - 16), p + 64)));
        return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
    }
    return _mm512_castps_si512(load16_f32(p, kind, mask16(n)));
}
/* One unit of sixteen lanes: the rows at p and, for pairs, at p + row; n_depth elements of depth are there. */
PACK_INLINE __m512i unit_of_lanes(const char *p, enum panel_kind kind, __mmask16 lanes, size_t row, int64_t n_depth)
{
    if (kind == PACK_BF16_BF16) {
        __m512i lo = load16_raw(p, lanes);
        __m512i hi = n_depth > 1 ? load16_raw(p + row, lanes) : _mm512_setzero_si512();
        return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
    }
    if (kind == PACK_F32_BF16) {
        __m512i lo = round_bf16(_mm512_maskz_loadu_ps(lanes, p));
        __m512i hi = n_depth > 1 ? round_bf16(_mm512_maskz_loadu_ps(lanes, p + row)) : _mm512_setzero_si512();
        return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
    }
    return _mm512_castps_si512(load16_f32(p, kind, lanes));
}

/* r[i][j] <-> r[j][i] for 16 x 16 units: pairs of rows interleave 32 bits, then 64, then 128-bit quarters twice. */
PACK_INLINE void transpose16(__m512i r[16])
{
    __m512i t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

/* Sixteen units of depth, from depth d on, of one panel. `by_lane`: the row tiles of AMX (sixteen units of a lane side
 * by side). width, by_lane, depth_dense and kind are constants where this is called. */
PACK_INLINE void pack512_slab(int32_t *out, const struct tile_src *s, int64_t lanes, int64_t depth, int64_t d,
                              int64_t pad, const int width, const bool by_lane, const bool depth_dense,
                              const enum panel_kind kind)
{
    const int per = kind == PACK_BF16_BF16 || kind == PACK_F32_BF16 ? 2 : 1; /* elements of depth in a unit */
    const size_t each = kind == PACK_F32_F32 || kind == PACK_F32_BF16 ? 4 : 2;
    const size_t row = (size_t)s->stride * each;
    const int n_units = (int)clamp_n((pad - d) / per, 16);
    for (int l = 0; l < width; l += 16) {
        const int n_lanes = (int)clamp_n(lanes - l, 16);
        const __mmask16 in = mask16(n_lanes), fits = mask16(width - l);
        int32_t *o = out + (d / per) * width + (by_lane ? l * 16 : l);
        __m512i r[16];
        if (depth_dense) {
            const char *q = (const char *)s->p + (size_t)l * row + (size_t)d * each;
            for (int i = 0; i < n_lanes; i++) _mm_prefetch(q + (size_t)(width + i) * row, _MM_HINT_T1); /* next panel */
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                r[i] = i < n_lanes ? units_of_lane(q + (size_t)i * row, kind, depth - d) : _mm512_setzero_si512();
        } else {
            const char *q = (const char *)s->p + (size_t)d * row + (size_t)l * each;
            for (int i = 0; i < 16 * per; i++)
                _mm_prefetch(q + (size_t)(16 * per + i) * row, _MM_HINT_T1); /* next slab */
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                r[i] = d + i * per < depth
                           ? unit_of_lanes(q + (size_t)(i * per) * row, kind, in, row, depth - d - i * per)
                           : _mm512_setzero_si512();
        }
        if (depth_dense != by_lane) transpose16(r);
        if (by_lane) {
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) _mm512_storeu_si512(o + i * 16, r[i]);
        } else {
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                if (i < n_units) _mm512_mask_storeu_epi32(o + i * width, fits, r[i]);
        }
    }
}

/* All panels. Memory is read along its dense dimension: panel by panel where depth is dense; else slab by slab
 * across the panels, since rows of the source may be a page and more apart (the logits' are 100 KB). */
PACK_INLINE void pack512_all(void *dst, const struct tile_src *s, int64_t lanes, int64_t depth, const int width,
                             const bool by_lane, const int step, const enum panel_kind kind)
{
    const int per = kind == PACK_BF16_BF16 || kind == PACK_F32_BF16 ? 2 : 1;
    const int64_t pad = (depth + step - 1) / step * step, panel = pad / per * width;
    int32_t *out = dst;
    if (s->depth_dense) {
        for (int64_t l = 0; l < lanes; l += width, out += panel) {
            struct tile_src from = tile_at(*s, l, 0);
            for (int64_t d = 0; d < pad; d += 16 * per)
                pack512_slab(out, &from, lanes - l, depth, d, pad, width, by_lane, true, kind);
        }
    } else {
        for (int64_t d = 0; d < pad; d += 16 * per)
            for (int64_t l = 0; l < lanes; l += width) {
                struct tile_src from = tile_at(*s, l, 0);
                pack512_slab(out + l / width * panel, &from, lanes - l, depth, d, pad, width, by_lane, false, kind);
            }
    }
}

/* The kind of source resolved, once a call. */
PACK_INLINE void pack512(void *dst, struct tile_src s, int64_t lanes, int64_t depth, const enum dtype to,
                         const int width, const bool by_lane, const int step)
{
    if (to == DT_F32) {
        if (s.dtype == DT_F32) pack512_all(dst, &s, lanes, depth, width, by_lane, step, PACK_F32_F32);
        else if (s.dtype == DT_BF16) pack512_all(dst, &s, lanes, depth, width, by_lane, step, PACK_BF16_F32);
        else pack512_all(dst, &s, lanes, depth, width, by_lane, step, PACK_F16_F32);
    } else {
        if (s.dtype == DT_BF16) pack512_all(dst, &s, lanes, depth, width, by_lane, step, PACK_BF16_BF16);
        else pack512_all(dst, &s, lanes, depth, width, by_lane, step, PACK_F32_BF16);
    }
}

/* ---- finishing ---- */
PACK_INLINE __m512 load16_any(const void *p, enum dtype t, int64_t i, __mmask16 m)
{
    if (t == DT_F32) return load16_f32((const float *)p + i, PACK_F32_F32, m);
    return load16_f32((const uint16_t *)p + i, t == DT_BF16 ? PACK_BF16_F32 : PACK_F16_F32, m);
}
/* Groups of eight rows: the error grows with rows / 8, and `sum` is touched an eighth as often. */
static inline void add_rows512(float *sum, const void *p, enum dtype t, int64_t stride, int64_t rows, int cols)
{
    for (int64_t r = 0; r < rows; r += 8)
        for (int j = 0; j < cols; j += 16) {
            const __mmask16 m = mask16(cols - j);
            __m512 part = _mm512_setzero_ps();
            for (int64_t i = r; i < r + 8 && i < rows; i++)
                part = _mm512_add_ps(part, load16_any(p, t, i * stride + j, m));
            _mm512_mask_storeu_ps(sum + j, m, _mm512_add_ps(_mm512_maskz_loadu_ps(m, sum + j), part));
        }
}
static inline void finish512(const float *t, int64_t ldt, int rows, int cols, const struct tile_out *o)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j += 16) {
            const __mmask16 m = mask16(cols - j);
            const int64_t at = i * o->ldc + j;
            __m512 v = _mm512_maskz_loadu_ps(m, t + i * ldt + j);
            if (o->scaled) v = _mm512_mul_ps(v, _mm512_set1_ps(o->factor));
            if (o->bias) v = _mm512_add_ps(v, load16_any(o->bias, o->bias_dtype, j, m));
            if (o->acc) v = _mm512_add_ps(v, load16_any(o->acc, o->acc_dtype, i * o->ldacc + j, m));
            if (o->c_dtype == DT_F32) _mm512_mask_storeu_ps((float *)o->c + at, m, v);
            else if (o->c_dtype == DT_BF16)
                _mm256_mask_storeu_epi16((bf16 *)o->c + at, m, _mm512_cvtepi32_epi16(round_bf16(v)));
            else
                _mm256_mask_storeu_epi16((uint16_t *)o->c + at, m,
                                         _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        }
}

static inline void promote512(float *sum, const float *part, const float *a, const float *b, int rows, bool first,
                              const int nr)
{
    for (int i = 0; i < rows; i++, sum += nr, part += nr)
        for (int j = 0; j < nr; j += 16) {
            const __m512 f = _mm512_mul_ps(_mm512_set1_ps(a[i]), _mm512_loadu_ps(b + j)), p = _mm512_loadu_ps(part + j);
            _mm512_storeu_ps(sum + j, first ? _mm512_mul_ps(p, f) : _mm512_fmadd_ps(p, f, _mm512_loadu_ps(sum + j)));
        }
}

#endif
