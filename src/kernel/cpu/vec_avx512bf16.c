/* SPDX-License-Identifier: Apache-2.0 */
/* The vector kernels in 16 lanes with bf16 conversions: one build of the *_body.h files. Entered after cpu_isa(). */
#include "kernel/cpu/vec_body.h"

VEC_TABLE(avx512bf16, "avx512-bf16");
