/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, gates, convolutions in 8 lanes (AVX2): one build of vec_act_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_act_body.h"

VEC_ACT_TABLE(avx2, "avx2");
