/* SPDX-License-Identifier: Apache-2.0 */
/* The vector kernels in 4 lanes with Arm's bf16 conversions: one build of the *_body.h files. Entered after cpu_isa()
 * said so. */
#include "kernel/cpu/vec_body.h"

VEC_TABLE(neonbf16, "neon-bf16");
