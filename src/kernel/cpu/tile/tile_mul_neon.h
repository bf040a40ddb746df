/* SPDX-License-Identifier: Apache-2.0 */
/* tile_mul_neon.h: the 6 x 16 micro-kernel of the NEON files. The includer defines NEON_UNITS (a vector of four 32-bit
 * units of a panel: four f32, or four pairs of bf16), NEON_HALF (two of them), neon_units(), neon_half() (loads), and
 * NEON_MAC(sum, b, a, lane) and NEON_MAC_HALF, which multiply all units of b by one of a and add.
 *
 * 24 of 32 registers hold C; per unit of depth four loads of B and two of A (six units) feed 24 multiply-adds, which
 * take their factor of A from a lane: 30 instructions for 96 products (192 in bf16), and the latency of 4 is covered
 * three times over on cores with two pipes. Rejected: 8 x 12, which needs as many registers and does not divide
 * attention's 64 queries.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_MUL_NEON_H
#define TUTTI_KERNEL_CPU_TILE_TILE_MUL_NEON_H

#include "kernel/cpu/tile/tile.h"

enum { MR_NEON = 6, NR_NEON = 16 };

#define NEON_ROW(i, mac, a, lane)                                                                                      \
    if (rows > i) {                                                                                                    \
        s[i][0] = mac(s[i][0], b0, a, lane);                                                                           \
        s[i][1] = mac(s[i][1], b1, a, lane);                                                                           \
        s[i][2] = mac(s[i][2], b2, a, lane);                                                                           \
        s[i][3] = mac(s[i][3], b3, a, lane);                                                                           \
    }
#define NEON_ROWS                                                                                                      \
    NEON_ROW(0, NEON_MAC, a0, 0)                                                                                       \
    NEON_ROW(1, NEON_MAC, a0, 1)                                                                                       \
    NEON_ROW(2, NEON_MAC, a0, 2)                                                                                       \
    NEON_ROW(3, NEON_MAC, a0, 3)                                                                                       \
    NEON_ROW(4, NEON_MAC_HALF, a1, 0)                                                                                  \
    NEON_ROW(5, NEON_MAC_HALF, a1, 1)

__attribute__((always_inline)) static inline void mul_neon_rows(float *c, int64_t ldc, const float *a, const float *b,
                                                                int64_t units, bool add, const int rows)
{
    float32x4_t s[MR_NEON][4];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) s[i][j] = vdupq_n_f32(0);
    for (int64_t u = 0; u < units; u++) {
        NEON_UNITS b0 = neon_units(b), b1 = neon_units(b + 4), b2 = neon_units(b + 8), b3 = neon_units(b + 12);
        NEON_UNITS a0 = neon_units(a);
        NEON_HALF a1 = neon_half(a + 4);
        NEON_ROWS
        a += MR_NEON;
        b += NR_NEON;
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float *ci = c + i * ldc;
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            if (add) s[i][j] = vaddq_f32(vld1q_f32(ci + 4 * j), s[i][j]);
            vst1q_f32(ci + 4 * j, s[i][j]);
        }
    }
}

static inline void mul_neon(float *c, int64_t ldc, const void *a, const void *b, int64_t units, int rows, bool add)
{
    switch (rows) {
    case 1: mul_neon_rows(c, ldc, a, b, units, add, 1); break;
    case 2: mul_neon_rows(c, ldc, a, b, units, add, 2); break;
    case 3: mul_neon_rows(c, ldc, a, b, units, add, 3); break;
    case 4: mul_neon_rows(c, ldc, a, b, units, add, 4); break;
    case 5: mul_neon_rows(c, ldc, a, b, units, add, 5); break;
    default: mul_neon_rows(c, ldc, a, b, units, add, 6); break;
    }
}

/* The micro-kernel's multiply-adds without its loads; returns their number. */
static inline double spin_neon(int64_t n)
{
    const float zero[8] = {0};
    const int rows = MR_NEON;
    float32x4_t s[MR_NEON][4];
#pragma GCC unroll 6
    for (int i = 0; i < MR_NEON; i++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) s[i][j] = vdupq_n_f32(0);
    NEON_UNITS b0 = neon_units(zero), b1 = b0, b2 = b0, b3 = b0, a0 = b0;
    NEON_HALF a1 = neon_half(zero);
    for (int64_t u = 0; u < n; u++) {
        NEON_ROWS
#pragma GCC unroll 6
        for (int i = 0; i < MR_NEON; i++)
            __asm__ volatile("" : "+w"(s[i][0]), "+w"(s[i][1]), "+w"(s[i][2]), "+w"(s[i][3])); /* counts as used */
    }
    return (double)n * MR_NEON * NR_NEON;
}

#endif
