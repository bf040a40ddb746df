/* SPDX-License-Identifier: Apache-2.0 */
/* tile_mul512.h: the 14 x 32 micro-kernel of the AVX-512 files. The includer defines tile_mac() and
 * TILE_MAC_OPERATIONS (per 32-bit lane) first: f32 and bf16 differ in that one instruction, because a panel's unit is
 * 32 bits wide in both (one f32, or a pair of bf16).
 *
 * 28 of 32 registers hold C; per unit of depth two loads of B and one broadcast per row of A feed two
 * multiply-adds per row: 16 loads for 28 multiply-adds, so two load ports and two FMA pipes are in balance with
 * room to spare, and the latency of 4 is covered seven times.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_MUL512_H
#define TUTTI_KERNEL_CPU_TILE_TILE_MUL512_H

#include <immintrin.h>

#include "kernel/cpu/tile/tile.h"

enum { MR512 = 14, NR512 = 32 };

/* A vector for asm; tests/emulate/avx512.h has no register that is wide enough. */
#if !defined(USED512)
#define USED512(v) "+v"(v)
#endif

__attribute__((always_inline)) static inline void mul512_rows(float *c, int64_t ldc, const int32_t *a, const int32_t *b,
                                                              int64_t units, bool add, const int rows)
{
    __m512 s[MR512][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) s[i][0] = s[i][1] = _mm512_setzero_ps();
    for (int64_t u = 0; u < units; u++) {
        __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512i ai = _mm512_set1_epi32(a[i]);
            s[i][0] = tile_mac(s[i][0], ai, b0);
            s[i][1] = tile_mac(s[i][1], ai, b1);
        }
        a += MR512;
        b += NR512;
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        float *ci = c + i * ldc;
        if (add) {
            s[i][0] = _mm512_add_ps(_mm512_loadu_ps(ci), s[i][0]);
            s[i][1] = _mm512_add_ps(_mm512_loadu_ps(ci + 16), s[i][1]);
        }
        _mm512_storeu_ps(ci, s[i][0]);
        _mm512_storeu_ps(ci + 16, s[i][1]);
    }
}

/* Fewer rows at the lower edge of C: instances for even counts; an odd count computes one zero row too many into
 * registers, and the tile's rows beyond `rows` are never stored. */
__attribute__((noinline)) static void mul512_few(float *c, int64_t ldc, const int32_t *a, const int32_t *b,
                                                 int64_t units, int rows, bool add)
{
    if (rows & 1) { /* the last row alone, then the even rest */
        mul512_rows(c + (rows - 1) * ldc, ldc, a + rows - 1, b, units, add, 1);
        rows--;
    }
    switch (rows) {
    case 2: mul512_rows(c, ldc, a, b, units, add, 2); break;
    case 4: mul512_rows(c, ldc, a, b, units, add, 4); break;
    case 6: mul512_rows(c, ldc, a, b, units, add, 6); break;
    case 8: mul512_rows(c, ldc, a, b, units, add, 8); break;
    case 10: mul512_rows(c, ldc, a, b, units, add, 10); break;
    case 12: mul512_rows(c, ldc, a, b, units, add, 12); break;
    default: break;
    }
}

static inline void mul512(float *c, int64_t ldc, const void *a, const void *b, int64_t units, int rows, bool add)
{
    if (rows == MR512) mul512_rows(c, ldc, a, b, units, add, MR512);
    else mul512_few(c, ldc, a, b, units, rows, add);
}

/* The micro-kernel's multiply-adds without its loads. */
static double spin512(int64_t n)
{
    __m512 s[MR512][2];
    __m512i a = _mm512_setzero_si512(), b0 = a, b1 = a;
#pragma GCC unroll 14
    for (int i = 0; i < MR512; i++) s[i][0] = s[i][1] = _mm512_setzero_ps();
    for (int64_t u = 0; u < n; u++) {
#pragma GCC unroll 14
        for (int i = 0; i < MR512; i++) {
            s[i][0] = tile_mac(s[i][0], a, b0);
            s[i][1] = tile_mac(s[i][1], a, b1);
            __asm__ volatile("" : USED512(s[i][0]), USED512(s[i][1])); /* each result counts as used */
        }
    }
    return (double)n * MR512 * NR512 * TILE_MAC_OPERATIONS;
}

#endif
