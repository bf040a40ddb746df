/* SPDX-License-Identifier: Apache-2.0 */
/* host.c: which way an operation between processes of one host goes.
 *
 * A rank brings the names of its buffers to the meeting if they lie in blocks and the vector is large. Then every rank
 * has the same seats before it and comes to the same answer: all named, one pass (meet_work.c); one not, stages for
 * all. Small vectors are faster through stages, whose first round goes in before ranks meet; a rank that has put it in
 * brings no names. A rank that brought names in vain puts it in after the meeting.
 *
 * All ranks of a host found out before their first operation whether blocks can be seen (mpi.c). Where it goes wrong
 * later, the system has run out of something, and that is the job's error.
 */
#include "comm/host.h"

#include "comm/blocks.h"
#include "comm/staged.h"

#define NAMED_FROM ((int64_t)16 << 10) /* bytes; about where one pass and stages take as long (bench/comm.sh) */

/* Elements of this rank's own buffers that others read or write. */
static void extent(const struct op *o, int64_t *in, int64_t *out)
{
    const struct coll *k = &o->coll;
    int me = k->rank;
    *in = *out = k->n;
    switch (k->op) {
    case COMM_BROADCAST: *in = 0; break; /* `out` is the same */
    case COMM_REDUCE: *out = me == k->root ? k->n : 0; break;
    case COMM_REDUCE_SCATTER: *out = k->in_at[me + 1] - k->in_at[me]; break;
    case COMM_ALL_GATHER: *in = k->out_at[me + 1] - k->out_at[me]; break;
    case COMM_ALL_TO_ALL:
        *in = k->in_at[k->size];
        *out = k->out_at[k->size];
        break;
    default: break;
    }
}

static bool name_buffers(struct comm *c, struct op *o)
{
    struct world *w = c->w;
    int64_t in, out, each = (int64_t)dtype_bytes(o->coll.dtype);
    if (!blocks_work(w->blocks) || w->cfg.staged) return false;
    extent(o, &in, &out);
    if ((in > out ? in : out) * each < NAMED_FROM) return false;
    o->seat_in = blocks_name(w->blocks, o->in, (size_t)(in * each));
    o->seat_out = o->seat_in ? blocks_name(w->blocks, o->out, (size_t)(out * each)) : 0;
    return o->seat_in && o->seat_out;
}

bool host_prepare(struct comm *c, struct op *o)
{
    o->named = name_buffers(c, o);
    if (o->named && o->coll.op == COMM_ALL_TO_ALL) meet_lay_out(c, o);
    if (o->named) return true;
    o->seat_in = o->seat_out = 0;
    return staged_prepare(c, o);
}

static bool all_named(struct comm *c, const struct op *o)
{
    for (int r = 0; r < c->size; r++) {
        const struct meet_seat *s = meet_seat(c->meet, o->meet, r);
        if (!s->in || !s->out) return false;
    }
    return true;
}

/* Where this process sees the buffers of all. A rank that comes late may find nothing there: others have done every
 * chunk, and the owner, whose operation is complete, has released the memory. Then it takes no chunk either. Pieces
 * differ between ranks in an all_to_all only, and there they lie in the window. */
static bool see_all(struct comm *c, struct op *o)
{
    for (int r = 0; r < c->size; r++) {
        const struct meet_seat *s = meet_seat(c->meet, o->meet, r);
        struct meeting_part *p = &c->part[r];
        struct err e = {0};
        bool mine = r == c->rank;
        int row = world_row(c->w, c->world_rank[r]), rc = OK;
        p->in = (char *)(uintptr_t)o->in;
        p->out = o->out;
        if (!mine) rc = blocks_see(c->w->blocks, row, s->in, &p->in, &e);
        if (!mine && !rc) rc = blocks_see(c->w->blocks, row, s->out, &p->out, &e);
        if (o->coll.op == COMM_ALL_TO_ALL) meet_laid_out(c, o, r);
        if (!rc) continue;
        char text[DESC_TEXT];
        err_prefix(&e, "rank %d: %s", c->w->rank, desc_print(text, &o->desc));
        world_fail(c->w, &e);
        return false;
    }
    return true;
}

bool host_work(struct comm *c, struct op *o)
{
    if (o->way == WAY_OPEN && !all_named(c, o)) o->way = WAY_STAGED;
    if (o->way == WAY_OPEN) {
        if (!see_all(c, o)) return false;
        o->way = WAY_ONE_PASS;
    }
    if (o->way == WAY_ONE_PASS) return meet_work(c, o);
    if (o->named && !staged_prepare(c, o)) return false;
    o->named = false;
    return staged_work(c, o);
}

bool host_behind(struct comm *c, int rank)
{
    int row = world_row(c->w, c->world_rank[rank]);
    return staged_behind(c, rank) || (row >= 0 && atomic_load(&c->w->board->row[row].busy));
}
