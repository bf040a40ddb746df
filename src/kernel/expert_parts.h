/* SPDX-License-Identifier: Apache-2.0 */
/* expert_parts.h: rows of fewer bits of experts, as calls of the rows for one tensor: which parts there are, and the
 * call for each. All families share it, so that a part is rounded and multiplied as a tensor by itself is. Includes
 * kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_EXPERT_PARTS_H
#define TUTTI_KERNEL_EXPERT_PARTS_H

#include "kernel/kernel.h"

/* Parts that there are, with or without rows. rows: of the call, or NULL; x_rows: of the tensor. */
int64_t parts_count(const struct parts_attrs *at, const struct view *rows, int64_t x_rows);
/* Blocks of so many rows in all parts, at most. */
int64_t parts_blocks(const struct parts_attrs *at, const struct view *rows, int64_t x_rows, int block_rows);

/* AMAX_PARTS, QUANTISE_PARTS: fn for each part that has rows, with a call of AMAX, QUANTISE. */
void parts_each(const struct kernel_call *c, kernel_fn *fn);
/* The same, and whose part it is: of the experts here. */
typedef void parts_visit_fn(const struct kernel_call *one, int64_t expert, void *arg);
void parts_visit(const struct kernel_call *c, parts_visit_fn *fn, void *arg);
/* The call of AMAX, QUANTISE on all rows as one part: it stands for any of them when a way is chosen, and needs the
 * most scratch. */
struct kernel_call parts_whole(const struct kernel_call *c);

/* GROUPED_SCALED: fn for each part that has rows, with a call of LINEAR_SCALED; `depth`: how many rows its expert has
 * in all rounds. What is nobody's is zero, or what is accumulated on. */
typedef void parts_product_fn(const struct kernel_call *one, int64_t depth, const void *arg);
void parts_products(const struct kernel_call *c, parts_product_fn *fn, const void *arg);
/* The same for all rows in one part. */
struct kernel_call parts_product_whole(const struct kernel_call *c);

#endif
