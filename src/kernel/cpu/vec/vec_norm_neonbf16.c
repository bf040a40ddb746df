/* SPDX-License-Identifier: Apache-2.0 */
/* Norms and the loss in 4 lanes with Arm's bf16 conversions: one build of vec_norm_body.h. Entered after cpu_isa() said
 * so. */
#include "kernel/cpu/vec/vec_norm_body.h"

VEC_NORM_TABLE(neonbf16, "neon-bf16");
