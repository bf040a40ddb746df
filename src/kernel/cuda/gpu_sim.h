/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_sim.h: the functions of gpu.h where a block is simulated. Included by gpu.h. */
#ifndef TUTTI_KERNEL_CUDA_GPU_SIM_H
#define TUTTI_KERNEL_CUDA_GPU_SIM_H

#include "kernel/cuda/sim.h"

#define GPU_FN static inline __attribute__((unused))
#define GPU_KERNEL(name, args_t, threads)                                                                              \
    static void name(const args_t &a);                                                                                 \
    extern "C" void name##_simulated(const void *p);                                                                   \
    extern "C" void name##_simulated(const void *p) { name(*(const args_t *)p); }                                      \
    static void name(const args_t &a)
#define GPU_ROLLED
template <class T> GPU_FN T *gpu_shared() { return (T *)sim_block_now->shared; }
#define GPU_UNROLL

GPU_FN int gpu_thread() { return sim_lane_now->thread; }
GPU_FN int gpu_threads() { return sim_block_now->threads; }
GPU_FN int64_t gpu_block() { return sim_block_now->at.x; }
GPU_FN int64_t gpu_block_y() { return sim_block_now->at.y; }
GPU_FN int64_t gpu_block_z() { return sim_block_now->at.z; }
GPU_FN int64_t gpu_blocks() { return sim_block_now->grid.x; }
GPU_FN void gpu_sync(SIM_LINE) { sim_barrier(line); }
GPU_FN void gpu_sync_warp(uint32_t mask, SIM_LINE)
{
    char nothing = 0;
    sim_meet(mask, &nothing, 1, line);
}
template <class T> GPU_FN T sim_shuffle(T v, int from, int line)
{
    T x;
    sim_lane *w = sim_meet(0xffffffffu, &v, sizeof v, line);
    memcpy(&x, sim_brought(w, from), sizeof x);
    return x;
}
template <class T> GPU_FN T gpu_xor(T v, int by, SIM_LINE)
{
    return sim_shuffle(v, (sim_lane_now->thread % GPU_WARP) ^ by, line);
}
GPU_FN float gpu_from(float v, int lane, SIM_LINE) { return sim_shuffle(v, lane, line); }
GPU_FN uint32_t gpu_ballot(bool v, SIM_LINE)
{
    uint32_t all = 0;
    sim_lane *w = sim_meet(0xffffffffu, &v, sizeof v, line);
    for (int i = 0; i < GPU_WARP; i++) all |= (uint32_t) * (const bool *)sim_brought(w, i) << i;
    return all;
}

GPU_FN int gpu_lowest(uint32_t bits) { return __builtin_ffs((int)bits) - 1; } /* the lowest bit's number; -1: none */
#define GPU_UNROLL
#define GPU_ROLLED

/* fp16 as IEEE 754 has it, by its bits. */
GPU_FN float gpu_to_f32(f16_t v)
{
    int power = v.bits >> 10 & 31, digits = v.bits & 1023;
    float f = power == 31 ? (digits ? NAN : INFINITY)
              : power     ? ldexpf((float)(digits + 1024), power - 25)
                          : ldexpf((float)digits, -24);
    return v.bits >> 15 ? -f : f;
}
GPU_FN f16_t gpu_f16(float v)
{
    uint32_t u;
    f16_t h;
    memcpy(&u, &v, sizeof u);
    uint32_t sign = u >> 16 & 0x8000, size = u & 0x7fffffff;
    if (size > 0x7f800000) h.bits = (uint16_t)(sign | 0x7e00);
    else if (size >= 0x477ff000) h.bits = (uint16_t)(sign | 0x7c00); /* 65520 and more */
    else if (size < 0x38800000) { /* subnormal: in units of 2^-24 */ float x = v < 0 ? -v : v;
        h.bits = (uint16_t)(sign | (uint32_t)lrintf(ldexpf(x, 24)));
    } else h.bits = (uint16_t)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
    return h;
}

/* Two numbers in one word, for a fragment. */
GPU_FN bf16_t gpu_bf16(float f);
GPU_FN uint32_t gpu_two(float low, float high, bf16_t)
{
    return (uint32_t)gpu_bf16(high).bits << 16 | gpu_bf16(low).bits;
}
GPU_FN uint32_t gpu_two(float low, float high, f16_t) { return (uint32_t)gpu_f16(high).bits << 16 | gpu_f16(low).bits; }

/* Lane l has of A, 16 x 16: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next, and those 8 further; of B,
 * 16 x 8: rows 2 (l % 4) and the next, and those 8 further, of column l / 4; of C: rows l / 4 and l / 4 + 8, columns
 * 2 (l % 4) and the next. (PTX ISA, mma.m16n8k16.) */
