/* SPDX-License-Identifier: Apache-2.0 */
/* AMAX and QUANTISE in AVX2, 8 lanes: one build of quantise_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/bits/quantise_body.h"

#include "kernel/cpu/build.h"

QUANTISE_TABLE(avx2);
