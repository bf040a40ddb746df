/* SPDX-License-Identifier: Apache-2.0 */
/* fold_body.h: the loops of fold.h in the compilers' vector extension: vectors of VBYTES, four in flight.
 * Included once per instruction set, with VBYTES, FOLD_TABLE and FOLD_NAME defined and f16_load/f16_store converting a
 * vector of halves to and from fp32. Groups of 2 and 4 have loops of constant counts; the loop for any
 * count is made of the same step. What does not fill four vectors goes through a copy on the stack, by the same
 * operations, so the bits cannot depend on the position.
 *
 * Rejected: an L1-sized block of accumulators that each source is added to (a third slower in L2), and stores that
 * bypass the cache (what is reduced is read again at once).
 */
#include <string.h>

#include "comm/fold.h"

typedef float vf __attribute__((vector_size(VBYTES)));
typedef double vd __attribute__((vector_size(VBYTES)));
typedef int32_t vi __attribute__((vector_size(VBYTES)));
typedef uint32_t vu __attribute__((vector_size(VBYTES)));
typedef int64_t vl __attribute__((vector_size(VBYTES)));
typedef uint64_t vul __attribute__((vector_size(VBYTES)));
typedef uint16_t vh __attribute__((vector_size(VBYTES / 2)));

#define INLINE static inline __attribute__((always_inline))
#define UNROLL 4

/* Element types: LANES values at p as a vector to compute in, and back. */
#define PLAIN(name, vec)                                                                                               \
    INLINE vec load_##name(const void *p)                                                                              \
    {                                                                                                                  \
        vec v;                                                                                                         \
        memcpy(&v, p, sizeof v);                                                                                       \
        return v;                                                                                                      \
    }                                                                                                                  \
    INLINE void store_##name(void *p, vec v) { memcpy(p, &v, sizeof v); }
PLAIN(f32, vf)
PLAIN(f64, vd)
PLAIN(i32, vi)
PLAIN(i64, vl)

INLINE vf load_bf16(const void *p)
{
    vh h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vu) << 16);
}
INLINE void store_bf16(void *p, vf v)
{
    vu u = (vu)v;
    vu is_nan = (vu)((u & 0x7fffffffu) > 0x7f800000u);
    vu rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    vh h = __builtin_convertvector((is_nan & ((u >> 16) | 0x40u)) | (~is_nan & rounded), vh);
    memcpy(p, &h, sizeof h);
}
INLINE vf load_f16(const void *p) { return f16_load(p); }
INLINE void store_f16(void *p, vf v) { f16_store(p, v); }

/* Operations. Signed overflow wraps: integers are added as unsigned. */
#define OPS(vec, mask, uns)                                                                                            \
    INLINE vec max_##vec(vec a, vec b)                                                                                 \
    {                                                                                                                  \
        mask m = (mask)(a > b);                                                                                        \
        return (vec)(((mask)a & m) | ((mask)b & ~m));                                                                  \
    }                                                                                                                  \
    INLINE vec min_##vec(vec a, vec b)                                                                                 \
    {                                                                                                                  \
        mask m = (mask)(a < b);                                                                                        \
        return (vec)(((mask)a & m) | ((mask)b & ~m));                                                                  \
    }                                                                                                                  \
    INLINE vec sum_##vec(vec a, vec b) { return (vec)((uns)a + (uns)b); }
OPS(vf, vi, vf)
OPS(vd, vl, vd)
OPS(vi, vi, vu)
OPS(vl, vl, vul)

INLINE vf scale_vf(vf v, int64_t divisor) { return v * (1.0f / (float)divisor); }
INLINE vd scale_vd(vd v, int64_t divisor) { return v * (1.0 / (double)divisor); }
INLINE vi scale_vi(vi v, int64_t divisor)
{
    for (int i = 0; i < VBYTES / 4; i++) v[i] = (int32_t)(v[i] / divisor);
    return v;
}
INLINE vl scale_vl(vl v, int64_t divisor)
{
    for (int i = 0; i < VBYTES / 8; i++) v[i] /= divisor;
    return v;
}

/* step: UNROLL vectors at byte offset `at`. bulk: whole steps, with pointers in registers where both counts are
 * constants (stores could change f, for all the compiler knows). tail: what is left, through the stack. */