struct sim_fragments {
    uint32_t a[4], b[2];
};
GPU_FN void sim_mma(float d[4], const uint32_t a[4], const uint32_t b[2], bool half, int line)
{
    struct sim_fragments mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    sim_lane *w = sim_meet(0xffffffffu, &mine, sizeof mine, line);
    int lane = sim_lane_now->thread % GPU_WARP;
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        float x[16], y[16];
        for (int k = 0; k < 16; k++) {
            const struct sim_fragments *fa = (const struct sim_fragments *)sim_brought(w, row % 8 * 4 + k % 8 / 2);
            const struct sim_fragments *fb = (const struct sim_fragments *)sim_brought(w, col * 4 + k % 8 / 2);
            uint16_t p = (uint16_t)(fa->a[(row >= 8) + 2 * (k >= 8)] >> 16 * (k & 1)),
                     q = (uint16_t)(fb->b[k >= 8] >> 16 * (k & 1));
            uint32_t up = (uint32_t)p << 16, uq = (uint32_t)q << 16;
            if (half) x[k] = gpu_to_f32(f16_t{p}), y[k] = gpu_to_f32(f16_t{q});
            else memcpy(&x[k], &up, 4), memcpy(&y[k], &uq, 4);
        }
        d[i] = sim_products(x, y, 16, half ? -14 : -126, d[i]);
    }
}
GPU_FN void gpu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], SIM_LINE)
{
    sim_mma(d, a, b, false, line);
}
GPU_FN void gpu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2], SIM_LINE)
{
    sim_mma(d, a, b, true, line);
}
/* Four 8 x 8 matrices of 16 bits: lanes 8 i to 8 i + 7 say where the rows of the i-th begin. */
GPU_FN void gpu_ldmatrix(uint32_t r[4], const void *p, SIM_LINE)
{
    sim_aligned(p, 16, line);
    sim_lane *w = sim_meet(0xffffffffu, &p, sizeof p, line);
    int lane = sim_lane_now->thread % GPU_WARP;
    for (int i = 0; i < 4; i++) {
        const unsigned char *row;
        memcpy(&row, sim_brought(w, i * 8 + lane / 4), sizeof row);
        memcpy(&r[i], row + lane % 4 * 4, 4);
    }
}
GPU_FN void gpu_ldmatrix_t(uint32_t r[4], const void *p, SIM_LINE)
{
    sim_aligned(p, 16, line);
    sim_lane *w = sim_meet(0xffffffffu, &p, sizeof p, line);
    int lane = sim_lane_now->thread % GPU_WARP;
    for (int i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (int k = 0; k < 2; k++) {
            const unsigned char *row;
            memcpy(&row, sim_brought(w, i * 8 + lane % 4 * 2 + k), sizeof row);
            memcpy(&pair[k], row + lane / 4 * 2, 2);
        }
        memcpy(&r[i], pair, 4);
    }
}
GPU_FN void gpu_copy16(void *shared, const void *global, SIM_LINE) { sim_copy(shared, global, line); }
GPU_FN void gpu_copies_end() { sim_lane_now->group++; }
template <int newest> GPU_FN void gpu_copies_wait(SIM_LINE) { sim_copies_wait(newest, line); }
template <class T> GPU_FN T gpu_load(const void *p, SIM_LINE)
{
    sim_aligned(p, sizeof(T), line);
    return *(const T *)p;
}
template <class T> GPU_FN void gpu_store(void *p, T v, SIM_LINE)
{
    sim_aligned(p, sizeof(T), line);
    *(T *)p = v;
}
GPU_FN float gpu_fma(float a, float b, float c) { return fmaf(a, b, c); }
GPU_FN float gpu_mul(float a, float b) { return a * b; }
GPU_FN float gpu_add(float a, float b) { return a + b; }
GPU_FN float gpu_reciprocal(float v) { return 1 / v; }
GPU_FN int gpu_count_bits(uint32_t v) { return __builtin_popcount(v); }
GPU_FN int gpu_lowest_bit(uint32_t v) { return __builtin_ctz(v); }
GPU_FN float gpu_div(float a, float b) { return a / b; }
GPU_FN float gpu_sqrt(float v) { return sqrtf(v); }
GPU_FN double gpu_fma(double a, double b, double c) { return fma(a, b, c); }
GPU_FN double gpu_mul(double a, double b) { return a * b; }
GPU_FN double gpu_add(double a, double b) { return a + b; }
GPU_FN double gpu_div(double a, double b) { return a / b; }
/* A block runs on one thread of the host, and no two launches count in one place. */
GPU_FN void gpu_count(uint32_t *p, uint32_t v) { *p += v; }
GPU_FN void gpu_count(uint64_t *p, uint64_t v) { *p += v; }

#endif
