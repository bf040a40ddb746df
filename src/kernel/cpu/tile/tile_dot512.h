/* SPDX-License-Identifier: Apache-2.0 */
/* tile_dot512.h: products of few rows straight from memory, for the AVX-512 files (token-by-token generation).
 *
 * With one to eight rows of x the weights are read once and used once or a few times: the memory sets the pace
 * and packing would double its work. Each w row is walked along its dense depth, four rows at a time against up to
 * four rows of x (16 sums in registers); rows five to eight of x go over the same four w rows while L1 has them.
 * Includer defines tile_dot_bf16(): 32 pairs of bf16 into 16 sums.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_DOT512_H
#define TUTTI_KERNEL_CPU_TILE_TILE_DOT512_H

#include "kernel/cpu/tile/tile_pack512.h"

/* One step of depth: 16 elements of f32, 32 of bf16, those past `left` as zeros. */
PACK_INLINE __m512i dot512_load(const char *p, const enum dtype t, const bool whole, int64_t left)
{
    if (whole) return _mm512_loadu_si512(p);
    return t == DT_F32 ? _mm512_maskz_loadu_epi32(mask16(left), p)
                       : _mm512_maskz_loadu_epi16((__mmask32)((1ull << clamp_n(left, 32)) - 1), p);
}
PACK_INLINE void dot512_step(__m512 s[4][4], const char *x, size_t x_row, const char *w, size_t w_row,
                             const enum dtype t, const int m, const int n, const bool whole, int64_t left)
{
    __m512i xv[4];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) xv[i] = dot512_load(x + (size_t)i * x_row, t, whole, left);
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
        __m512i wv = dot512_load(w + (size_t)j * w_row, t, whole, left);
        _mm_prefetch(w + (size_t)(n + j) * w_row, _MM_HINT_T0); /* the next block of rows */
#pragma GCC unroll 4
        for (int i = 0; i < m; i++)
            s[i][j] = t == DT_F32 ? _mm512_fmadd_ps(_mm512_castsi512_ps(xv[i]), _mm512_castsi512_ps(wv), s[i][j])
                                  : tile_dot_bf16(s[i][j], xv[i], wv);
    }
}

/* m x n sums over one block of w rows; m, n <= 4 and t are constants where this is called. */
PACK_INLINE void dot512_block(float *y, int64_t ldy, const char *x, size_t x_row, const char *w, size_t w_row,
                              const enum dtype t, const int m, const int n, int64_t depth)
{
    const int64_t per = t == DT_F32 ? 16 : 32;
    __m512 s[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) s[i][j] = _mm512_setzero_ps();
    int64_t d = 0;
    for (; d + per <= depth; d += per, x += 64, w += 64) dot512_step(s, x, x_row, w, w_row, t, m, n, true, per);
    if (d < depth) dot512_step(s, x, x_row, w, w_row, t, m, n, false, depth - d);
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) y[i * ldy + j] = _mm512_reduce_add_ps(s[i][j]);
}

PACK_INLINE void dot512_rows(float *y, int64_t ldy, const char *x, size_t x_row, const char *w, size_t w_row,
                             const enum dtype t, const int m, int n, int64_t depth)
{
    if (n == 4) {
        dot512_block(y, ldy, x, x_row, w, w_row, t, m, 4, depth);
        return;
    }
    for (int j = 0; j < n; j++) dot512_block(y + j, ldy, x, x_row, w + (size_t)j * w_row, w_row, t, m, 1, depth);
}

PACK_INLINE void dot512(float *y, int64_t ldy, const void *x, int64_t ldx, const void *w, int64_t ldw,
                        const enum dtype t, int m, int64_t n, int64_t depth)
{
    const size_t each = t == DT_F32 ? 4 : 2, x_row = (size_t)ldx * each, w_row = (size_t)ldw * each;
    for (int64_t j = 0; j < n; j += 4) {
        const int now = (int)clamp_n(n - j, 4);
        for (int i = 0; i < m; i += 4) {
            const char *xi = (const char *)x + (size_t)i * x_row, *wj = (const char *)w + (size_t)j * w_row;
            float *yij = y + i * ldy + j;
            switch (m - i) {
            case 1: dot512_rows(yij, ldy, xi, x_row, wj, w_row, t, 1, now, depth); break;
            case 2: dot512_rows(yij, ldy, xi, x_row, wj, w_row, t, 2, now, depth); break;
            case 3: dot512_rows(yij, ldy, xi, x_row, wj, w_row, t, 3, now, depth); break;
            default: dot512_rows(yij, ldy, xi, x_row, wj, w_row, t, 4, now, depth); break;
            }
        }
    }
}

#endif
