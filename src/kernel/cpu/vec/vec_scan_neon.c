/* SPDX-License-Identifier: Apache-2.0 */
/* Scans in 4 lanes (NEON): one build of vec_scan_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/vec_scan_body.h"

VEC_SCAN_TABLE(neon, "neon");
