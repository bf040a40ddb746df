/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, gates, convolutions in 4 lanes (NEON): one build of vec_act_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_act_body.h"

VEC_ACT_TABLE(neon, "neon");
