/* SPDX-License-Identifier: Apache-2.0 */
/* Scans in 16 lanes (AVX-512): one build of vec_scan_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_scan_body.h"

VEC_SCAN_TABLE(avx512, "avx512");
