/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx512bf16.c: bf16 panels in pairs for vdpbf16ps: the f32 micro-kernel with twice the depth per unit, and
 * on Zen 5 twice its rate (543 of 545 GFLOP/s per core from L2-resident panels). On Sapphire Rapids the
 * instruction runs at half the rate of an f32 multiply-add, so tile.c does not choose this row there.
 */
#include <immintrin.h>

#include "kernel/cpu/tile/tile_rows.h"

static inline __m512 tile_mac(__m512 s, __m512i a, __m512i b) { return _mm512_dpbf16_ps(s, (__m512bh)a, (__m512bh)b); }
static inline __m512 tile_dot_bf16(__m512 s, __m512i a, __m512i b) { return tile_mac(s, a, b); }
#define TILE_MAC_OPERATIONS 4
#include "kernel/cpu/tile/tile_dot512.h"
#include "kernel/cpu/tile/tile_mul512.h"

static void pack_a(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack512(dst, s, lanes, depth, DT_BF16, MR512, false, 2);
}
static void pack_b(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack512(dst, s, lanes, depth, DT_BF16, NR512, false, 2);
}
static void mul(float *c, int64_t ldc, const void *a, const void *b, int64_t depth_pad, int rows, bool add)
{
    mul512(c, ldc, a, b, depth_pad / 2, rows, add);
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
const struct tile_ops tile_ops_avx512bf16 = {
    .name = "avx512-bf16", .needs = ISA_AVX512_BF16, .panel = DT_BF16,
    .mr = MR512, .nr = NR512, .group_a = 2, .group_b = 2, .step = 2,
    .mc = 140, .kc = 1536, .nc = 1024, .dot_rows = 32,
    .pack_a = pack_a, .pack_b = pack_b, .mul = mul, .finish = finish512, .promote = promote, .dot = dot,
    .add_rows = add_rows512, .spin = spin512,
    .begin = nothing, .end = nothing,
};
/* clang-format on */
