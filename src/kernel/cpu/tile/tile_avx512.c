/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx512.c: f32 panels for any source, on AVX-512. bf16 is widened while it is packed (exact) and then costs
 * what f32 costs: the right thing on CPUs without a fast bf16 dot product.
 *
 * Block sizes: 140 rows x 768 of A are 420 KiB, under half of the smallest L2 found with AVX-512 (1 MiB). A panel
 * of B (32 x 768, 96 KiB) comes from L2 without loss, since a tile needs 13 bytes a cycle of A and B together; so
 * depth is as large as that allows, and C is touched once for every 768 of depth. Blocks of B of 1024 columns
 * were 2 to 4 % faster than of 3072: two buffers of 768 x 1024 are 6 MiB of L3.
 */
#include <immintrin.h>

#include "kernel/cpu/tile/tile_rows.h"

static inline __m512 tile_mac(__m512 s, __m512i a, __m512i b)
{
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), s);
}
/* Pairs widen without a shuffle: the odd element is the upper half as it stands, the even one shifts up. */
static inline __m512 tile_dot_bf16(__m512 s, __m512i a, __m512i b)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    s = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)),
                        s);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, upper)),
                           _mm512_castsi512_ps(_mm512_and_si512(b, upper)), s);
}
#define TILE_MAC_OPERATIONS 2
#include "kernel/cpu/tile/tile_dot512.h"
#include "kernel/cpu/tile/tile_mul512.h"

static void pack_a(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack512(dst, s, lanes, depth, DT_F32, MR512, false, 1);
}
static void pack_b(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack512(dst, s, lanes, depth, DT_F32, NR512, false, 1);
}
static void mul(float *c, int64_t ldc, const void *a, const void *b, int64_t depth_pad, int rows, bool add)
{
    mul512(c, ldc, a, b, depth_pad, rows, add);
}
static void dot(float *y, int64_t ldy, const void *x, int64_t ldx, const void *w, int64_t ldw, enum dtype t, int m,
                int64_t n, int64_t depth)
{
    if (t == DT_F32) dot512(y, ldy, x, ldx, w, ldw, DT_F32, m, n, depth);
    else dot512(y, ldy, x, ldx, w, ldw, DT_BF16, m, n, depth);
}
static void nothing(void) {}

static void promote(float *sum, const float *part, const float *a, const float *b, int rows, bool first)
{
    promote512(sum, part, a, b, rows, first, NR512);
}

/* clang-format off */
const struct tile_ops tile_ops_avx512 = {
    .name = "avx512", .needs = ISA_AVX512, .panel = DT_F32,
    .mr = MR512, .nr = NR512, .group_a = 1, .group_b = 1, .step = 1,
    .mc = 140, .kc = 768, .nc = 1024, .dot_rows = 32,
    .pack_a = pack_a, .pack_b = pack_b, .mul = mul, .finish = finish512, .promote = promote, .dot = dot,
    .add_rows = add_rows512, .spin = spin512,
    .begin = nothing, .end = nothing,
};
/* clang-format on */
