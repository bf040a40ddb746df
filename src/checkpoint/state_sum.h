/* SPDX-License-Identifier: Apache-2.0 */
/* state_sum.h: a number of a tensor's values that no layout changes: each element and its place in the whole tensor are
 * mixed to 64 bits, and the sum of these, modulo 2^64, is the tensor's. So the sums of boxes that tile a tensor add up
 * to the sum of the whole, whoever holds which. For telling whether a state is the one that was saved, in another
 * layout too; no defence against an adversary. docs/checkpoint-format.md specifies it. Includes: layout. Order: Local.
 */
#ifndef TUTTI_CHECKPOINT_STATE_SUM_H
#define TUTTI_CHECKPOINT_STATE_SUM_H

#include <stdint.h>

#include "layout/dtype.h"
#include "layout/region.h"

/* Of elements [lo, lo + n) of a box, row-major at p, of a tensor of shape `whole`. */
uint64_t state_sum(const struct shape *whole, const struct region *box, enum dtype dtype, int64_t lo, int64_t n,
                   const void *p);

#endif
