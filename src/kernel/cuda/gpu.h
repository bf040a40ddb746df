/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: what a kernel is written in: one text for nvcc and for a CPU's compiler, which simulates a block (sim.h).
 * Every instruction that C++ has no word for is one function here, and all PTX is here; kernels have no #ifdef.
 *
 * A kernel takes one struct by value and dynamic shared memory only, laid over by a struct of its own:
 *
 *   GPU_KERNEL(norm_weights_sum, norm_weights_args, NORM_THREADS) { ... gpu_shared<norm_shared>() ... }
 *
 * Sums are made in a fixed order, and no floating-point number is added to by two threads: the same bits on every run.
 * Integers are (gpu_count). gpu_mul, gpu_add, gpu_fma, gpu_div, gpu_sqrt round each by itself: where bits must be those
 * of a processor, since nvcc fuses what is written with operators.
 * Numbers are computed in fp32 and rounded once. C++17 without exceptions, RTTI, library. */
#ifndef TUTTI_KERNEL_CUDA_GPU_H
#define TUTTI_KERNEL_CUDA_GPU_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernel/cuda/gpu_launch.h"

/* ---- numbers ---- */
struct bf16_t {
    uint16_t bits;
};
struct f16_t {
    uint16_t bits;
};

#if defined(__CUDACC__)
#define GPU_FN static __device__ __forceinline__
#define GPU_KERNEL(name, args_t, threads)                                                                              \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ args_t a)
#define GPU_ROLLED _Pragma("unroll 1") /* before a loop whose body is to be there once */
extern __shared__ __align__(1024) unsigned char gpu_shared_bytes[];
template <class T> GPU_FN T *gpu_shared() { return (T *)gpu_shared_bytes; }
#define GPU_UNROLL _Pragma("unroll")

GPU_FN int gpu_thread() { return (int)threadIdx.x; }
GPU_FN int gpu_threads() { return (int)blockDim.x; }
GPU_FN int64_t gpu_block() { return (int64_t)blockIdx.x; }
GPU_FN int64_t gpu_block_y() { return (int64_t)blockIdx.y; }
GPU_FN int64_t gpu_block_z() { return (int64_t)blockIdx.z; }
GPU_FN int64_t gpu_blocks() { return (int64_t)gridDim.x; }
GPU_FN void gpu_sync() { __syncthreads(); }
GPU_FN void gpu_sync_warp(uint32_t mask) { __syncwarp(mask); }
GPU_FN float gpu_xor(float v, int by) { return __shfl_xor_sync(0xffffffffu, v, by); }
GPU_FN double gpu_xor(double v, int by) { return __shfl_xor_sync(0xffffffffu, v, by); }
GPU_FN int gpu_xor(int v, int by) { return __shfl_xor_sync(0xffffffffu, v, by); }
GPU_FN float gpu_from(float v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
GPU_FN uint32_t gpu_ballot(bool v) { return __ballot_sync(0xffffffffu, v); }
GPU_FN int gpu_lowest(uint32_t bits) { return __ffs((int)bits) - 1; }
#define GPU_UNROLL _Pragma("unroll")
#define GPU_ROLLED _Pragma("unroll 1")

GPU_FN float gpu_to_f32(f16_t v)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
    return f;
}
GPU_FN f16_t gpu_f16(float v)
{
    f16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(v));
    return h;
}
GPU_FN uint32_t gpu_shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
GPU_FN void gpu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GPU_FN void gpu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GPU_FN void gpu_ldmatrix(uint32_t r[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gpu_shared_at(p))
                 : "memory");
}
GPU_FN void gpu_ldmatrix_t(uint32_t r[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gpu_shared_at(p))
                 : "memory");
}
GPU_FN void gpu_copy16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(gpu_shared_at(shared)), "l"(global) : "memory");
}
GPU_FN void gpu_copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int newest> GPU_FN void gpu_copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
}
GPU_FN uint32_t gpu_two(float low, float high, bf16_t)
{
    uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}
GPU_FN uint32_t gpu_two(float low, float high, f16_t)
{
    uint32_t two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}
