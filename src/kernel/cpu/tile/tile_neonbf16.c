/* SPDX-License-Identifier: Apache-2.0 */
/* tile_neonbf16.c: bf16 panels in pairs for bfdot, which adds two products to each of four sums: the f32 micro-kernel
 * with twice the depth per unit (Neoverse V1, N2, V2 and the laptops of their years). Subnormal operands and results
 * count as zero there, as on AMX. Rejected for now: bfmmla, four products per sum on cores that run it at the same
 * rate, because its panels hold four of depth side by side and attention writes its probabilities into panels of pairs.
 *
 * Block sizes are tile_neon.c's in bytes.
 */
#include <arm_neon.h>

#define NEON_UNITS bfloat16x8_t
#define NEON_HALF bfloat16x4_t
#define NEON_MAC(s, b, a, lane) vbfdotq_laneq_f32(s, b, a, lane)
#define NEON_MAC_HALF(s, b, a, lane) vbfdotq_lane_f32(s, b, a, lane)
static inline bfloat16x8_t neon_units(const float *p) { return vreinterpretq_bf16_f32(vld1q_f32(p)); }
static inline bfloat16x4_t neon_half(const float *p) { return vreinterpret_bf16_f32(vld1_f32(p)); }
#include "kernel/cpu/tile/tile_mul_neon.h"
#include "kernel/cpu/tile/tile_pack_neon.h"
#include "kernel/cpu/tile/tile_rows.h"

static void pack_a(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack_neon(dst, s, lanes, depth, DT_BF16, MR_NEON, 2);
}
static void pack_b(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack_neon(dst, s, lanes, depth, DT_BF16, NR_NEON, 2);
}
static void mul(float *c, int64_t ldc, const void *a, const void *b, int64_t depth_pad, int rows, bool add)
{
    mul_neon(c, ldc, a, b, depth_pad / 2, rows, add);
}
static double spin(int64_t n) { return 4 * spin_neon(n); }
static void nothing(void) {}

static void promote(float *sum, const float *part, const float *a, const float *b, int rows, bool first)
{
    plain_promote(sum, part, a, b, rows, first, NR_NEON);
}

/* clang-format off */
const struct tile_ops tile_ops_neonbf16 = {
    .name = "neon-bf16", .needs = ISA_NEON_BF16, .panel = DT_BF16,
    .mr = MR_NEON, .nr = NR_NEON, .group_a = 2, .group_b = 2, .step = 2,
    .mc = 120, .kc = 1024, .nc = 1024, .dot_rows = 8,
    .pack_a = pack_a, .pack_b = pack_b, .mul = mul, .finish = finish_neon, .promote = promote, .dot = plain_dots,
    .add_rows = add_rows_neon, .spin = spin,
    .begin = nothing, .end = nothing,
};
/* clang-format on */
