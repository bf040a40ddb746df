/* SPDX-License-Identifier: Apache-2.0 */
/* packed_read.h: matrices that a checkpoint has in few bits (state/packed.h) as numbers: groups base_codes, base_scales
 * and base_groups, and in extra.adapter.base the packing. Order: Local.
 */
#ifndef TUTTI_CHECKPOINT_PACKED_READ_H
#define TUTTI_CHECKPOINT_PACKED_READ_H

#include "checkpoint/ckpt.h"

struct packed_read;
/* NULL: it has none. ERR_CORRUPT: shapes that do not belong together, or a packing that there is not. c is borrowed;
 * numbers are rounded to `dtype`, what the run computed in. */
int packed_read_open(struct packed_read **out, struct ckpt *c, enum dtype dtype, struct err *e);
void packed_read_close(struct packed_read *r);
int64_t packed_read_count(const struct packed_read *r); /* NULL: 0 */
int64_t packed_read_find(const struct packed_read *r, const char *name);
struct ckpt_entry packed_read_at(const struct packed_read *r, int64_t i);
int packed_read_box(struct packed_read *r, int64_t i, const struct region *box, enum dtype as, void *dst,
                    struct err *e);

#endif
