/* SPDX-License-Identifier: Apache-2.0 */
/* The vector kernels in 16 lanes (AVX-512): one build of the *_body.h files. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec_body.h"

VEC_TABLE(avx512, "avx512");
