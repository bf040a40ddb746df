/* SPDX-License-Identifier: Apache-2.0 */
/* Products of few rows straight from codes, in AVX2. A row of codes is read once for four rows of x; its numbers exist
 * in registers only. Where a scale is a power of two and codes have 8 bits, a block is summed as codes and multiplied
 * once: the same number, since that rounds nothing.
 * Cost of 32 numbers of 4 bits: 16 bytes read, some 26 instructions, and four multiply-adds for each row of x; of 8
 * bits 32 bytes, eight conversions and the multiply-adds. Entered after cpu_isa() said so. */
#include "kernel/cpu/bits/codes_product.h"
#include "kernel/cpu/tile/packed256.h"

enum { STEP = 32, ROWS = 4 };

#define INLINE __attribute__((always_inline)) static inline

INLINE float sum_of(__m256 v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

/* The last numbers of a block, fewer than a step, as floats behind each other. */
static void rest_of(const struct packed_args *a, const uint8_t *codes, int64_t c, int64_t end, float scale,
                    const float value[PACKING_CODES], float out[STEP])
{
    for (int i = 0; i < STEP; i++) out[i] = 0;
    for (int64_t i = c; i < end; i++) {
        float is = packed_code(packing_row(a->packing)->per_byte == 1, codes, value, i) * scale;
        if (a->t == DT_BF16) is = bf16_to_f32(bf16_from_f32(is));
        out[i - c] = is;
    }
}

/* Fewer than a step of x times what rest_of gave, onto the first lane. */
INLINE void add_rest(__m256 acc[ROWS][2], const float *x, int64_t ldx, const int m, const float *w, int64_t n)
{
    for (int i = 0; i < m; i++) {
        float sum = 0;
        for (int64_t k = 0; k < n; k++) sum += x[i * ldx + k] * w[k];
        acc[i][0] = _mm256_add_ps(acc[i][0], _mm256_set_ps(0, 0, 0, 0, 0, 0, 0, sum));
    }
}

INLINE void add_step(__m256 acc[ROWS][2], const float *x, int64_t ldx, const int m, const __m256 w[4])
{
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        const float *xi = x + i * ldx;
        acc[i][0] = _mm256_fmadd_ps(w[0], _mm256_loadu_ps(xi), acc[i][0]);
        acc[i][1] = _mm256_fmadd_ps(w[1], _mm256_loadu_ps(xi + 8), acc[i][1]);
        acc[i][0] = _mm256_fmadd_ps(w[2], _mm256_loadu_ps(xi + 16), acc[i][0]);
        acc[i][1] = _mm256_fmadd_ps(w[3], _mm256_loadu_ps(xi + 24), acc[i][1]);
    }
}

/* Codes of a block, then the scale. */
INLINE void add_bytes(__m256 acc[ROWS][2], const float *x, int64_t ldx, const int m, const __m256 w[4], float scale)
{
    const __m256 by = _mm256_set1_ps(scale);
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        const float *xi = x + i * ldx;
        __m256 p = _mm256_mul_ps(w[0], _mm256_loadu_ps(xi)), q = _mm256_mul_ps(w[1], _mm256_loadu_ps(xi + 8));
        p = _mm256_fmadd_ps(w[2], _mm256_loadu_ps(xi + 16), p);
        q = _mm256_fmadd_ps(w[3], _mm256_loadu_ps(xi + 24), q);
        acc[i][0] = _mm256_fmadd_ps(p, by, acc[i][0]);
        acc[i][1] = _mm256_fmadd_ps(q, by, acc[i][1]);
    }
}

/* Row r of codes with m rows of x; m and bytes are constants where this is called. */
INLINE void dot_row(const struct packed_args *a, const struct packed_scales *s, const float *value, int64_t r,
                    const float *x, int64_t ldx, const int m, const bool bytes, float *y, int64_t ldy)
{
    const int64_t block = packing_row(a->packing)->block, width = bytes ? a->cols : (a->cols + 1) / 2;
    const uint8_t *codes = a->codes + r * width, *scales = a->scales + r * s->blocks;
    const bool grouped = a->groups != NULL;
    __m256 acc[ROWS][2], w[4];
    for (int i = 0; i < m; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int64_t k = 0, c = 0; k < s->blocks; k++) {
        const int64_t end = c + block < a->cols ? c + block : a->cols;
        const float scale = grouped ? packed_scale(s, r, k) : packed256_power(scales[k]);
        struct packed256_table table = {0};
        if (!bytes) table = packed256_table(value, scale, a->t);
        for (; c + STEP <= end; c += STEP) {
            if (bytes) packed256_bytes(codes + c, w);
            else packed256_four(table, codes + c / 2, w);
            if (bytes) add_bytes(acc, x + c, ldx, m, w, scale);
            else add_step(acc, x + c, ldx, m, w);
        }
        if (c == end) continue;
        float rest[STEP];
        rest_of(a, codes, c, end, scale, value, rest);
        add_rest(acc, x + c, ldx, m, rest, end - c);
        c = end;
    }
    for (int i = 0; i < m; i++) y[i * ldy + r] = sum_of(_mm256_add_ps(acc[i][0], acc[i][1]));
}

INLINE void dot_rows(const struct packed_args *a, const struct packed_scales *s, const float *value, const float *x,
                     int64_t ldx, const int m, const bool bytes, float *y, int64_t ldy)
{
    for (int64_t r = 0; r < a->rows; r++) dot_row(a, s, value, r, x, ldx, m, bytes, y, ldy);
}

static void dot_few(const struct packed_args *a, const struct packed_scales *s, const float *value, const float *x,
                    int64_t ldx, int m, float *y, int64_t ldy)
{
    const bool bytes = packing_row(a->packing)->per_byte == 1;
    switch (m * 2 + bytes) {
    case 2: dot_rows(a, s, value, x, ldx, 1, false, y, ldy); break;
    case 3: dot_rows(a, s, value, x, ldx, 1, true, y, ldy); break;
    case 4: dot_rows(a, s, value, x, ldx, 2, false, y, ldy); break;
    case 5: dot_rows(a, s, value, x, ldx, 2, true, y, ldy); break;
    case 6: dot_rows(a, s, value, x, ldx, 3, false, y, ldy); break;
    case 7: dot_rows(a, s, value, x, ldx, 3, true, y, ldy); break;
    case 8: dot_rows(a, s, value, x, ldx, 4, false, y, ldy); break;
    default: dot_rows(a, s, value, x, ldx, 4, true, y, ldy); break;
    }
}

void coded_dot_avx2(const struct packed_args *a, const struct packed_scales *s, const float *x, int64_t ldx, int m,
                    float *y, int64_t ldy)
{
    struct packed_scales here = *s;
    float value[PACKING_CODES];
    here.a = a;
    packing_table(a->packing, value);
    for (int i = 0; i < m; i += ROWS)
        dot_few(a, &here, value, x + i * ldx, ldx, m - i < ROWS ? m - i : ROWS, y + i * ldy, ldy);
}
