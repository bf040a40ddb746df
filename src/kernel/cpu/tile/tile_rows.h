/* SPDX-License-Identifier: Apache-2.0 */
/* tile_rows.h: the rows of tile.c's table; each is defined in the file of its instruction set. */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_ROWS_H
#define TUTTI_KERNEL_CPU_TILE_TILE_ROWS_H

#include "base/isa_built.h"
#include "kernel/cpu/tile/tile.h"

extern const struct tile_ops tile_ops_portable;
extern const struct tile_ops tile_ops_sim; /* the AMX row's loops over emulated tiles, plain packing */
#if defined(__x86_64__)
extern const struct tile_ops tile_ops_avx2;
extern const struct tile_ops tile_ops_avx512;
extern const struct tile_ops tile_ops_avx512bf16;
extern const struct tile_ops tile_ops_amx;
extern const struct tile_ops tile_ops_sim512; /* tile_ops_sim with AMX's own packing: needs AVX-512 only */
#elif defined(__aarch64__)
extern const struct tile_ops tile_ops_neon;
extern const struct tile_ops tile_ops_neonbf16;
#endif

/* The rows that tile_ops_get may give where an instruction set was found, each with its name and panels: who has one
 * way per row writes it once, WAY(row, "name", "panels"). Other machines have no such row, so theirs are never chosen.
 */
#if defined(__x86_64__)
#define TILE_WAYS(WAY)                                                                                                 \
    IF_AMX(WAY(amx, "amx", "bf16"))                                                                                    \
    IF_AVX512BF16(WAY(avx512bf16, "avx512-bf16", "bf16"))                                                              \
    IF_AVX512(WAY(avx512, "avx512", "f32"))                                                                            \
    WAY(avx2, "avx2", "f32")
#elif defined(__aarch64__)
#define TILE_WAYS(WAY)                                                                                                 \
    IF_NEONBF16(WAY(neonbf16, "neon-bf16", "bf16"))                                                                    \
    WAY(neon, "neon", "f32")
#else
#define TILE_WAYS(WAY) WAY(portable, "portable", "f32")
#endif

#endif
