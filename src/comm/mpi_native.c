/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_native.c: the library's own collectives as one more algorithm. */
#include <mpi.h>
#include <string.h>

#include "base/mem.h"
#include "comm/mpi_inside.h"

static MPI_Datatype type_of(enum dtype t)
{
    switch (t) {
    case DT_F32: return MPI_FLOAT;
    case DT_F64: return MPI_DOUBLE;
    case DT_I32: return MPI_INT32_T;
    case DT_I64: return MPI_INT64_T;
    case DT_U8: return MPI_BYTE;
    default: return MPI_UINT16_T; /* moved only */
    }
}

static MPI_Op op_of(enum comm_red r) { return r == COMM_MAX ? MPI_MAX : r == COMM_MIN ? MPI_MIN : MPI_SUM; }

/* counts and displacements of pieces, for calls that take ints. */
static void ints(int *counts, int *at, const int64_t *from, int size)
{
    for (int p = 0; p < size; p++) {
        counts[p] = (int)(from[p + 1] - from[p]);
        at[p] = (int)from[p];
    }
}

static int start_scatter(struct comm *c, struct op *o, MPI_Request *q)
{
    struct mpi_ranks *g = c->group;
    const struct coll *k = &o->coll;
    MPI_Datatype t = type_of(k->dtype);
    size_t each = dtype_bytes(k->dtype), need = (size_t)(k->in_at[c->rank + 1] - k->in_at[c->rank]) * each;
    char *from = (char *)(uintptr_t)o->in, *to = o->out;
    ints(g->counts, g->counts + c->size, k->in_at, c->size);
    g->copy_back = to >= from && to < from + (size_t)k->n * each; /* MPI allows no overlap */
    if (g->copy_back && need > c->tmp_bytes) {
        xfree(c->tmp);
        c->tmp = xmalloc(need);
        c->tmp_bytes = need;
    }
    to = g->copy_back ? c->tmp : to;
    return o->may_block ? MPI_Reduce_scatter(from, to, g->counts, t, op_of(k->red), g->comm)
                        : MPI_Ireduce_scatter(from, to, g->counts, t, op_of(k->red), g->comm, q);
}

static int start_gather(struct comm *c, struct op *o, MPI_Request *q)
{
    struct mpi_ranks *g = c->group;
    const struct coll *k = &o->coll;
    MPI_Datatype t = type_of(k->dtype);
    int *n = g->counts, *at = g->counts + c->size;
    ints(n, at, k->out_at, c->size);
    bool in_place = o->in == (char *)o->out + (size_t)k->out_at[c->rank] * dtype_bytes(k->dtype);
    const void *from = in_place ? MPI_IN_PLACE : o->in;
    return o->may_block ? MPI_Allgatherv(from, n[c->rank], t, o->out, n, at, t, g->comm)
                        : MPI_Iallgatherv(from, n[c->rank], t, o->out, n, at, t, g->comm, q);
}

static int start_to_all(struct comm *c, struct op *o, MPI_Request *q)
{
    struct mpi_ranks *g = c->group;
    int *n = g->counts, *at = n + c->size, *m = at + c->size, *to = m + c->size;
    MPI_Datatype t = type_of(o->coll.dtype);
    ints(n, at, o->coll.in_at, c->size);
    ints(m, to, o->coll.out_at, c->size);
    return o->may_block ? MPI_Alltoallv(o->in, n, at, t, o->out, m, to, t, g->comm)
                        : MPI_Ialltoallv(o->in, n, at, t, o->out, m, to, t, g->comm, q);
}

/* The blocking call is up to twice as fast as the other (Open MPI 4.1) and does not wait for anybody who is not there:
 * see all_alone in execute.c. Which of the two is called is the same on all ranks: they do not match each other. */
void mpi_native_start(struct comm *c, struct op *o)
{
    const struct coll *k = &o->coll;
    MPI_Comm in = ((struct mpi_ranks *)c->group)->comm;
    MPI_Datatype t = type_of(k->dtype);
    MPI_Op sum = op_of(k->red);
    MPI_Request q = MPI_REQUEST_NULL;
    bool wait = o->may_block;
    const void *from = o->in == o->out && (k->op == COMM_ALL_REDUCE || c->rank == k->root) ? MPI_IN_PLACE : o->in;
    int n = (int)k->n, rc = MPI_SUCCESS;
    ((struct mpi_ranks *)c->group)->copy_back = false;
    switch (k->op) {
    case COMM_BROADCAST:
        rc = wait ? MPI_Bcast(o->out, n, t, k->root, in) : MPI_Ibcast(o->out, n, t, k->root, in, &q);
        break;
    case COMM_REDUCE:
        rc = wait ? MPI_Reduce(from, o->out, n, t, sum, k->root, in)
                  : MPI_Ireduce(from, o->out, n, t, sum, k->root, in, &q);
        break;
    case COMM_ALL_REDUCE:
        rc = wait ? MPI_Allreduce(from, o->out, n, t, sum, in) : MPI_Iallreduce(from, o->out, n, t, sum, in, &q);
        break;
    case COMM_REDUCE_SCATTER: rc = start_scatter(c, o, &q); break;
    case COMM_ALL_GATHER: rc = start_gather(c, o, &q); break;
    case COMM_ALL_TO_ALL: rc = start_to_all(c, o, &q); break;
    default: CHECK(false, "%s is not the library's", comm_op_name(k->op));
    }
    mpi_fail(c, rc, &o->desc, "collective");
    o->native = handle_of(q);
}

bool mpi_native_test(struct comm *c, struct op *o)
{
    struct mpi_ranks *g = c->group;
    MPI_Request q = request_of(o->native);
    int done = 0, rc = MPI_Test(&q, &done, MPI_STATUS_IGNORE);
    o->native = handle_of(q);
    mpi_fail(c, rc, &o->desc, "collective");
    if (rc != MPI_SUCCESS || !done) return false;
    const int64_t *at = o->coll.in_at;
    if (g->copy_back) memcpy(o->out, c->tmp, (size_t)(at[c->rank + 1] - at[c->rank]) * dtype_bytes(o->coll.dtype));
    g->copy_back = false;
    return true;
}
