/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings, sums, rotations, experts' rows in 16 lanes with bf16 conversions: one build of vec_move_body.h. Entered
 * after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_move_body.h"

VEC_MOVE_TABLE(avx512bf16, "avx512-bf16");
