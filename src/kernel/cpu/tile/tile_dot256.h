/* SPDX-License-Identifier: Apache-2.0 */
/* tile_dot256.h: products of few rows straight from memory, for AVX2 (token-by-token generation).
 *
 * The memory that streams w sets the pace, and one stream does not keep it busy: a core waits for lines one after the
 * other, and the processor fetches ahead within a page only. So four rows of w that lie far apart (a quarter of the
 * block that is asked for) are walked at once: 0.92 of what plain reading of four stretches gives, where row after row
 * gave 0.52, and four neighbouring rows 0.42 (Zen 3, 768 columns of bf16, one thread). From three rows of x on, two
 * rows of w are walked at once, since sums fill the registers; multiply-adds set the pace there, at 0.65 of what they
 * reach on registers alone. Rejected: prefetching by instruction, at any distance (0.6); x as floats beforehand, twelve
 * sums at once, going over w by stretches of its depth (none faster by more than a tenth, most of them slower).
 *
 * bf16: two neighbours lie in one lane, and become floats by a shift and a mask, in x as in w. Each sum has eight lanes
 * in an order that depth alone decides. Included by tile_avx2.c only.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_DOT256_H
#define TUTTI_KERNEL_CPU_TILE_TILE_DOT256_H

#include <immintrin.h>

#include "kernel/cpu/tile/tile_plain.h"

#define DOT_INLINE __attribute__((always_inline)) static inline

DOT_INLINE float dot256_sum(__m256 v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

/* Sixteen elements, as those of even and odd places (bf16) or the first and the last eight (f32). */
DOT_INLINE void dot256_load(const char *p, const enum dtype t, __m256 v[2])
{
    if (t == DT_F32) {
        v[0] = _mm256_loadu_ps((const float *)p);
        v[1] = _mm256_loadu_ps((const float *)p + 8);
        return;
    }
    const __m256i pairs = _mm256_loadu_si256((const void *)p);
    v[0] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    v[1] = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

/* m rows of x with n rows of w, `gap` rows apart; m, n and t are constants where this is called. */
DOT_INLINE void dot256_block(float *y, int64_t ldy, const char *x, size_t x_row, const char *w, size_t w_row,
                             int64_t gap, const enum dtype t, const int m, const int n, int64_t depth)
{
    const int64_t each = t == DT_F32 ? 4 : 2;
    __m256 s[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) s[i][j] = _mm256_setzero_ps();
    int64_t d = 0;
    for (; d + 16 <= depth; d += 16) {
        __m256 wv[4][2];
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) dot256_load(w + (size_t)(j * gap) * w_row + (size_t)(d * each), t, wv[j]);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) {
            __m256 xv[2];
            dot256_load(x + (size_t)i * x_row + (size_t)(d * each), t, xv);
#pragma GCC unroll 4
            for (int j = 0; j < n; j++) s[i][j] = _mm256_fmadd_ps(xv[0], wv[j][0], s[i][j]);
#pragma GCC unroll 4
            for (int j = 0; j < n; j++) s[i][j] = _mm256_fmadd_ps(xv[1], wv[j][1], s[i][j]);
        }
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = dot256_sum(s[i][j]);
            for (int64_t k = d; k < depth; k++)
                sum += plain_load(x + (size_t)i * x_row, t, k) * plain_load(w + (size_t)(j * gap) * w_row, t, k);
            y[i * ldy + j * gap] = sum;
        }
}

DOT_INLINE void dot256_rows(float *y, int64_t ldy, const char *x, size_t x_row, const char *w, size_t w_row,
                            const enum dtype t, const int m, int64_t n, int64_t depth)
{
    const int at_once = m <= 2 ? 4 : 2;
    const int64_t gap = n / at_once;
    for (int64_t j = 0; j < gap; j++)
        dot256_block(y + j, ldy, x, x_row, w + (size_t)j * w_row, w_row, gap, t, m, at_once, depth);
    for (int64_t j = gap * at_once; j < n; j++)
        dot256_block(y + j, ldy, x, x_row, w + (size_t)j * w_row, w_row, 0, t, m, 1, depth);
}

/* t is a constant where this is called. Rows five to eight of x go over w again, while a cache has it. */
DOT_INLINE void dot256(float *y, int64_t ldy, const void *x, int64_t ldx, const void *w, int64_t ldw,
                       const enum dtype t, int m, int64_t n, int64_t depth)
{
    const size_t each = t == DT_F32 ? 4 : 2, x_row = (size_t)ldx * each, w_row = (size_t)ldw * each;
    for (int i = 0; i < m; i += 4) {
        const char *xi = (const char *)x + (size_t)i * x_row;
        float *yi = y + i * ldy;
        switch (m - i) {
        case 1: dot256_rows(yi, ldy, xi, x_row, w, w_row, t, 1, n, depth); break;
        case 2: dot256_rows(yi, ldy, xi, x_row, w, w_row, t, 2, n, depth); break;
        case 3: dot256_rows(yi, ldy, xi, x_row, w, w_row, t, 3, n, depth); break;
        default: dot256_rows(yi, ldy, xi, x_row, w, w_row, t, 4, n, depth); break;
        }
    }
}

#endif
