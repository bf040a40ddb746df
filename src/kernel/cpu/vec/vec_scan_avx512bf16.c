/* SPDX-License-Identifier: Apache-2.0 */
/* Scans in 16 lanes with bf16 conversions: one build of vec_scan_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_scan_body.h"

VEC_SCAN_TABLE(avx512bf16, "avx512-bf16");
