/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's vector work for NEON with bf16 conversions: one build of the attention bodies. Entered after cpu_isa()
 * said so. */
#include "kernel/cpu/attention/attention_build_body.h"

ATTENTION_TABLE(neonbf16);
