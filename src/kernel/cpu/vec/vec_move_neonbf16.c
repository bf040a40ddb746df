/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings, sums, rotations, experts' rows in 4 lanes with Arm's bf16 conversions: one build of vec_move_body.h.
 * Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_move_body.h"

VEC_MOVE_TABLE(neonbf16, "neon-bf16");
