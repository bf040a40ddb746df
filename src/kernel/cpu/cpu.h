/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h: the doors of the cpu family, declared once for cpu_family.c: each says which way takes a call, by shapes,
 * dtypes, attributes and cpu_isa() only. Includes kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_CPU_CPU_H
#define TUTTI_KERNEL_CPU_CPU_H

#include "kernel/array_ops.h"

const struct kernel_slot *linear_choose(const struct kernel_call *c);         /* linear.c */
const struct kernel_slot *linear_scaled_choose(const struct kernel_call *c);  /* scaled.c */
const struct kernel_slot *coded_choose(const struct kernel_call *c);          /* codes_product.c */
const struct kernel_slot *grouped_choose(const struct kernel_call *c);        /* grouped.c */
const struct kernel_slot *grouped_scaled_choose(const struct kernel_call *c); /* scaled.c */
const struct kernel_slot *parts_choose(const struct kernel_call *c);          /* parts_rounded.c */
const struct kernel_slot *attention_choose(const struct kernel_call *c);      /* attention.c: all rows of attention */
const struct kernel_slot *vec_choose(const struct kernel_call *c); /* build.c: the same slot of this CPU's build */

/* Whole arrays: arrays.c. */
#define DECLARE(op, name) kernel_fn array_##name##_cpu;
ARRAY_OPS(DECLARE)
#undef DECLARE

#endif
