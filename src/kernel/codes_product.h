/* SPDX-License-Identifier: Apache-2.0 */
/* codes_product.h: what implementations of CODED share: where the rows of a part lie. Includes: packed_rows.h. Order:
 * Local. */
#ifndef TUTTI_KERNEL_CODES_PRODUCT_H
#define TUTTI_KERNEL_CODES_PRODUCT_H

#include "kernel/packed_rows.h"

static inline const struct view *coded_bias(const struct kernel_call *c)
{
    bool there = c->n_in > CODED_BIAS && c->in[CODED_BIAS].nd && !at_coded(&c->at)->bias_off;
    return there ? &c->in[CODED_BIAS] : NULL;
}
static inline const struct view *coded_experts(const struct kernel_call *c)
{
    return c->n_in > CODED_ROWS && c->in[CODED_ROWS].nd ? &c->in[CODED_ROWS] : NULL;
}
static inline int64_t coded_times(const struct kernel_call *c) /* experts, or 1 */
{
    const struct view *rows = coded_experts(c);
    return rows ? rows->n[0] : 1;
}
/* Rows [row, row + n) of the codes, as many of them as one part has: returns how many, and in *a what packed_rows.h
 * wants of them, without a place for numbers. n > 0. */
int64_t coded_rows(const struct kernel_call *c, int64_t row, int64_t n, struct packed_args *a);

#endif
