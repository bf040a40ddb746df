/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings, sums, rotations, experts' rows in 8 lanes (AVX2): one build of vec_move_body.h. Entered after cpu_isa()
 * said so. */
#include "kernel/cpu/vec/vec_move_body.h"

VEC_MOVE_TABLE(avx2, "avx2");
