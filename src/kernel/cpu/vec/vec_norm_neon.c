/* SPDX-License-Identifier: Apache-2.0 */
/* Norms and the loss in 4 lanes (NEON): one build of vec_norm_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_norm_body.h"

VEC_NORM_TABLE(neon, "neon");
