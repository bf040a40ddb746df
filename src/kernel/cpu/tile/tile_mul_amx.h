/* SPDX-License-Identifier: Apache-2.0 */
/* tile_mul_amx.h: the 32 x 32 micro-kernel over eight tile registers, written against six names so that one source
 * runs on AMX (tile_amx.c) and on an emulation of its registers (tile_sim.c):
 *
 *   TILE_REGS                 opens a function: declares what the emulation needs; on AMX a compiler barrier
 *   TILE_ZERO(t)              register t, a constant 0..7, becomes zero
 *   TILE_LOAD(t, p, bytes)    16 rows of 64 bytes, `bytes` from row to row
 *   TILE_STORE(p, bytes, t)
 *   TILE_DOT(c, a, b)         c[m][n] += sum over k of a[m][2k]*b[k][2n] + a[m][2k+1]*b[k][2n+1], 16 x 16 x 32
 *
 * Registers 0-3 hold C as 2 x 2 tiles, 4-5 two tiles of A, 6-7 two of B: four loads of 1 KiB feed four products.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_MUL_AMX_H
#define TUTTI_KERNEL_CPU_TILE_TILE_MUL_AMX_H

#include "kernel/cpu/tile/tile_pack_amx.h"

/* A whole 32 x 32 tile of C at c, rows `row` bytes apart. */
static inline void mul_amx_full(char *c, int64_t row, const char *a, const char *b, int64_t steps)
{
    TILE_REGS
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int64_t s = 0; s < steps; s++, a += 2048, b += 2048) { /* 32 of depth: two tiles of A, two of B */
        TILE_LOAD(6, b, 128);
        TILE_LOAD(4, a, 64);
        TILE_LOAD(7, b + 64, 128);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(5, a + 1024, 64);
        TILE_DOT(1, 4, 7);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    TILE_STORE(c, row, 0);
    TILE_STORE(c + 64, row, 1);
    TILE_STORE(c + 16 * row, row, 2);
    TILE_STORE(c + 16 * row + 64, row, 3);
}

/* The upper 16 rows only: half the work where C has 16 rows or fewer left. */
static inline void mul_amx_half(char *c, int64_t row, const char *a, const char *b, int64_t steps)
{
    TILE_REGS
    TILE_ZERO(0);
    TILE_ZERO(1);
    for (int64_t s = 0; s < steps; s++, a += 2048, b += 2048) {
        TILE_LOAD(4, a, 64);
        TILE_LOAD(6, b, 128);
        TILE_LOAD(7, b + 64, 128);
        TILE_DOT(0, 4, 6);
        TILE_DOT(1, 4, 7);
    }
    TILE_STORE(c, row, 0);
    TILE_STORE(c + 64, row, 1);
}

/* Rows that are not there in C go through a tile of our own, and so does what is added to C: registers that began with
 * C would round every step of depth beside it, and a gradient that goes on from microbatch to microbatch would have
 * other bits than one that is sent after each and added then (verify/test_waves). */
static void mul_amx(float *c, int64_t ldc, const void *a, const void *b, int64_t depth_pad, int rows, bool add)
{
    const int64_t steps = depth_pad / STEP_AMX;
    const bool whole = !add && (rows == MR_AMX || rows == 16);
    float edge[MR_AMX * NR_AMX] __attribute__((aligned(64)));
    char *const to = whole ? (char *)c : (char *)edge;
    const int64_t row = whole ? ldc * 4 : NR_AMX * 4;
    if (rows > 16) mul_amx_full(to, row, a, b, steps);
    else mul_amx_half(to, row, a, b, steps);
    if (whole) return;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < NR_AMX; j++)
            c[i * ldc + j] = add ? c[i * ldc + j] + edge[i * NR_AMX + j] : edge[i * NR_AMX + j];
}

/* The micro-kernel's products without its loads; between begin() and end(). */
static double spin_amx(int64_t n)
{
    TILE_REGS
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_ZERO(4);
    TILE_ZERO(5);
    TILE_ZERO(6);
    TILE_ZERO(7);
    for (int64_t i = 0; i < n; i++) {
        TILE_DOT(0, 4, 6);
        TILE_DOT(1, 4, 7);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    return (double)n * 4 * 16 * 16 * 32 * 2;
}

#endif
