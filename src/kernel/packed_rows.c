/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix in few bits becomes numbers: as a call of the operation table. */
#include "kernel/packed_rows.h"

static struct view matrix(const void *p, enum dtype t, int64_t rows, int64_t cols)
{
    return (struct view){.p = (void *)(uintptr_t)p, .dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
}

struct kernel_call packed_call(const struct packed_args *a)
{
    struct kernel_call c = {.op = OP_UNPACK, .phase = KERNEL_FWD, .n_in = 2 + (a->groups != NULL), .n_out = 1};
    c.at = ATTRS(packed, .packing = a->packing, .rows = a->rows, .cols = a->cols, .first = a->first,
                 .row_blocks = a->row_blocks, .to = a->t);
    c.in[0] = matrix(a->codes, DT_U8, a->rows, packing_row_bytes(a->packing, a->cols));
    c.in[1] = matrix(a->scales, DT_U8, a->rows, packing_row_blocks(a->packing, a->cols));
    if (a->groups) c.in[2] = matrix(a->groups, DT_F32, 1, a->n_groups);
    c.out[0] = matrix(a->x, a->t, a->rows, a->cols);
    return c;
}

struct packed_args packed_of(const struct kernel_call *c)
{
    const struct packed_attrs *at = at_packed(&c->at);
    return (struct packed_args){.packing = at->packing,
                                .rows = at->rows,
                                .cols = at->cols,
                                .first = at->first,
                                .row_blocks = at->row_blocks,
                                .codes = c->in[0].p,
                                .scales = c->in[1].p,
                                .groups = c->in[2].p,
                                .n_groups = c->n_in > 2 ? c->in[2].n[1] : 0,
                                .x = c->out[0].p,
                                .t = c->out[0].dtype};
}

void packed_unpack(struct stream *s, const struct packed_args *a)
{
    struct kernel_call c = packed_call(a);
    if (a->rows && a->cols) kernel_enqueue(s, &c);
}
