/* SPDX-License-Identifier: Apache-2.0 */
/* Scans in 8 lanes (AVX2): one build of vec_scan_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_scan_body.h"

VEC_SCAN_TABLE(avx2, "avx2");