#define FOLD(name, vec, bytes, op)                                                                                     \
    INLINE void step_##name##_##op(char *const *dst, int n_dst, const char *const *src, int n_src, size_t at,          \
                                   int64_t divisor)                                                                    \
    {                                                                                                                  \
        enum { STRIDE = sizeof(vec) / sizeof(((vec){0})[0]) * (bytes) };                                               \
        vec acc[UNROLL];                                                                                               \
        for (int u = 0; u < UNROLL; u++) acc[u] = load_##name(src[0] + at + u * STRIDE);                               \
        for (int s = 1; s < n_src; s++)                                                                                \
            for (int u = 0; u < UNROLL; u++) acc[u] = op##_##vec(acc[u], load_##name(src[s] + at + u * STRIDE));       \
        if (divisor != 1)                                                                                              \
            for (int u = 0; u < UNROLL; u++) acc[u] = scale_##vec(acc[u], divisor);                                    \
        for (int d = 0; d < n_dst; d++)                                                                                \
            for (int u = 0; u < UNROLL; u++) store_##name(dst[d] + at + u * STRIDE, acc[u]);                           \
    }                                                                                                                  \
    enum { STEP_##name##_##op = UNROLL * sizeof(vec) / sizeof(((vec){0})[0]) };                                        \
    INLINE void bulk_##name##_##op(const struct fold *f, int n_src, int n_dst, int64_t divisor)                        \
    {                                                                                                                  \
        const char *src[4] = {0};                                                                                      \
        char *dst[4] = {0};                                                                                            \
        for (int s = 0; s < n_src; s++) src[s] = f->src[s];                                                            \
        for (int d = 0; d < n_dst; d++) dst[d] = f->dst[d];                                                            \
        for (int64_t i = 0; i + STEP_##name##_##op <= f->n; i += STEP_##name##_##op)                                   \
            step_##name##_##op(dst, n_dst, src, n_src, (size_t)i *(bytes), divisor);                                   \
    }                                                                                                                  \
    INLINE void any_##name##_##op(const struct fold *f)                                                                \
    {                                                                                                                  \
        for (int64_t i = 0; i + STEP_##name##_##op <= f->n; i += STEP_##name##_##op)                                   \
            step_##name##_##op((char *const *)f->dst, f->n_dst, (const char *const *)f->src, f->n_src,                 \
                               (size_t)i *(bytes), f->divisor);                                                        \
    }                                                                                                                  \
    static void tail_##name##_##op(const struct fold *f)                                                               \
    {                                                                                                                  \
        enum { STEP = STEP_##name##_##op, PART = STEP * (bytes) / UNROLL };                                            \
        size_t left = (size_t)(f->n % STEP) * (bytes), at = (size_t)(f->n / STEP * STEP) * (bytes);                    \
        if (!left) return;                                                                                             \
        char acc[STEP * (bytes)] = {0}, next[STEP * (bytes)] = {0};                                                    \
        vec sum[UNROLL];                                                                                               \
        memcpy(acc, (const char *)f->src[0] + at, left);                                                               \
        for (int u = 0; u < UNROLL; u++) sum[u] = load_##name(acc + u * PART);                                         \
        for (int s = 1; s < f->n_src; s++) {                                                                           \
            memcpy(next, (const char *)f->src[s] + at, left);                                                          \
            for (int u = 0; u < UNROLL; u++) sum[u] = op##_##vec(sum[u], load_##name(next + u * PART));                \
        }                                                                                                              \
        for (int u = 0; u < UNROLL; u++) {                                                                             \
            if (f->divisor != 1) sum[u] = scale_##vec(sum[u], f->divisor);                                             \
            store_##name(acc + u * PART, sum[u]);                                                                      \
        }                                                                                                              \
        for (int d = 0; d < f->n_dst; d++) memcpy((char *)f->dst[d] + at, acc, left);                                  \
    }                                                                                                                  \
    static void fold_##name##_##op(const struct fold *f)                                                               \
    {                                                                                                                  \
        bool plain = f->divisor == 1;                                                                                  \
        if (plain && f->n_src == 2 && f->n_dst == 2) bulk_##name##_##op(f, 2, 2, 1);                                   \
        else if (plain && f->n_src == 4 && f->n_dst == 4) bulk_##name##_##op(f, 4, 4, 1);                              \
        else if (plain && f->n_src == 2 && f->n_dst == 1) bulk_##name##_##op(f, 2, 1, 1);                              \
        else if (plain && f->n_src == 4 && f->n_dst == 1) bulk_##name##_##op(f, 4, 1, 1);                              \
        else any_##name##_##op(f);                                                                                     \
        tail_##name##_##op(f);                                                                                         \
    }
#define FOLDS(name, vec, bytes)                                                                                        \
    FOLD(name, vec, bytes, sum)                                                                                        \
    FOLD(name, vec, bytes, max)                                                                                        \
    FOLD(name, vec, bytes, min)
FOLDS(f32, vf, 4)
FOLDS(bf16, vf, 2)
FOLDS(f16, vf, 2)
FOLDS(f64, vd, 8)
FOLDS(i32, vi, 4)
FOLDS(i64, vl, 8)

#define ROW(name)                                                                                                      \
    {                                                                                                                  \
        fold_##name##_sum, fold_##name##_max, fold_##name##_min                                                        \
    }
/* clang-format off */
const struct fold_table FOLD_TABLE = {
    .name = FOLD_NAME,
    .fn = {[DT_F32] = ROW(f32), [DT_BF16] = ROW(bf16), [DT_F16] = ROW(f16), [DT_F64] = ROW(f64), [DT_I32] = ROW(i32),
           [DT_I64] = ROW(i64)},
};
/* clang-format on */
