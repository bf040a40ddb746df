/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h: the small vocabulary in which the vector kernels are written once.
 *
 * A loop lives in a *_body.h file in terms of these words; *_avx2.c, *_avx512.c and *_avx512bf16.c include the same
 * bodies with 8 or 16 lanes, *_neon.c and *_neonbf16.c with 4. The compiler's own flags for the file choose the width,
 * so one binary holds all that its architecture has.
 *
 *   vf, vi, vmask      VL floats, VL 32-bit integers, one truth value per lane; vf has + - * / by the compiler's
 *                      vector extension, everything else is a word here
 *   v_get, v_put       load and store of f32, bf16 or f16 elements as floats; n < VL touches only n elements, other
 *                      lanes read as 0. The dtype is a constant wherever it is called, so the branch folds away
 *   v_exp, v_exp2      relative error below 2e-7: degree-6 minimax polynomials
 *
 * Includes: libc, dtype.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_H
#define TUTTI_KERNEL_CPU_VEC_VEC_H

#include <stdbool.h>
#include <string.h>

#include "layout/dtype.h"
#if defined(__aarch64__)
#include "kernel/cpu/vec/vec_neon.h"
#elif defined(__AVX512F__)
#include "kernel/cpu/vec/vec_avx512.h"
#else
#include "kernel/cpu/vec/vec_avx2.h"
#endif
#include "kernel/exp_body.h"

VEC_INLINE vf vf_from_bf16(vi u) { return vi_float_bits(vi_shl(u, 16)); }
/* Round to nearest even; NaN stays NaN: bit for bit bf16_from_f32, in the low half of each lane. */
VEC_INLINE vi vf_to_bf16(vf a)
{
    vi u = vf_bits(a);
    vi r = vi_shr(vi_add(u, vi_add(vi_set(0x7fff), vi_and(vi_shr(u, 16), vi_set(1)))), 16);
    return vi_pick(vf_unordered(a), vi_or(vi_shr(u, 16), vi_set(0x40)), r);
}

#if defined(__AVX512BF16__)
#include "kernel/cpu/vec/vec_narrow_bf16.h"
#elif defined(__aarch64__)
#include "kernel/cpu/vec/vec_narrow_neon.h"
#else
#include "kernel/cpu/vec/vec_narrow.h"
#endif

/* How many of the remaining elements the next vector takes. */
VEC_INLINE int v_count(int64_t left) { return left < VL ? (int)left : VL; }

/* The types of v_get and v_put. */
VEC_INLINE bool v_takes(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }
/* A call of an inline function whose last argument is the type, as a constant. */
#define V_TYPED(type, name, ...)                                                                                       \
    do {                                                                                                               \
        if ((type) == DT_BF16) name(__VA_ARGS__, DT_BF16);                                                             \
        else if ((type) == DT_F16) name(__VA_ARGS__, DT_F16);                                                          \
        else name(__VA_ARGS__, DT_F32);                                                                                \
    } while (0)
#define V_TYPED_VALUE(type, name, ...)                                                                                 \
    ((type) == DT_BF16  ? name(__VA_ARGS__, DT_BF16)                                                                   \
     : (type) == DT_F16 ? name(__VA_ARGS__, DT_F16)                                                                    \
                        : name(__VA_ARGS__, DT_F32))

/* A function of its own, for a loop over a row that several operations have: compiled once for each type, where
 * inlining would compile it once for each type and operation. name(..., t) is of name_of(..., t), whose t is a
 * constant. */
#define VEC_APART static __attribute__((noinline, unused))

/* Less than a vector of 16-bit numbers, out of line: a row has one such place, and every load and store of a loop would
 * have its code. */
#define VEC_ASIDE static __attribute__((noinline, cold, unused))
VEC_ASIDE void v_get_few(float to[VL], const uint16_t *p, int n, enum dtype t)
{
    uint16_t some[VL] = {0};
    memcpy(some, p, (size_t)n * 2);
    vf_store(to, t == DT_BF16 ? vf_load_bf16(some) : vf_load_f16(some));
}
VEC_ASIDE void v_put_few(uint16_t *p, const float from[VL], int n, enum dtype t)
{
    uint16_t some[VL];
    if (t == DT_BF16) vf_narrow_bf16(some, vf_load(from));
    else vf_store_f16(some, vf_load(from));
    memcpy(p, some, (size_t)n * 2);
}

VEC_INLINE vf v_get(const void *p, int64_t i, int n, enum dtype t)
{
    if (t == DT_F32) return n == VL ? vf_load((const float *)p + i) : vf_load_n((const float *)p + i, n);
    const uint16_t *q = (const uint16_t *)p + i;
    if (n < VL) {
        float some[VL];
        v_get_few(some, q, n, t);
        return vf_load(some);
    }
    return t == DT_BF16 ? vf_load_bf16(q) : vf_load_f16(q);
}
VEC_INLINE void v_put(void *p, int64_t i, int n, enum dtype t, vf a)
{
    if (t == DT_F32) {
        float *q = (float *)p + i;
        if (n == VL) vf_store(q, a);
        else vf_store_n(q, a, n);
        return;
    }
    uint16_t *q = (uint16_t *)p + i;
    if (n < VL) {
        float some[VL];
        vf_store(some, a);
        v_put_few(q, some, n, t);
    } else if (t == DT_BF16) {
        vf_narrow_bf16(q, a);
    } else {
        vf_store_f16(q, a);
    }
}
/* One element. */
VEC_INLINE float v_get_one(const void *p, int64_t i, enum dtype t)
{
    if (t == DT_F32) return ((const float *)p)[i];
    return t == DT_BF16 ? bf16_to_f32(((const bf16 *)p)[i]) : f16_to_f32(((const uint16_t *)p)[i]);
}
VEC_INLINE void v_put_one(void *p, int64_t i, enum dtype t, float x)
{
    if (t == DT_F32) ((float *)p)[i] = x;
    else if (t == DT_BF16) ((bf16 *)p)[i] = bf16_from_f32(x);
    else ((uint16_t *)p)[i] = f16_from_f32(x);
}

/* 2^x for x <= 128; very negative x (also -1e30, never -inf) gives 0. Degree 6, with `rough` degree 5 (4e-7). */
VEC_INLINE vf v_exp2(vf x, int rough)
{
    vf n = vf_round(x), r = x - n, p;
    if (rough) {
        p = vf_fma(r, vf_set(0x1.23a611p-10f), vf_set(0x1.3cbed1p-7f));
        p = vf_fma(p, r, vf_set(0x1.c74332p-5f));
        p = vf_fma(p, r, vf_set(0x1.ebfa4cp-3f));
        p = vf_fma(p, r, vf_set(0x1.62e39ep-1f));
    } else {
        p = vf_fma(r, vf_set(0x1.470bb9p-13f), vf_set(0x1.5f72acp-10f));
        p = vf_fma(p, r, vf_set(0x1.3b270ep-7f));
        p = vf_fma(p, r, vf_set(0x1.c6ae72p-5f));
        p = vf_fma(p, r, vf_set(0x1.ebfbe2p-3f));
        p = vf_fma(p, r, vf_set(0x1.62e430p-1f));
    }
    return vf_scale2(vf_fma(p, r, vf_set(1.0f)), n);
}
#endif
