/* SPDX-License-Identifier: Apache-2.0 */
/* tile_sim_avx512.c: the AMX row on emulated registers with AMX's own AVX-512 packing and block sizes: tests those
 * on machines that have AVX-512 but no tiles. Never chosen.
 */
#include "kernel/cpu/tile/tile_reg_sim.h"

#include "kernel/cpu/tile/tile_mul_amx.h"
#include "kernel/cpu/tile/tile_pack512.h"
#include "kernel/cpu/tile/tile_pack_amx.h"
#include "kernel/cpu/tile/tile_plain.h"
#include "kernel/cpu/tile/tile_rows.h"

static void nothing(void) {}

static void promote(float *sum, const float *part, const float *a, const float *b, int rows, bool first)
{
    promote512(sum, part, a, b, rows, first, NR_AMX);
}

/* clang-format off */
const struct tile_ops tile_ops_sim512 = {
    .name = "amx-sim512", .needs = ISA_AVX512, .panel = DT_BF16,
    .mr = MR_AMX, .nr = NR_AMX, .group_a = 32, .group_b = 2, .step = STEP_AMX,
    .mc = 256, .kc = 1024, .nc = 2048, .dot_rows = 32,
    .pack_a = pack_a_amx, .pack_b = pack_b_amx, .mul = mul_amx, .finish = finish512, .promote = promote, .dot = plain_dots,
    .add_rows = add_rows512, .spin = spin_amx,
    .begin = nothing, .end = nothing,
};
/* clang-format on */
