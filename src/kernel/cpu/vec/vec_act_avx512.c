/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, gates, convolutions in 16 lanes (AVX-512): one build of vec_act_body.h. Entered after cpu_isa() said so.
 */
#include "kernel/cpu/vec/vec_act_body.h"

VEC_ACT_TABLE(avx512, "avx512");
