/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_array.h: what kernels over whole arrays share: some elements at once as they are stored, conversions with a
 * processor's bits (a GPU's own lose what a NaN carries), sums in order. In the words of gpu.h. */
#ifndef TUTTI_KERNEL_CUDA_GPU_ARRAY_H
#define TUTTI_KERNEL_CUDA_GPU_ARRAY_H

#include "kernel/cuda/gpu.h"
#include "layout/bits.h"

/* N elements, a multiple of 16 bytes; what is behind `left` reads as 0 and is not written. */
template <class T, int N> struct gpu_stored {
    T t[N];
};
template <class T, int N> GPU_FN gpu_stored<T, N> gpu_read(const T *p, int64_t left)
{
    const int each = 16 / (int)sizeof(T);
    gpu_stored<T, N> x;
    if ((uintptr_t)p % 16 == 0 && left >= N) {
        for (int k = 0; k < N / each; k++) {
            gpu_16 raw = gpu_load<gpu_16>(p + k * each);
            memcpy(&x.t[k * each], &raw, sizeof raw);
        }
    } else
        for (int i = 0; i < N; i++) {
            if (i < left) x.t[i] = p[i];
            else x.t[i] = T();
        }
    return x;
}
template <class T, int N> GPU_FN void gpu_write(T *p, const gpu_stored<T, N> &x, int64_t left)
{
    const int each = 16 / (int)sizeof(T);
    if ((uintptr_t)p % 16 == 0 && left >= N) {
        for (int k = 0; k < N / each; k++) {
            gpu_16 raw;
            memcpy(&raw, &x.t[k * each], sizeof raw);
            gpu_store(p + k * each, raw);
        }
    } else
        for (int i = 0; i < N && i < left; i++) p[i] = x.t[i];
}

/* NaN stays NaN, quiet, with its sign and the first bits of what it carries. */
GPU_FN void gpu_round(float *to, float v) { *to = v; }
GPU_FN void gpu_round(bf16_t *to, float v) { *to = gpu_bf16(v); }
GPU_FN void gpu_round(f16_t *to, float v)
{
    uint32_t u = float_bits(v);
    *to = gpu_f16(v);
    if ((u & 0x7fffffff) > 0x7f800000) to->bits = (uint16_t)((u >> 16 & 0x8000) | 0x7e00 | (u >> 13 & 0x3ff));
}
GPU_FN float gpu_widen(float v) { return v; }
GPU_FN float gpu_widen(bf16_t v) { return gpu_to_f32(v); }
GPU_FN float gpu_widen(f16_t v)
{
    uint32_t size = v.bits & 0x7fff, sign = (uint32_t)(v.bits & 0x8000) << 16;
    return size > 0x7c00 ? float_of(sign | 0x7fc00000 | size << 13) : gpu_to_f32(v);
}
/* To an fp32 from which 16 bits are rounded as from the double itself: cut off, and odd where something was. */
GPU_FN float gpu_to_odd(double v)
{
    float f = (float)v;
    uint32_t u = float_bits(f);
    if ((double)f == v || v != v) return f;
    if (fabs((double)f) > fabs(v)) u--;
    return float_of(u | 1);
}

/* Eight as floats. */
struct gpu_eight {
    float v[8];
};
template <class T> GPU_FN gpu_eight gpu_get8(const T *p, int64_t left)
{
    gpu_stored<T, 8> x = gpu_read<T, 8>(p, left);
    gpu_eight e;
    for (int i = 0; i < 8; i++) e.v[i] = gpu_widen(x.t[i]);
    return e;
}
template <class T> GPU_FN void gpu_put8(T *p, const gpu_eight &e, int64_t left)
{
    gpu_stored<T, 8> x;
    for (int i = 0; i < 8; i++) gpu_round(&x.t[i], e.v[i]);
    gpu_write<T, 8>(p, x, left);
}

/* from + p[0] + p[1] + ... one after the other: in thread 0. room: GPU_IN_ORDER of shared memory. */
enum { GPU_IN_ORDER = 1024 };
template <class S> GPU_FN double gpu_sum_in_order(double from, const S *p, int64_t n, int64_t step, double *room)
{
    for (int64_t lo = 0; lo < n; lo += GPU_IN_ORDER) {
        int here = n - lo < GPU_IN_ORDER ? (int)(n - lo) : (int)GPU_IN_ORDER;
        gpu_sync();
        for (int i = gpu_thread(); i < here; i += gpu_threads()) room[i] = (double)p[(lo + i) * step];
        gpu_sync();
        for (int i = 0; gpu_thread() == 0 && i < here; i++) from += room[i];
    }
    return from;
}

#endif
