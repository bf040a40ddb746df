/* SPDX-License-Identifier: Apache-2.0 */
/* The vector kernels in 8 lanes (AVX2): one build of the *_body.h files. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec_body.h"

VEC_TABLE(avx2, "avx2");
