/* SPDX-License-Identifier: Apache-2.0 */
/* Products of few rows of bf16 straight from codes, in AVX2, with integers (codes_product.h). A block of 32 numbers of
 * x is 16-bit integers times a power of two; codes become 16-bit integers by one shuffle or two, pairs are multiplied
 * and added in one instruction, and a block's sum becomes a float once, times both scales.
 *
 *   int8    the code; a lane adds 4 products below 2^22: exact, also as a float
 *   mxfp4   512 times the number: twice it is a whole number, in the upper byte; a lane adds 8 below 2^27: exact
 *   nf4     2^14 times the level, rounded; a lane adds 4 below 2^29 before it becomes a float
 *
 * Cost of 64 numbers: int8 64 bytes read and 16 instructions, mxfp4 32 bytes and 19, nf4 32 bytes and 22; 8 to 10 of
 * them, the multiply-adds and their scale, for each row of x. Four rows of codes that lie far apart are walked at once,
 * which keeps the memory busy (tile_dot256.h has the figures). Entered after cpu_isa() said so.
 */
#include <float.h>
#include <immintrin.h>
#include <string.h>

#include "kernel/cpu/bits/codes_product.h"
#include "layout/bits.h"

enum { STEP = CODED_STEP, CHUNK = CODED_CHUNK, CHUNK_BLOCKS = CHUNK / CODED_FIXED_BLOCK, E_LEAST = -96, E_MOST = 100 };

#define INLINE __attribute__((always_inline)) static inline

/* ---- x ---- */

/* Sixteen of x: those of even and odd places, or the first and the last eight. */
INLINE void load16(const bf16 *x, const bool pairs, __m256 v[2])
{
    const __m256i u = _mm256_loadu_si256((const void *)x);
    if (pairs) {
        v[0] = _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
        v[1] = _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32((int)0xffff0000)));
    } else {
        v[0] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(u)), 16));
        v[1] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(u, 1)), 16));
    }
}

/* The exponent e with |x| < 2^e of a block, at least E_LEAST, and above E_MOST where one is too large or no number. */
INLINE int exponent_of(const bf16 x[CODED_FIXED_BLOCK])
{
    const __m256i rest = _mm256_set1_epi16(0x7fff);
    __m256i most = _mm256_max_epu16(_mm256_and_si256(_mm256_loadu_si256((const void *)x), rest),
                                    _mm256_and_si256(_mm256_loadu_si256((const void *)(x + 16)), rest));
    /* The least of 8 numbers without sign is one instruction: of what they lack. */
    const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    const int bits = 0x7fff - _mm_extract_epi16(_mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(0x7fff), eight)), 0);
    const int e = (bits >> 7) - 126;
    return e < E_LEAST ? E_LEAST : e;
}

INLINE float power_of(int e) { return float_of((uint32_t)(e + 127) << 23); }

INLINE __m256i whole(__m256 a, __m256 b, float by_a, float by_b)
{
    const __m256i ia = _mm256_cvtps_epi32(_mm256_mul_ps(a, _mm256_set1_ps(by_a)));
    const __m256i ib = _mm256_cvtps_epi32(_mm256_mul_ps(b, _mm256_set1_ps(by_b)));
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(ia, ib), 0xd8); /* a's eight, then b's */
}

/* 64 of x, whose two blocks have the factors by[2], in the order in which codes come out. */
INLINE void step_of(const bf16 x[STEP], const float by[2], const bool pairs, int16_t out[STEP])
{
    __m256 v[4][2];
    __m256i *to = (__m256i *)out;
    for (int i = 0; i < 4; i++) load16(x + 16 * i, pairs, v[i]);
    if (pairs) { /* a lane of the codes is a block */
        _mm256_storeu_si256(to, whole(v[0][0], v[2][0], by[0], by[1]));
        _mm256_storeu_si256(to + 1, whole(v[1][0], v[3][0], by[0], by[1]));
        _mm256_storeu_si256(to + 2, whole(v[0][1], v[2][1], by[0], by[1]));
        _mm256_storeu_si256(to + 3, whole(v[1][1], v[3][1], by[0], by[1]));
    } else {
        for (int i = 0; i < 4; i++) _mm256_storeu_si256(to + i, whole(v[i][0], v[i][1], by[i / 2], by[i / 2]));
    }
}

