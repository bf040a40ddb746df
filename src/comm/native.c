/* SPDX-License-Identifier: Apache-2.0 */
/* native.c: the transport's own collective (the MPI library's), one step. What it sends is its own affair; the ledger
 * counts it as `direct`, whose bytes are the least possible. Counts beyond 2^31-1 elements are not offered, nor
 * 16-bit floats, which MPI does not know how to add. */
#include "comm/moves.h"

bool native_write(struct moves *p, const struct coll *c)
{
    bool reduces = c->op == COMM_REDUCE || c->op == COMM_ALL_REDUCE || c->op == COMM_REDUCE_SCATTER;
    if (c->n > INT32_MAX / 8 || c->op == COMM_EXCHANGE || c->op == COMM_BARRIER) return false;
    if (c->op == COMM_ALL_TO_ALL && c->out_at[c->size] > INT32_MAX / 8) return false;
    if (reduces && (c->dtype == DT_BF16 || c->dtype == DT_F16)) return false;
    comm_moves_native(p);
    if (reduces && c->red == COMM_AVG && !(c->op == COMM_REDUCE && c->rank != c->root))
        comm_moves_scale(p, SIDE_OUT, 0,
                         c->op == COMM_REDUCE_SCATTER ? c->in_at[c->rank + 1] - c->in_at[c->rank] : c->n);
    return true;
}
