/* SPDX-License-Identifier: Apache-2.0 */
/* tile_plain.h: packing, finishing and the unpacked product in plain C, for the files whose instruction set has no
 * hand-written version (tile_avx2.c, tile_portable.c, tile_sim.c). Each file that includes it gets its own copies,
 * compiled and vectorised with that file's flags.
 *
 * Cost: one read of the source, one write of the panel. Where depth is dense the writes are scattered over one
 * panel (mr or nr lanes x depth), which stays in L1 for the depths that gemm.c uses.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_PLAIN_H
#define TUTTI_KERNEL_CPU_TILE_TILE_PLAIN_H

#include <math.h>
#include <string.h>

#include "kernel/cpu/tile/tile.h"

/* The three element types as functions, so that the loops below are written once. */
static inline float plain_f32(float v) { return v; }
static inline float plain_load(const void *p, enum dtype t, int64_t i)
{
    if (t == DT_F32) return ((const float *)p)[i];
    if (t == DT_BF16) return bf16_to_f32(((const bf16 *)p)[i]);
    return f16_to_f32(((const uint16_t *)p)[i]);
}
static inline bf16 plain_same(bf16 v) { return v; }

/* One panel of `lanes` (of `width`) from source type S into element type D through CONV. */
#define PLAIN_PACK(name, S, D, CONV)                                                                                   \
    static inline void name(D *restrict out, const S *restrict p, int64_t stride, bool depth_dense, int lanes,         \
                            int64_t depth, int width, int g)                                                           \
    {                                                                                                                  \
        if (depth_dense) {                                                                                             \
            for (int l = 0; l < lanes; l++)                                                                            \
                for (int64_t d = 0; d < depth; d++) out[((d / g) * width + l) * g + d % g] = CONV(p[l * stride + d]);  \
        } else {                                                                                                       \
            for (int64_t d = 0; d < depth; d++) {                                                                      \
                D *row = out + (d / g) * width * g + d % g;                                                            \
                for (int l = 0; l < lanes; l++) row[l * g] = CONV(p[d * stride + l]);                                  \
            }                                                                                                          \
        }                                                                                                              \
    }
PLAIN_PACK(plain_pack_f32_f32, float, float, plain_f32)
PLAIN_PACK(plain_pack_bf16_f32, bf16, float, bf16_to_f32)
PLAIN_PACK(plain_pack_f16_f32, uint16_t, float, f16_to_f32)
PLAIN_PACK(plain_pack_bf16_bf16, bf16, bf16, plain_same)
PLAIN_PACK(plain_pack_f32_bf16, float, bf16, bf16_from_f32)

/* Packs all panels; to, width, g and step are constants of the calling file, so each call is one tight loop. */
__attribute__((always_inline)) static inline void plain_pack(void *dst, struct tile_src s, int64_t lanes, int64_t depth,
                                                             enum dtype to, int width, int g, int step)
{
    int64_t pad = (depth + step - 1) / step * step;
    size_t panel = (size_t)(pad * width) * dtype_bytes(to);
    for (int64_t l = 0; l < lanes; l += width, dst = (char *)dst + panel) {
        int now = (int)(lanes - l < width ? lanes - l : width);
        struct tile_src from = tile_at(s, l, 0);
        if (now < width || depth < pad) memset(dst, 0, panel);
        if (to == DT_F32 && s.dtype == DT_F32)
            plain_pack_f32_f32(dst, from.p, s.stride, s.depth_dense, now, depth, width, g);
        else if (to == DT_F32 && s.dtype == DT_BF16)
            plain_pack_bf16_f32(dst, from.p, s.stride, s.depth_dense, now, depth, width, g);
        else if (to == DT_F32) plain_pack_f16_f32(dst, from.p, s.stride, s.depth_dense, now, depth, width, g);
        else if (s.dtype == DT_BF16) plain_pack_bf16_bf16(dst, from.p, s.stride, s.depth_dense, now, depth, width, g);
        else plain_pack_f32_bf16(dst, from.p, s.stride, s.depth_dense, now, depth, width, g);
    }
}

