/* SPDX-License-Identifier: Apache-2.0 */
/* codec_body.h: codecs over vec.h, included by the formats_<isa>.c files after formats_body.h.
 *
 * A block is one pass for its largest number and one that scales and encodes, both from cache. Sums read a block of
 * every part, one part after the other for each vector, so the order is that of the parts. Members of the team get
 * whole blocks; without blocks, whole cache lines. A scale is a power of two: multiplying by it is exact, but where the
 * result is far below the smallest code. Cost: bound by memory but for a block's scale, some ten operations. */
#ifndef TUTTI_KERNEL_CPU_BITS_CODEC_BODY_H
#define TUTTI_KERNEL_CPU_BITS_CODEC_BODY_H

#include "kernel/codec_rows.h"
#include "kernel/cpu/bits/formats_body.h"

VEC_INLINE float codec_float(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* ---- writing ---- */
VEC_INLINE uint32_t codec_largest(const void *x, int64_t begin, int64_t end, enum dtype t)
{
    vi most = vi_set(0);
    for (int64_t i = begin; i < end; i += VL) {
        vi size = vi_and(vf_bits(v_get(x, i, v_count(end - i), t)), vi_set(0x7fffffff));
        most = vi_pick(vi_gt(size, most), size, most);
    }
    uint32_t lane[VL], largest = 0;
    vi_store(lane, most);
    for (int i = 0; i < VL; i++) largest = lane[i] > largest ? lane[i] : largest;
    return largest;
}

VEC_INLINE void codec_write(void *codes, int64_t begin, int64_t end, const void *x, vf by, vf none, bool saturate,
                            enum dtype t, const struct format_info *f)
{
    vi over = vi_set(saturate ? f->max_code : f->over_code);
    for (int64_t i = begin; i < end; i += VL) {
        int n = v_count(end - i);
        uint32_t last[VL];
        vi u = vf_bits(v_get(x, i, n, t) * by);
        u = vi_pick(vf_gt(none, vf_zero()), vi_set(0), u);
        vi size = vi_and(u, vi_set(0x7fffffff)), code = formats_finish(u, size, formats_nearest(size, f), f, over);
        formats_put(n == VL ? codes : last, n == VL ? i : 0, code, f);
        if (n < VL) memcpy((char *)codes + i * f->bytes, last, (size_t)(n * f->bytes));
    }
}

VEC_INLINE void codec_write_blocks(const struct codec_args *a, int64_t lo, int64_t hi, enum dtype t,
                                   const struct format_info f)
{
    const struct codec_rows r = a->shape;
    int64_t blocks = codec_blocks(&r);
    uint8_t *scales = (uint8_t *)a->codes + codec_scales_at(a->codec, &r);
    for (int64_t b = lo; b < hi; b++) {
        int64_t y = b / blocks, k = b % blocks, begin = y * r.cols + codec_block_at(&r, k),
                end = y * r.cols + codec_block_at(&r, k + 1);
        uint32_t scale = codec_scale(codec_largest(a->x, begin, end, t), &f);
        scales[b] = (uint8_t)scale;
        codec_write(a->codes, begin, end, a->x, vf_set(codec_float(codec_over_bits(scale))),
                    vf_set(scale == CODEC_NAN ? 1.0f : 0.0f), true, t, &f);
    }
}

VEC_INLINE void codec_write_plain(const struct codec_args *a, int64_t lo, int64_t hi, enum dtype t,
                                  const struct format_info f)
{
    codec_write(a->codes, lo, hi, a->x, vf_set(1.0f), vf_zero(), false, t, &f);
}

/* ---- reading ---- */
VEC_INLINE vf codec_code(const char *codes, int64_t i, int n, const struct format_info *f)
{
    uint32_t last[VL] = {0};
    if (n == VL) return formats_value(formats_get(codes, i, f), f);
    memcpy(last, codes + i * f->bytes, (size_t)(n * f->bytes));
    return formats_value(formats_get(last, 0, f), f);
}

VEC_INLINE void codec_finish(const struct codec_args *a, int64_t i, int n, enum dtype t, vf sum)
{
    if (a->add) sum = v_get(a->x, i, n, t) + sum;
    v_put(a->x, i, n, t, sum);
}

VEC_INLINE void codec_read_blocks(const struct codec_args *a, int64_t lo, int64_t hi, enum dtype t,
                                  const struct format_info f)
{
    const struct codec_rows r = a->shape;
    int64_t blocks = codec_blocks(&r);
    size_t scales = codec_scales_at(a->codec, &r);
    for (int64_t b = lo; b < hi; b++) {
        int64_t y = b / blocks, k = b % blocks, begin = y * r.cols + codec_block_at(&r, k),
                end = y * r.cols + codec_block_at(&r, k + 1);
        for (int64_t i = begin; i < end; i += VL) {
            int n = v_count(end - i);
            vf sum = vf_zero(); /* overwritten by the first part: adding to a zero would lose the sign of another */
            for (int p = 0; p < a->parts; p++) {
                const char *codes = (const char *)a->codes + (size_t)p * a->stride;
                uint8_t scale;
                memcpy(&scale, codes + scales + b, 1);
                vf v = codec_code(codes, i, n, &f) * vf_set(codec_float(codec_times_bits(scale)));
                if (p) sum = sum + v;
                else sum = v;
            }
            codec_finish(a, i, n, t, sum);
        }
    }
}

VEC_INLINE void codec_read_plain(const struct codec_args *a, int64_t lo, int64_t hi, enum dtype t,
                                 const struct format_info f)
{
    for (int64_t i = lo; i < hi; i += VL) {
        int n = v_count(hi - i);
        vf sum = codec_code(a->codes, i, n, &f);
        for (int p = 1; p < a->parts; p++)
            sum = sum + codec_code((const char *)a->codes + (size_t)p * a->stride, i, n, &f);
        codec_finish(a, i, n, t, sum);
    }
}

VEC_INLINE void codec_read_kept(const struct codec_args *a, int64_t lo, int64_t hi, enum dtype t)
{
    for (int64_t i = lo; i < hi; i += VL) {
        int n = v_count(hi - i);
        vf sum = v_get(a->codes, i, n, t);
        for (int p = 1; p < a->parts; p++) sum = sum + v_get((const char *)a->codes + (size_t)p * a->stride, i, n, t);
        codec_finish(a, i, n, t, sum);
    }
}

/* ---- by codec, type and member ---- */
/* Blocks [lo, hi), or where there are none, elements. */
static void codec_split(const struct codec_args *a, int member, int n_members, int64_t *lo, int64_t *hi)
{
    const struct codec_rows *r = &a->shape;
    if (codec_row(a->codec)->blocks) team_split(r->rows * codec_blocks(r), member, n_members, lo, hi);
    else formats_split(r->rows * r->cols, member, n_members, lo, hi);
}

VEC_INLINE void codec_encode_range(const struct codec_args *a, int64_t lo, int64_t hi, enum dtype t)
{
    switch (a->codec) {
    case CODEC_BF16: codec_write_plain(a, lo, hi, t, format_info(FORMAT_BF16)); break;
    case CODEC_FP8: codec_write_blocks(a, lo, hi, t, format_info(FORMAT_E4M3)); break;
    case CODEC_FP8_E5M2: codec_write_blocks(a, lo, hi, t, format_info(FORMAT_E5M2)); break;
    default: codec_write_blocks(a, lo, hi, t, format_info(FORMAT_INT8));
    }
}
static void codec_encode_member(void *arg, int member, int n_members)
{
    const struct codec_args *a = arg;
    int64_t lo, hi;
    codec_split(a, member, n_members, &lo, &hi);
    if (a->codec == CODEC_KEPT) {
        size_t b = dtype_bytes(a->t), at = (size_t)lo * b;
        if (lo < hi) memcpy((char *)a->codes + at, (const char *)a->x + at, (size_t)(hi - lo) * b);
        return;
    }
    V_TYPED(a->t, codec_encode_range, a, lo, hi);
}

VEC_INLINE void codec_decode_range(const struct codec_args *a, int64_t lo, int64_t hi, enum dtype t)
{
    switch (a->codec) {
    case CODEC_KEPT: codec_read_kept(a, lo, hi, t); break;
    case CODEC_BF16: codec_read_plain(a, lo, hi, t, format_info(FORMAT_BF16)); break;
    case CODEC_FP8: codec_read_blocks(a, lo, hi, t, format_info(FORMAT_E4M3)); break;
    case CODEC_FP8_E5M2: codec_read_blocks(a, lo, hi, t, format_info(FORMAT_E5M2)); break;
    default: codec_read_blocks(a, lo, hi, t, format_info(FORMAT_INT8));
    }
}
static void codec_decode_member(void *arg, int member, int n_members)
{
    const struct codec_args *a = arg;
    int64_t lo, hi;
    codec_split(a, member, n_members, &lo, &hi);
    V_TYPED(a->t, codec_decode_range, a, lo, hi);
}

static void codec_encode_vec(struct team *team, const struct codec_args *a)
{
    team_run(team, codec_encode_member, (void *)(uintptr_t)a);
}
static void codec_decode_vec(struct team *team, const struct codec_args *a)
{
    team_run(team, codec_decode_member, (void *)(uintptr_t)a);
}

#endif
