/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_words.h: the words of vec.h in which formulas are written (exp_body.h, act_formula_body.h), over one number: a
 * GPU's thread computes what a lane of a CPU's vector does. Order: Local. */
#ifndef TUTTI_KERNEL_CUDA_GPU_WORDS_H
#define TUTTI_KERNEL_CUDA_GPU_WORDS_H

#include "kernel/cuda/gpu.h"

#define VEC_INLINE GPU_FN
typedef float vf;
typedef bool vmask;

GPU_FN vf vf_set(float a) { return a; }
GPU_FN vf vf_zero() { return 0; }
GPU_FN vf vf_fma(vf a, vf b, vf c) { return gpu_fma(a, b, c); }
GPU_FN vf vf_max(vf a, vf b) { return a > b ? a : b; } /* b where one is NaN, as a CPU has it */
GPU_FN vf vf_min(vf a, vf b) { return a < b ? a : b; }
GPU_FN vf vf_reciprocal(vf a) { return gpu_reciprocal(a); }
GPU_FN vf vf_round(vf a) { return rintf(a); }
GPU_FN vmask vf_gt(vf a, vf b) { return a > b; }
GPU_FN vmask vf_unordered(vf a) { return a != a; }
GPU_FN vf vf_pick(vmask m, vf yes, vf no) { return m ? yes : no; }

/* 2^n for n in [-126, 127]. */
GPU_FN vf gpu_power2(int n)
{
    uint32_t u = (uint32_t)(n + 127) << 23;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
/* a * 2^n for integral n <= 128: two factors, so that neither overflows; far below, the result is 0. */
GPU_FN vf vf_scale2(vf a, vf n)
{
    int k = (int)vf_max(n, -252.0f), half = k >> 1;
    return a * gpu_power2(half) * gpu_power2(k - half);
}

#endif
