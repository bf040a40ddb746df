/* SPDX-License-Identifier: Apache-2.0 */
/* tile_pack_amx.h: packing into the panels of tile_mul_amx.h with AVX-512: one object for AMX and for its emulation
 * (tile_sim_avx512.c), since it needs no more than that. */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_PACK_AMX_H
#define TUTTI_KERNEL_CPU_TILE_TILE_PACK_AMX_H

#include "kernel/cpu/tile/tile.h"

enum { MR_AMX = 32, NR_AMX = 32, STEP_AMX = 32 };

void pack_a_amx(void *dst, struct tile_src s, int64_t lanes, int64_t depth);
void pack_b_amx(void *dst, struct tile_src s, int64_t lanes, int64_t depth);

#endif
