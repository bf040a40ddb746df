/* SPDX-License-Identifier: Apache-2.0 */
/* vec_family.h: the vector operations, whose builds per instruction set are rows of build.h.
 *
 * cpu_family.c holds one function per slot. For the vector operations that function is vec_run: it looks at
 * cpu_build() and hands the call to the same slot of that build's table. Where there is none vec_accepts says no and
 * the call falls through to ref.
 * Includes: kernel.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_FAMILY_H
#define TUTTI_KERNEL_CPU_VEC_FAMILY_H

#include "kernel/kernel.h"

void vec_run(const struct kernel_call *c);
size_t vec_scratch(const struct kernel_call *c, int n_threads);
bool vec_accepts(const struct kernel_call *c); /* by dtypes and cpu_isa() only */

#endif