template <class T> GPU_FN T gpu_load(const void *p) { return *(const T *)p; }
template <class T> GPU_FN void gpu_store(void *p, T v) { *(T *)p = v; }
GPU_FN float gpu_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
GPU_FN float gpu_mul(float a, float b) { return __fmul_rn(a, b); }
GPU_FN float gpu_add(float a, float b) { return __fadd_rn(a, b); }
GPU_FN float gpu_reciprocal(float v) /* within 1 ulp; a subnormal result is 0 */
{
    float f;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(v));
    return f;
}
GPU_FN int gpu_count_bits(uint32_t v) { return __popc(v); }         /* that are set */
GPU_FN int gpu_lowest_bit(uint32_t v) { return __ffs((int)v) - 1; } /* of one that is not 0 */
GPU_FN float gpu_div(float a, float b) { return __fdiv_rn(a, b); }
GPU_FN float gpu_sqrt(float v) { return __fsqrt_rn(v); }
GPU_FN double gpu_fma(double a, double b, double c) { return __fma_rn(a, b, c); }
GPU_FN double gpu_mul(double a, double b) { return __dmul_rn(a, b); }
GPU_FN double gpu_add(double a, double b) { return __dadd_rn(a, b); }
GPU_FN double gpu_div(double a, double b) { return __ddiv_rn(a, b); }
GPU_FN void gpu_count(uint32_t *p, uint32_t v) { atomicAdd(p, v); }
GPU_FN void gpu_count(uint64_t *p, uint64_t v) { atomicAdd((unsigned long long *)p, (unsigned long long)v); }
#else
#include "kernel/cuda/gpu_sim.h"
#endif

/* ---- the same text for both ---- */
GPU_FN float gpu_to_f32(float v) { return v; }
GPU_FN float gpu_to_f32(bf16_t v)
{
    uint32_t u = (uint32_t)v.bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
GPU_FN bf16_t gpu_bf16(float f) /* to nearest, ties to even; NaN stays NaN */
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    bf16_t v;
    v.bits = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40 : (u + 0x7fffu + ((u >> 16) & 1)) >> 16);
    return v;
}
GPU_FN void gpu_put(float *p, float v) { *p = v; }
GPU_FN void gpu_put(bf16_t *p, float v) { *p = gpu_bf16(v); }
GPU_FN void gpu_put(f16_t *p, float v) { *p = gpu_f16(v); }
template <class T> GPU_FN float gpu_get(const T *p) { return gpu_to_f32(*p); }

/* 16 bytes of a row, read and written at once where the address allows it. What is behind the row reads as 0 and is not
 * written. The numbers are the same either way, and so is who computes them. */
template <class T> struct gpu_some {
    static const int n = 16 / (int)sizeof(T);
    float v[16 / sizeof(T)];
};
struct alignas(16) gpu_16 {
    unsigned char b[16];
};
template <class T> GPU_FN gpu_some<T> gpu_get_some(const T *p, int64_t left)
{
    gpu_some<T> x;
    if ((uintptr_t)p % 16 == 0 && left >= x.n) {
        gpu_16 raw = gpu_load<gpu_16>(p);
        T t[16 / sizeof(T)];
        memcpy(t, &raw, sizeof raw);
        for (int i = 0; i < x.n; i++) x.v[i] = gpu_to_f32(t[i]);
    } else
        for (int i = 0; i < x.n; i++) x.v[i] = i < left ? gpu_get(p + i) : 0;
    return x;
}
template <class T> GPU_FN void gpu_put_some(T *p, const gpu_some<T> &x, int64_t left)
{
    if ((uintptr_t)p % 16 == 0 && left >= x.n) {
        gpu_16 raw;
        T t[16 / sizeof(T)];
        for (int i = 0; i < x.n; i++) gpu_put(&t[i], x.v[i]);
        memcpy(&raw, t, sizeof raw);
        gpu_store(p, raw);
    } else
        for (int i = 0; i < x.n && i < left; i++) gpu_put(p + i, x.v[i]);
}

GPU_FN int gpu_lane() { return gpu_thread() % GPU_WARP; }
GPU_FN int gpu_warp() { return gpu_thread() / GPU_WARP; }

/* The sum of a warp's values, in all of its lanes: pairs that are 16, 8, 4, 2, 1 apart. */
template <class T> GPU_FN T gpu_warp_sum(T v)
{
    for (int by = GPU_WARP / 2; by; by /= 2) v += gpu_xor(v, by);
    return v;
}
GPU_FN float gpu_warp_max(float v)
{
    for (int by = GPU_WARP / 2; by; by /= 2) v = fmaxf(v, gpu_xor(v, by));
    return v;
}
/* The sum over a block, in all of its threads: warps in order. room: one T for each warp, in shared memory, free for
 * the next sum at once. */
template <class T> GPU_FN T gpu_block_sum(T v, T *room)
{
    v = gpu_warp_sum(v);
    gpu_sync(); /* whoever reads the sum before has done so */
    if (gpu_lane() == 0) room[gpu_warp()] = v;
    gpu_sync();
    T sum = 0;
    for (int i = 0; i < gpu_threads() / GPU_WARP; i++) sum += room[i];
    return sum;
}
GPU_FN float gpu_block_max(float v, float *room)
{
    v = gpu_warp_max(v);
    gpu_sync();
    if (gpu_lane() == 0) room[gpu_warp()] = v;
    gpu_sync();
    float most = room[0];
    for (int i = 1; i < gpu_threads() / GPU_WARP; i++) most = fmaxf(most, room[i]);
    return most;
}

#endif
