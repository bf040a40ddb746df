/* SPDX-License-Identifier: Apache-2.0 */
/* tile_sim.c: the AMX row on emulated registers and plain packing: slow, runs anywhere, never chosen. It exists so
 * that the blocking, the edges and the panel formats of AMX are tested on every machine.
 */
#include "kernel/cpu/tile/tile_reg_sim.h"

#include "kernel/cpu/tile/tile_mul_amx.h"
#include "kernel/cpu/tile/tile_plain.h"
#include "kernel/cpu/tile/tile_rows.h"

static void pack_a(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    plain_pack(dst, s, lanes, depth, DT_BF16, MR_AMX, 32, STEP_AMX);
}
static void pack_b(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    plain_pack(dst, s, lanes, depth, DT_BF16, NR_AMX, 2, STEP_AMX);
}
static void nothing(void) {}

static void promote(float *sum, const float *part, const float *a, const float *b, int rows, bool first)
{
    plain_promote(sum, part, a, b, rows, first, NR_AMX);
}

/* clang-format off */
const struct tile_ops tile_ops_sim = {
    .name = "amx-sim", .needs = ISA_REF, .panel = DT_BF16,
    .mr = MR_AMX, .nr = NR_AMX, .group_a = 32, .group_b = 2, .step = STEP_AMX,
    .mc = 64, .kc = 128, .nc = 128, .dot_rows = 8,
    .pack_a = pack_a, .pack_b = pack_b, .mul = mul_amx, .finish = plain_finish, .promote = promote, .dot = plain_dots,
    .add_rows = plain_add_rows, .spin = spin_amx,
    .begin = nothing, .end = nothing,
};
/* clang-format on */
