/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx2.c: f32 panels on AVX2: tiles of 6 x 16, twelve sums in sixteen registers, two loads of B and six
 * broadcasts for twelve multiply-adds. Packing and finishing are plain C, vectorised by the compiler.
 */
#include "kernel/cpu/tile/tile_dot256.h"
#include "kernel/cpu/tile/tile_rows.h"

enum { MR = 6, NR = 16 };

__attribute__((always_inline)) static inline void mul_rows(float *c, int64_t ldc, const float *a, const float *b,
                                                           int64_t depth, bool add, const int rows)
{
    __m256 s[MR][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) s[i][0] = s[i][1] = _mm256_setzero_ps();
    for (int64_t d = 0; d < depth; d++) {
        __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m256 ai = _mm256_broadcast_ss(a + i);
            s[i][0] = _mm256_fmadd_ps(ai, b0, s[i][0]);
            s[i][1] = _mm256_fmadd_ps(ai, b1, s[i][1]);
        }
        a += MR;
        b += NR;
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float *ci = c + i * ldc;
        if (add) {
            s[i][0] = _mm256_add_ps(_mm256_loadu_ps(ci), s[i][0]);
            s[i][1] = _mm256_add_ps(_mm256_loadu_ps(ci + 8), s[i][1]);
        }
        _mm256_storeu_ps(ci, s[i][0]);
        _mm256_storeu_ps(ci + 8, s[i][1]);
    }
}

static void mul(float *c, int64_t ldc, const void *a, const void *b, int64_t depth_pad, int rows, bool add)
{
    switch (rows) {
    case 1: mul_rows(c, ldc, a, b, depth_pad, add, 1); break;
    case 2: mul_rows(c, ldc, a, b, depth_pad, add, 2); break;
    case 3: mul_rows(c, ldc, a, b, depth_pad, add, 3); break;
    case 4: mul_rows(c, ldc, a, b, depth_pad, add, 4); break;
    case 5: mul_rows(c, ldc, a, b, depth_pad, add, 5); break;
    default: mul_rows(c, ldc, a, b, depth_pad, add, 6); break;
    }
}
static void pack_a(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    plain_pack(dst, s, lanes, depth, DT_F32, MR, 1, 1);
}
static void pack_b(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    plain_pack(dst, s, lanes, depth, DT_F32, NR, 1, 1);
}
static double spin(int64_t n)
{
    __m256 s[MR][2], a = _mm256_setzero_ps();
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) s[i][0] = s[i][1] = a;
    for (int64_t u = 0; u < n; u++) {
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++) {
            s[i][0] = _mm256_fmadd_ps(a, a, s[i][0]);
            s[i][1] = _mm256_fmadd_ps(a, a, s[i][1]);
            __asm__ volatile("" : "+x"(s[i][0]), "+x"(s[i][1])); /* each result counts as used */
        }
    }
    return (double)n * MR * NR * 2;
}
static void nothing(void) {}

static void promote(float *sum, const float *part, const float *a, const float *b, int rows, bool first)
{
    plain_promote(sum, part, a, b, rows, first, NR);
}

static void dot(float *y, int64_t ldy, const void *x, int64_t ldx, const void *w, int64_t ldw, enum dtype t, int m,
                int64_t n, int64_t depth)
{
    if (t == DT_F32) dot256(y, ldy, x, ldx, w, ldw, DT_F32, m, n, depth);
    else dot256(y, ldy, x, ldx, w, ldw, DT_BF16, m, n, depth);
}

/* clang-format off */
const struct tile_ops tile_ops_avx2 = {
    .name = "avx2", .needs = ISA_AVX2, .panel = DT_F32,
    .mr = MR, .nr = NR, .group_a = 1, .group_b = 1, .step = 1,
    .mc = 72, .kc = 256, .nc = 1024, .dot_rows = 8,
    .pack_a = pack_a, .pack_b = pack_b, .mul = mul, .finish = plain_finish, .promote = promote, .dot = dot,
    .add_rows = plain_add_rows, .spin = spin,
    .begin = nothing, .end = nothing,
};
/* clang-format on */
