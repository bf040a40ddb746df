/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of formats in AVX2, 8 lanes: one build of formats_body.h and codec_body.h. Entered after cpu_isa() said
 * so. */
#include "kernel/cpu/bits/codec_body.h"

#include <math.h>

#include "kernel/cpu/build.h"
#include "kernel/cpu/tile/packed256.h"

enum { STEP = 32 };

/* n numbers of a row from code `first` on, whole steps; to element i. */
static void unpack_block(const struct packed_args *a, const uint8_t *codes, int64_t first, int64_t n, float scale,
                         const float value[PACKING_CODES], int64_t i)
{
    const bool bytes = packing_row(a->packing)->per_byte == 1;
    struct packed256_table table = {0};
    if (!bytes) table = packed256_table(value, scale, a->t);
    for (int64_t c = 0; c < n; c += STEP) {
        __m256 v[4];
        if (bytes) packed256_bytes(codes + first + c, v);
        else packed256_four(table, codes + (first + c) / 2, v);
        for (int k = 0; k < 4; k++) {
            if (bytes) v[k] = _mm256_mul_ps(v[k], _mm256_set1_ps(scale));
            packed256_put(a->x, a->t, i + c + 8 * k, v[k]);
        }
    }
}

/* What is left of a block, and blocks whose scale is not finite (of a damaged file), one by one. */
static void unpack_rest(const struct packed_args *a, const uint8_t *codes, int64_t c, int64_t end, float scale,
                        const float value[PACKING_CODES], int64_t row)
{
    const bool bytes = packing_row(a->packing)->per_byte == 1;
    for (; c < end; c++) packed_put(a->x, a->t, row + c, packed_code(bytes, codes, value, c) * scale);
}

static void unpack_rows(void *arg, int member, int members)
{
    const struct packed_args *a = arg;
    const int64_t block = packing_row(a->packing)->block, width = packing_row_bytes(a->packing, a->cols);
    struct packed_scales s;
    float value[PACKING_CODES];
    int64_t lo, hi;
    packed_scales_init(&s, a);
    packing_table(a->packing, value);
    team_split(a->rows, member, members, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t k = 0; k < s.blocks; k++) {
            const int64_t at = k * block, end = at + block < a->cols ? at + block : a->cols;
            const float scale = packed_scale(&s, r, k);
            const int64_t whole = a->t != DT_F16 && isfinite(scale) ? (end - at) / STEP * STEP : 0;
            unpack_block(a, a->codes + r * width, at, whole, scale, value, r * a->cols + at);
            unpack_rest(a, a->codes + r * width, at + whole, end, scale, value, r * a->cols);
        }
}

static void packed_unpack_256(struct team *team, const struct packed_args *a)
{
    team_run(team, unpack_rows, (void *)(uintptr_t)a);
}

const struct format_ops format_ops_avx2 = {"avx2",           formats_encode,   formats_decode,
                                           codec_encode_vec, codec_decode_vec, packed_unpack_256};
