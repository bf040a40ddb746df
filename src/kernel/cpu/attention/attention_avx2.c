/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's vector work for AVX2: one build of the attention bodies. Entered after cpu_isa() said so. */
#include "kernel/cpu/attention/attention_build_body.h"

ATTENTION_TABLE(avx2);
