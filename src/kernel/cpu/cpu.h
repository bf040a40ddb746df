/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h: the kernels of the cpu family, declared once for cpu_family.c. `x_accepts` looks at shapes, dtypes,
 * attributes and cpu_isa() only. Includes kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_CPU_CPU_H
#define TUTTI_KERNEL_CPU_CPU_H

#include "kernel/kernel.h"

/* linear.c */
bool linear_accepts(const struct kernel_call *c);
size_t linear_fwd_scratch(const struct kernel_call *c, int n_threads);
size_t linear_bwd_in_scratch(const struct kernel_call *c, int n_threads);
size_t linear_bwd_w_scratch(const struct kernel_call *c, int n_threads);
const char *linear_path(const struct kernel_call *c); /* how this call would be computed, in words */
kernel_fn linear_fwd_cpu, linear_bwd_in_cpu, linear_bwd_w_cpu;

/* grouped.c */
bool grouped_accepts(const struct kernel_call *c);
size_t grouped_scratch(const struct kernel_call *c, int n_threads);
kernel_fn grouped_run;

#endif