bool coded_fix_avx2(enum packing p, const bf16 *x, int64_t cols, int16_t *whole_x, float *scale)
{
    const bool bytes = packing_row(p)->per_byte == 1;
    const float unit = bytes ? 1 : p == PACKING_MXFP4 ? 0x1p-9f : 0x1p-14f;
    for (int64_t c = 0; c < coded_fixed_cols(cols); c += STEP, whole_x += STEP, scale += 2) {
        bf16 last[STEP] = {0};
        const bf16 *from = x + c;
        float by[2];
        if (c >= cols) { /* scales are read eight at a time */
            memset(whole_x, 0, STEP * sizeof *whole_x);
            scale[0] = scale[1] = 0;
            continue;
        }
        if (cols - c < STEP) {
            memcpy(last, from, (size_t)(cols - c) * sizeof *last);
            from = last;
        }
        for (int b = 0; b < 2; b++) {
            const int e = exponent_of(from + b * CODED_FIXED_BLOCK);
            if (e > E_MOST) return false;
            by[b] = power_of(15 - e);
            scale[b] = power_of(e - 15) * unit;
        }
        if (bytes) step_of(from, by, false, whole_x);
        else step_of(from, by, true, whole_x);
    }
    return true;
}

/* ---- codes ---- */

struct tables {
    __m256i low, high; /* bytes of the 16 levels; of mxfp4 the upper ones alone */
};

static struct tables tables_of(enum packing p)
{
    float value[PACKING_CODES];
    int8_t low[PACKING_CODES] = {0}, high[PACKING_CODES] = {0};
    packing_table(p, value);
    for (int i = 0; i < PACKING_CODES && packing_row(p)->per_byte == 2; i++) {
        const int at =
            p == PACKING_MXFP4 ? (int)(value[i] * 512) : (int)(value[i] * 0x1p14f + (value[i] < 0 ? -0.5f : 0.5f));
        low[i] = (int8_t)(at & 255);
        high[i] = (int8_t)(at >> 8);
    }
    return (struct tables){_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)low)),
                           _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)high))};
}

/* 64 codes as 16-bit integers, in step_of's order. */
INLINE void levels_of(const enum packing p, const struct tables *t, const uint8_t *codes, __m256i w[4])
{
    if (p == PACKING_INT8) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) w[i] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(codes + 16 * i)));
        return;
    }
    const __m256i four = _mm256_set1_epi8(15), two = _mm256_loadu_si256((const void *)codes);
    const __m256i first = _mm256_and_si256(_mm256_srli_epi16(two, 4), four), second = _mm256_and_si256(two, four);
    __m256i low[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const __m256i high[2] = {_mm256_shuffle_epi8(t->high, first), _mm256_shuffle_epi8(t->high, second)};
    if (p == PACKING_NF4) {
        low[0] = _mm256_shuffle_epi8(t->low, first);
        low[1] = _mm256_shuffle_epi8(t->low, second);
    }
    w[0] = _mm256_unpacklo_epi8(low[0], high[0]);
    w[1] = _mm256_unpackhi_epi8(low[0], high[0]);
    w[2] = _mm256_unpacklo_epi8(low[1], high[1]);
    w[3] = _mm256_unpackhi_epi8(low[1], high[1]);
}

/* `all` bytes at p, 4 or 8, in the lowest places; of those only n are there at a row's end, and the others are 0. */
INLINE __m128i bytes_of(const uint8_t *p, int64_t n, const int all)
{
    uint64_t some = 0;
    if (n >= all) return all == 4 ? _mm_loadu_si32(p) : _mm_loadl_epi64((const void *)p);
    for (int64_t i = 0; i < n; i++)
        some |= (uint64_t)p[i] << 8 * i; /* in a register: written and read at once it waits */
    return _mm_cvtsi64_si128((int64_t)some);
}

