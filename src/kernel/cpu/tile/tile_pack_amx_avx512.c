/* SPDX-License-Identifier: Apache-2.0 */
/* tile_pack_amx_avx512.c: AMX's packing (tile_pack_amx.h). */
#include "kernel/cpu/tile/tile_pack_amx.h"

#include "kernel/cpu/tile/tile_pack512.h"

void pack_a_amx(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack512(dst, s, lanes, depth, DT_BF16, MR_AMX, true, STEP_AMX);
}
void pack_b_amx(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    pack512(dst, s, lanes, depth, DT_BF16, NR_AMX, false, STEP_AMX);
}
