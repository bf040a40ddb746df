/* SPDX-License-Identifier: Apache-2.0 */
/* packed512.h: packed matrices as numbers, in AVX-512: a block's 16 values times its scale are one register, which
 * codes permute, so a number costs half a byte read and its own bytes written. The products are those of the reference,
 * one for each value. Blocks whose scale is not finite (of a damaged file), and what is left of a block beyond 16
 * numbers, are done one by one. Included by formats_avx512.c only. */
#ifndef TUTTI_KERNEL_CPU_TILE_PACKED512_H
#define TUTTI_KERNEL_CPU_TILE_PACKED512_H

#include <immintrin.h>
#include <math.h>

#include "kernel/packed_rows.h"

/* 16 numbers of 8 bytes; none is NaN. */
static inline void packed_put16(void *x, enum dtype t, int64_t i, __m512 v)
{
    if (t == DT_F32) {
        _mm512_storeu_ps((float *)x + i, v);
    } else if (t == DT_F16) {
        _mm256_storeu_si256((void *)((uint16_t *)x + i),
                            _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else {
        __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
        u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        _mm256_storeu_si256((void *)((uint16_t *)x + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(u, 16)));
    }
}

/* n numbers from code `first` of a row on, which is even; to element i. */
static inline void packed_block(const struct packed_args *a, const uint8_t *codes, int64_t first, int64_t n,
                                const float value[PACKING_CODES], float scale, int64_t i)
{
    float times[PACKING_CODES];
    int64_t k = 0;
    for (int j = 0; j < PACKING_CODES; j++) times[j] = value[j] * scale;
    const __m512 table = _mm512_loadu_ps(times);
    const __m128i low = _mm_set1_epi8(15);
    for (; isfinite(scale) && k + 16 <= n; k += 16) {
        __m128i two = _mm_loadl_epi64((const void *)(codes + (first + k) / 2));
        __m128i each = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(two, 4), low), _mm_and_si128(two, low));
        packed_put16(a->x, a->t, i + k, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(each), table));
    }
    for (; k < n; k++) {
        uint8_t two = codes[(first + k) / 2];
        packed_put(a->x, a->t, i + k, times[k % 2 ? two & 15 : two >> 4]);
    }
}

static void packed_rows_512(void *arg, int member, int members)
{
    const struct packed_args *a = arg;
    const int64_t block = packing_row(a->packing)->block;
    struct packed_scales s;
    float value[PACKING_CODES];
    int64_t lo, hi;
    packed_scales_init(&s, a);
    packing_table(a->packing, value);
    team_split(a->rows, member, members, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t k = 0; k < s.blocks; k++) {
            int64_t at = k * block, n = a->cols - at < block ? a->cols - at : block;
            packed_block(a, a->codes + r * ((a->cols + 1) / 2), at, n, value, packed_scale(&s, r, k), r * a->cols + at);
        }
}

static void packed_unpack_512(struct team *team, const struct packed_args *a)
{
    if (packing_row(a->packing)->per_byte == 1) format_ops_avx2.unpack(team, a); /* no table to permute */
    else team_run(team, packed_rows_512, (void *)(uintptr_t)a);
}

#endif