/* The scales of four of nf4's blocks, from block k of row r on; n are left in the row. */
INLINE __m128 four_of(const struct packed_scales *s, int64_t r, int64_t k, int64_t n)
{
    const struct packed_args *a = s->a;
    const uint64_t first = (uint64_t)(a->first + r * a->row_blocks + k);
    const float *group = a->groups + first / PACKING_GROUP;
    const __m128i codes = bytes_of(a->scales + r * s->blocks + k, n, 4);
    const __m128 own = _mm_i32gather_ps(s->map, _mm_cvtepu8_epi32(codes), 4);
    __m128 by = _mm_broadcast_ss(group);
    const int64_t here = (int64_t)(PACKING_GROUP - first % PACKING_GROUP);
    if (here < 4 && here < n) { /* the next one is there, since a block of this row is in it */
        const __m128 next = _mm_broadcast_ss(group + 1);
        by =
            _mm_blendv_ps(by, next,
                          _mm_castsi128_ps(_mm_cmpgt_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32((int)here - 1))));
    }
    return _mm_add_ps(_mm_mul_ps(own, by), _mm_broadcast_ss(a->groups + a->n_groups - 1));
}

/* The scales of a chunk's blocks of 32, as floats; n blocks of the packing, from k on, are left in the row. */
INLINE __m256 scales_of(const enum packing p, const struct packed_scales *s, int64_t r, int64_t k, int64_t n)
{
    if (p == PACKING_NF4) /* each of two blocks of 32 */
        return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(four_of(s, r, k, n)),
                                        _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    const __m128i code = bytes_of(s->a->scales + r * s->blocks + k, n, CHUNK_BLOCKS);
    const __m256i e = _mm256_slli_epi32(_mm256_cvtepu8_epi32(code), 23);
    return _mm256_castsi256_ps(_mm256_max_epi32(e, _mm256_set1_epi32(0x400000))); /* 2^-127, of code 0 */
}

/* ---- sums ---- */

INLINE __m256i madd(__m256i w, const int16_t *x) { return _mm256_madd_epi16(w, _mm256_loadu_si256((const void *)x)); }

/* 64 products onto acc. f: the two blocks' factors, x's scale times that of the codes. */
INLINE __m256 add_step(const enum packing p, __m256 acc, const __m256i w[4], const int16_t *x, const float *f)
{
    const __m256i a = _mm256_add_epi32(madd(w[0], x), madd(w[1], x + 16));
    const __m256i b = _mm256_add_epi32(madd(w[2], x + 32), madd(w[3], x + 48));
    if (p == PACKING_INT8) {
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(a), _mm256_broadcast_ss(f), acc);
        return _mm256_fmadd_ps(_mm256_cvtepi32_ps(b), _mm256_broadcast_ss(f + 1), acc);
    }
    const __m256 sum = p == PACKING_MXFP4 ? _mm256_cvtepi32_ps(_mm256_add_epi32(a, b))
                                          : _mm256_add_ps(_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b));
    const __m256 both = _mm256_castpd_ps(_mm256_broadcast_sd((const double *)(const void *)f));
    const __m256 by = _mm256_permutevar_ps(both, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    return _mm256_fmadd_ps(sum, by, acc);
}