static inline void plain_finish(const float *t, int64_t ldt, int rows, int cols, const struct tile_out *o)
{
    for (int i = 0; i < rows; i++) {
        float row[TILE_MAX_NR];
        const float *ti = t + i * ldt;
        for (int j = 0; j < cols; j++) row[j] = ti[j];
        if (o->scaled)
            for (int j = 0; j < cols; j++) row[j] *= o->factor;
        if (o->bias)
            for (int j = 0; j < cols; j++) row[j] += plain_load(o->bias, o->bias_dtype, j);
        if (o->acc)
            for (int j = 0; j < cols; j++) row[j] += plain_load(o->acc, o->acc_dtype, i * o->ldacc + j);
        if (o->c_dtype == DT_F32) {
            memcpy((float *)o->c + i * o->ldc, row, (size_t)cols * sizeof(float));
        } else if (o->c_dtype == DT_BF16) {
            bf16 *c = (bf16 *)o->c + i * o->ldc;
            for (int j = 0; j < cols; j++) c[j] = bf16_from_f32(row[j]);
        } else {
            uint16_t *c = (uint16_t *)o->c + i * o->ldc;
            for (int j = 0; j < cols; j++) c[j] = f16_from_f32(row[j]);
        }
    }
}

/* nr is a constant where this is called. */
__attribute__((always_inline)) static inline void plain_promote(float *sum, const float *part, const float *a,
                                                                const float *b, int rows, bool first, const int nr)
{
    for (int i = 0; i < rows; i++, sum += nr, part += nr)
        for (int j = 0; j < nr; j++) {
            const float f = a[i] * b[j];
            sum[j] = first ? part[j] * f : fmaf(part[j], f, sum[j]);
        }
}

/* Groups of eight rows: the error grows with rows / 8, and `sum` is touched an eighth as often. */
static inline void plain_add_rows(float *sum, const void *p, enum dtype t, int64_t stride, int64_t rows, int cols)
{
    for (int64_t r = 0; r < rows; r += 8) {
        float part[TILE_SUM_COLS] = {0};
        for (int64_t i = r; i < r + 8 && i < rows; i++)
            for (int j = 0; j < cols; j++) part[j] += plain_load(p, t, i * stride + j);
        for (int j = 0; j < cols; j++) sum[j] += part[j];
    }
}

/* Sixteen partial sums per product, so that the compiler may vectorise without reordering anything. */
#define PLAIN_DOT(name, S, CONV)                                                                                       \
    static inline float name(const S *restrict x, const S *restrict w, int64_t depth)                                  \
    {                                                                                                                  \
        float part[16] = {0};                                                                                          \
        int64_t d = 0;                                                                                                 \
        for (; d + 16 <= depth; d += 16)                                                                               \
            for (int i = 0; i < 16; i++) part[i] += CONV(x[d + i]) * CONV(w[d + i]);                                   \
        for (int i = 0; d < depth; d++, i++) part[i] += CONV(x[d]) * CONV(w[d]);                                       \
        for (int half = 8; half; half /= 2)                                                                            \
            for (int i = 0; i < half; i++) part[i] += part[i + half];                                                  \
        return part[0];                                                                                                \
    }
PLAIN_DOT(plain_dot_f32, float, plain_f32)
PLAIN_DOT(plain_dot_bf16, bf16, bf16_to_f32)

static inline void plain_dots(float *y, int64_t ldy, const void *x, int64_t ldx, const void *w, int64_t ldw,
                              enum dtype t, int m, int64_t n, int64_t depth)
{
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            y[i * ldy + j] = t == DT_F32 ? plain_dot_f32((const float *)x + i * ldx, (const float *)w + j * ldw, depth)
                                         : plain_dot_bf16((const bf16 *)x + i * ldx, (const bf16 *)w + j * ldw, depth);
}

#endif
