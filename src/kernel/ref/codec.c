/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs written out plainly, an element at a time. The team is left unused: this is the specification. */
#include "kernel/codec_rows.h"

#include <math.h>
#include <string.h>

#include "kernel/formats.h"

static float get(const void *x, enum dtype t, int64_t i)
{
    if (t == DT_F32) {
        float v;
        memcpy(&v, (const char *)x + 4 * i, sizeof v);
        return v;
    }
    uint16_t h;
    memcpy(&h, (const char *)x + 2 * i, sizeof h);
    bf16 b;
    memcpy(&b, &h, sizeof b);
    return t == DT_BF16 ? bf16_to_f32(b) : f16_to_f32(h);
}

static void put(void *x, enum dtype t, int64_t i, float v)
{
    if (t == DT_F32) ((float *)x)[i] = v;
    else if (t == DT_BF16) ((bf16 *)x)[i] = bf16_from_f32(v);
    else ((uint16_t *)x)[i] = f16_from_f32(v);
}

static uint32_t largest_bits(const struct codec_args *a, int64_t begin, int64_t end)
{
    uint32_t largest = 0;
    for (int64_t i = begin; i < end; i++) {
        float v = get(a->x, a->t, i);
        uint32_t u;
        memcpy(&u, &v, sizeof u);
        if ((u & 0x7fffffff) > largest) largest = u & 0x7fffffff;
    }
    return largest;
}

void codec_encode_ref(struct team *team, const struct codec_args *a)
{
    (void)team;
    const struct codec_rows *r = &a->shape;
    if (a->codec == CODEC_KEPT) {
        memcpy(a->codes, a->x, (size_t)(r->rows * r->cols) * dtype_bytes(a->t));
        return;
    }
    const struct codec_row *row = codec_row(a->codec);
    const struct format_info f = format_info(row->format);
    uint8_t *scales = (uint8_t *)a->codes + codec_scales_at(a->codec, r);
    int64_t blocks = codec_blocks(r);
    for (int64_t y = 0; y < r->rows; y++)
        for (int64_t k = 0; k < blocks; k++) {
            int64_t begin = y * r->cols + codec_block_at(r, k), end = y * r->cols + codec_block_at(r, k + 1);
            uint32_t scale = row->blocks ? codec_scale(largest_bits(a, begin, end), &f) : 127;
            if (row->blocks) scales[y * blocks + k] = (uint8_t)scale;
            for (int64_t i = begin; i < end; i++) {
                double v = (double)get(a->x, a->t, i);
                if (scale == CODEC_NAN) v = 0;
                format_store(a->codes, &f, i, format_encode(row->format, ldexp(v, 127 - (int)scale), row->blocks));
            }
        }
}

static float value_of(const struct codec_args *a, const char *codes, int64_t i, int64_t at_scale)
{
    if (a->codec == CODEC_KEPT) return get(codes, a->t, i);
    const struct codec_row *row = codec_row(a->codec);
    const struct format_info f = format_info(row->format);
    float v = format_decode(row->format, format_load(codes, &f, i)), times;
    if (!row->blocks) return v;
    uint32_t scale = ((const uint8_t *)codes)[codec_scales_at(a->codec, &a->shape) + (size_t)at_scale],
             bits = codec_times_bits(scale);
    memcpy(&times, &bits, sizeof times);
    return v * times;
}

void codec_decode_ref(struct team *team, const struct codec_args *a)
{
    (void)team;
    const struct codec_rows *r = &a->shape;
    int64_t blocks = codec_blocks(r);
    for (int64_t y = 0; y < r->rows; y++)
        for (int64_t k = 0; k < blocks; k++)
            for (int64_t c = codec_block_at(r, k); c < codec_block_at(r, k + 1); c++) {
                int64_t i = y * r->cols + c;
                float sum = value_of(a, a->codes, i, y * blocks + k);
                for (int p = 1; p < a->parts; p++)
                    sum += value_of(a, (const char *)a->codes + (size_t)p * a->stride, i, y * blocks + k);
                put(a->x, a->t, i, a->add ? get(a->x, a->t, i) + sum : sum);
            }
}
