/* SPDX-License-Identifier: Apache-2.0 */
/* vec_family.h: the vector operations' builds per instruction set, and who chooses between them.
 *
 * cpu_family.c holds one function per slot. For the vector operations that function is vec_run: it looks at
 * cpu_isa() and hands the call to the same slot of one of the kernel_vec tables, builds of the same source. Below
 * AVX2 vec_accepts says no and the call falls through to ref.
 * Includes: kernel.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_FAMILY_H
#define TUTTI_KERNEL_CPU_VEC_FAMILY_H

#include "kernel/kernel.h"

/* One build each of the *_body.h files. */
extern const struct kernel_family kernel_vec_avx2, kernel_vec_avx512, kernel_vec_avx512bf16;
extern const struct flat_ops flat_ops_avx2, flat_ops_avx512;

void vec_run(const struct kernel_call *c);
size_t vec_scratch(const struct kernel_call *c, int n_threads);
bool vec_accepts(const struct kernel_call *c); /* by dtypes and cpu_isa() only */

#endif