INLINE float sum_of(__m256 v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

struct rows {
    const struct packed_args *a;
    const struct packed_scales *s;
    const struct tables *t;
    const int16_t *x;
    const float *scale;
    int64_t ldx, lds; /* from row to row of x, of its scales */
};

/* 64 numbers of one row of codes with m rows of x. */
INLINE void step(const struct rows *w, const enum packing p, const uint8_t *codes, int64_t c, const int m, __m256 *acc,
                 const float (*f)[CHUNK_BLOCKS])
{
    __m256i v[4];
    const int64_t k = c % CHUNK / CODED_FIXED_BLOCK;
    levels_of(p, w->t, codes, v);
    acc[0] = add_step(p, acc[0], v, w->x + c, f[0] + k);
    if (m > 1) acc[1] = add_step(p, acc[1], v, w->x + w->ldx + c, f[1] + k);
    if (m > 2) acc[2] = add_step(p, acc[2], v, w->x + 2 * w->ldx + c, f[2] + k);
    if (m > 3) acc[3] = add_step(p, acc[3], v, w->x + 3 * w->ldx + c, f[3] + k);
}

/* What a row of codes is multiplied by in a chunk: x's scales times its own. */
INLINE void factors(const struct rows *w, const enum packing p, int64_t r, int64_t c, const int m,
                    float (*f)[CHUNK_BLOCKS])
{
    const int64_t k = c / (p == PACKING_NF4 ? 64 : 32);
    const __m256 own = scales_of(p, w->s, r, k, w->s->blocks - k);
    for (int i = 0; i < m; i++) {
        const __m256 both = _mm256_mul_ps(own, _mm256_loadu_ps(w->scale + i * w->lds + c / CODED_FIXED_BLOCK));
        _mm256_storeu_ps(f[i], _mm256_min_ps(both, _mm256_set1_ps(FLT_MAX))); /* 0 times it is 0 */
    }
}

/* Row r and those `gap` behind each other with m rows of x; p, m and n are constants where this is called. Written out
 * for up to four rows, so that sums are registers. */
INLINE void dot_block(const struct rows *w, const enum packing p, int64_t r, int64_t gap, const int m, const int n,
                      float *y, int64_t ldy)
{
    const int64_t cols = w->a->cols, whole_cols = cols / STEP * STEP;
    const int64_t width = p == PACKING_INT8 ? cols : (cols + 1) / 2, per = p == PACKING_INT8 ? 1 : 2;
    const uint8_t *codes = w->a->codes + r * width;
    float f[4][4][CHUNK_BLOCKS]; /* of a row of codes and one of x */
    __m256 a[4], b[4], d[4], e[4];
    for (int i = 0; i < 4; i++) a[i] = b[i] = d[i] = e[i] = _mm256_setzero_ps();
    for (int64_t from = 0; from < cols; from += CHUNK) {
        const int64_t end = whole_cols - from < CHUNK ? whole_cols : from + CHUNK;
        for (int j = 0; j < n; j++) factors(w, p, r + j * gap, from, m, f[j]);
        for (int64_t c = from; c < end; c += STEP) {
            const uint8_t *at = codes + c / per;
            step(w, p, at, c, m, a, f[0]);
            if (n > 1) step(w, p, at + gap * width, c, m, b, f[1]);
            if (n > 2) step(w, p, at + 2 * gap * width, c, m, d, f[2]);
            if (n > 3) step(w, p, at + 3 * gap * width, c, m, e, f[3]);
        }
    }
    for (int j = 0; j < n; j++) {
        __m256 *acc = j == 0 ? a : j == 1 ? b : j == 2 ? d : e;
        if (whole_cols < cols) {
            uint8_t last[STEP] = {0};
            memcpy(last, codes + j * gap * width + whole_cols / per, (size_t)(width - whole_cols / per));
            step(w, p, last, whole_cols, m, acc, f[j]);
        }
        for (int i = 0; i < m; i++) y[i * ldy + r + j * gap] = sum_of(acc[i]);
    }
}

INLINE void dot_rows(const struct rows *w, const enum packing p, const int m, float *y, int64_t ldy)
{
    const int at_once = m == 1 ? 4 : m == 2 || p == PACKING_INT8 ? 2 : 1; /* as many as sums stay in registers */
    const int64_t gap = w->a->rows / at_once;
    for (int64_t r = 0; r < gap; r++) dot_block(w, p, r, gap, m, at_once, y, ldy);
    for (int64_t r = gap * at_once; r < w->a->rows; r++) dot_block(w, p, r, 0, m, 1, y, ldy);
}

INLINE void dot_few(const struct rows *w, const enum packing p, int m, float *y, int64_t ldy)
{
    switch (m) {
    case 1: dot_rows(w, p, 1, y, ldy); break;
    case 2: dot_rows(w, p, 2, y, ldy); break;
    case 3: dot_rows(w, p, 3, y, ldy); break;
    default: dot_rows(w, p, 4, y, ldy); break;
    }
}

void coded_fixed_avx2(const struct packed_args *a, const struct packed_scales *s, const struct coded_fixed *x, int m,
                      float *y, int64_t ldy)
{
    struct packed_scales here = *s;
    const struct tables t = tables_of(a->packing);
    here.a = a;
    for (int i = 0; i < m; i += 4) {
        const struct rows w = {a, &here, &t, x->x + i * x->cols, x->scale + i * x->blocks, x->cols, x->blocks};
        float *yi = y + i * ldy;
        if (a->packing == PACKING_INT8) dot_few(&w, PACKING_INT8, m - i, yi, ldy);
        else if (a->packing == PACKING_MXFP4) dot_few(&w, PACKING_MXFP4, m - i, yi, ldy);
        else dot_few(&w, PACKING_NF4, m - i, yi, ldy);
    }
}
