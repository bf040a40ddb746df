/* SPDX-License-Identifier: Apache-2.0 */
/* Norms and the loss in 16 lanes with bf16 conversions: one build of vec_norm_body.h. Entered after cpu_isa() said so.
 */
#include "kernel/cpu/vec/vec_norm_body.h"

VEC_NORM_TABLE(avx512bf16, "avx512-bf16");
