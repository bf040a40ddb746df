/* SPDX-License-Identifier: Apache-2.0 */
/* tile_neon.c: f32 panels for any source, on NEON. bf16 is widened while it is packed (exact) and then costs what f32
 * costs: for CPUs without a bf16 dot product.
 *
 * Block sizes, reasoned and not measured on such a CPU: a panel of B (16 x 512) is 32 KiB, half of the first-level
 * cache of the server cores (64 KiB); 120 rows x 512 of A are 240 KiB, under half of the smallest L2 of interest (512
 * KiB).
 */
#include <arm_neon.h>

#define NEON_UNITS float32x4_t
#define NEON_HALF float32x2_t
#define NEON_MAC(s, b, a, lane) vfmaq_laneq_f32(s, b, a, lane)
#define NEON_MAC_HALF(s, b, a, lane) vfmaq_lane_f32(s, b, a, lane)
static inline float32x4_t neon_units(const float *p) { return vld1q_f32(p); }
static inline float32x2_t neon_half(const float *p) { return vld1_f32(p); }
#include "kernel/cpu/tile/tile_mul_neon.h"
#include "kernel/cpu/tile/tile_pack_neon.h"
#include "kernel/cpu/tile/tile_rows.h"

static void pack_a(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack_neon(dst, s, lanes, depth, DT_F32, MR_NEON, 1);
}
static void pack_b(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack_neon(dst, s, lanes, depth, DT_F32, NR_NEON, 1);
}
static void mul(float *c, int64_t ldc, const void *a, const void *b, int64_t depth_pad, int rows, bool add)
{
    mul_neon(c, ldc, a, b, depth_pad, rows, add);
}
static double spin(int64_t n) { return 2 * spin_neon(n); }
static void nothing(void) {}

static void promote(float *sum, const float *part, const float *a, const float *b, int rows, bool first)
{
    plain_promote(sum, part, a, b, rows, first, NR_NEON);
}

/* clang-format off */
const struct tile_ops tile_ops_neon = {
    .name = "neon", .needs = ISA_NEON, .panel = DT_F32,
    .mr = MR_NEON, .nr = NR_NEON, .group_a = 1, .group_b = 1, .step = 1,
    .mc = 120, .kc = 512, .nc = 1024, .dot_rows = 8,
    .pack_a = pack_a, .pack_b = pack_b, .mul = mul, .finish = finish_neon, .promote = promote, .dot = plain_dots,
    .add_rows = add_rows_neon, .spin = spin,
    .begin = nothing, .end = nothing,
};
/* clang-format on */
