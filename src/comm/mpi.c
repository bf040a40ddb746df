/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c: ranks are processes that a launcher started. The only file that knows MPI.
 *
 * MPI serves three ends: messages for the algorithms (tagged sends and receives that never block), windows of shared
 * memory for the ranks of one host (the board; per group a meeting place and stages, see staged.c), and the library's
 * own collectives as one more algorithm. MPI is called by one thread at a time: the rank's, or the engine's when
 * progress has a thread of its own.
 *
 * Counts: a message is at most 1 GiB; execute.c splits longer ones, so counts beyond 2^31 need nothing special. Errors
 * of the library are returned, not fatal: they become the world's cause. A rank that gives up calls MPI_Abort, the one
 * thing that reaches ranks on other hosts; the first cause is printed before that, once a host.
 */
#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/blocks.h"
#include "comm/host.h"
#include "comm/mpi_inside.h"
#include "comm/staged.h"

#define MESSAGE_MOST ((size_t)1 << 30)
enum {
    TAG = 7,
    TAG_ROLL,
    TAG_ANSWER,
    TAG_CARD,
    TAG_GO,
    TAG_COLLECTIVE = 16,
    TAG_TURNS = 1024, /* below 32767, MPI's least bound */
    /* Of a crew's world, whose library has more: the messages of each of its groups. */
    GROUP_TURNS = 128,
    TAGS_OF_GROUP = TAG_COLLECTIVE + GROUP_TURNS * COMM_OP_N,
    TAG_GROUPS = TAG_COLLECTIVE + TAG_TURNS * COMM_OP_N
};
#define ROLL_S 5.0 /* a rank that waits looks for calls every 20 ms, unless a busy machine keeps it from that */
#define PAGE ((size_t)4096)

#if defined(OPEN_MPI)
#define LIBRARY                                                                                                        \
    "Open MPI " COMM_STR(OMPI_MAJOR_VERSION) "." COMM_STR(OMPI_MINOR_VERSION) "." COMM_STR(OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define LIBRARY "MPICH " MPICH_VERSION
#else
#define LIBRARY "MPI"
#endif

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits in the handle of struct request");

/* What a group holds. */
struct group {
    MPI_Comm comm;
    MPI_Win window; /* MPI_WIN_NULL: no common memory, or that of a crew: */
    void *memory;
    size_t memory_bytes;
    int memory_fd;      /* of who made it; -1 */
    int id;             /* of its messages among all of the world's; a crew's */
    int *counts;        /* [4 * size] of the collective that runs */
    struct desc *descs; /* [size] compared by request */
    bool copy_back;     /* the result is in c->tmp */
};

int mpi_failed(int rc, struct err *e, const char *what)
{
    if (rc == MPI_SUCCESS) return OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(rc, text, &n);
    return err_set(e, ERR_IO, "MPI: %s: %s", what, text);
}

/* A failure inside an operation. peer: a rank of c that it was about, or -1. */
static void fail_with(struct comm *c, int rc, int peer, const struct desc *d, const char *what)
{
    struct err e;
    char text[DESC_TEXT];
    if (mpi_failed(rc, &e, what) == OK) return;
    if (mpi_lost(c, rc, peer < 0 ? -1 : c->world_rank[peer], desc_print(text, d), &e)) {
        world_fail(c->w, &e);
        return;
    }
    err_prefix(&e, "rank %d: %s", c->w->rank, desc_print(text, d));
    world_fail(c->w, &e);
}

static void fail(struct comm *c, int rc, const struct desc *d, const char *what) { fail_with(c, rc, -1, d, what); }

static uint64_t handle_of(MPI_Request r)
{
    uint64_t h = 0;
    memcpy(&h, &r, sizeof r);
    return h;
}

static MPI_Request request_of(uint64_t h)
{
    MPI_Request r;
    memcpy(&r, &h, sizeof r);
    return r;
}

/* ---- messages ----------------------------------------------------------------------------------------------- */

/* Messages of different operations never meet, so ranks that disagree wait, which is found out, and do not go on with
 * wrong numbers. */
static int tag_of(const struct desc *d, int turns)
{
    return d->op == COMM_EXCHANGE ? TAG : TAG_COLLECTIVE + (int)(d->seq % turns) * COMM_OP_N + d->op;
}

static void mpi_start(struct comm *c, struct request *r)
{
    struct group *g = c->group;
    MPI_Request q;
    bool lasting = ((struct launch *)c->w->shared)->lasting;
    int tag = lasting ? TAG_GROUPS + g->id * TAGS_OF_GROUP + tag_of(r->desc, GROUP_TURNS) : tag_of(r->desc, TAG_TURNS);
    int peer = lasting ? c->world_rank[r->peer] : r->peer;
    int rc = r->send ? MPI_Isend(r->p, (int)r->bytes, MPI_BYTE, peer, tag, g->comm, &q)
                     : MPI_Irecv(r->p, (int)r->bytes, MPI_BYTE, peer, tag, g->comm, &q);
    if (rc != MPI_SUCCESS) return fail_with(c, rc, r->peer, r->desc, r->send ? "send" : "receive");
    r->handle = handle_of(q);
    r->posted = true;
}

static bool mpi_test(struct comm *c, struct request *r)
{
    MPI_Status status;
    int done = 0, n = 0, class = MPI_SUCCESS;
    if (!r->posted) return false; /* failed */
    MPI_Request q = request_of(r->handle);
    int rc = MPI_Test(&q, &done, &status);
    r->handle = handle_of(q);
    if (rc != MPI_SUCCESS) MPI_Error_class(rc, &class);
    if (rc != MPI_SUCCESS && class != MPI_ERR_TRUNCATE)
        return fail_with(c, rc, r->peer, r->desc, r->send ? "send" : "receive"), false;
    if (rc == MPI_SUCCESS && (!done || r->send)) return done;
    if (rc == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &n);
    if (rc == MPI_SUCCESS && (size_t)n == r->bytes) return true;
    struct err e;
    char text[DESC_TEXT], sent[32] = "more";
    if (rc == MPI_SUCCESS) snprintf(sent, sizeof sent, "%d bytes", n);
    err_set(&e, ERR_IO, "rank %d sends %s to rank %d, which receives %zu bytes: %s", c->world_rank[r->peer], sent,
            c->w->rank, r->bytes, desc_print(text, r->desc));
    r->posted = false;
    world_fail(c->w, &e);
    return false;
}

/* ---- the library's collectives ------------------------------------------------------------------------------ */

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
    struct group *g = c->group;
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
    struct group *g = c->group;
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
    struct group *g = c->group;
    int *n = g->counts, *at = n + c->size, *m = at + c->size, *to = m + c->size;
    MPI_Datatype t = type_of(o->coll.dtype);
    ints(n, at, o->coll.in_at, c->size);
    ints(m, to, o->coll.out_at, c->size);
    return o->may_block ? MPI_Alltoallv(o->in, n, at, t, o->out, m, to, t, g->comm)
                        : MPI_Ialltoallv(o->in, n, at, t, o->out, m, to, t, g->comm, q);
}

/* The blocking call is up to twice as fast as the other (Open MPI 4.1) and does not wait for anybody who is not there:
 * see all_alone in execute.c. Which of the two is called is the same on all ranks: they do not match each other. */
static void native_start(struct comm *c, struct op *o)
{
    const struct coll *k = &o->coll;
    MPI_Comm in = ((struct group *)c->group)->comm;
    MPI_Datatype t = type_of(k->dtype);
    MPI_Op sum = op_of(k->red);
    MPI_Request q = MPI_REQUEST_NULL;
    bool wait = o->may_block;
    const void *from = o->in == o->out && (k->op == COMM_ALL_REDUCE || c->rank == k->root) ? MPI_IN_PLACE : o->in;
    int n = (int)k->n, rc = MPI_SUCCESS;
    ((struct group *)c->group)->copy_back = false;
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
    fail(c, rc, &o->desc, "collective");
    o->native = handle_of(q);
}

static bool native_test(struct comm *c, struct op *o)
{
    struct group *g = c->group;
    MPI_Request q = request_of(o->native);
    int done = 0, rc = MPI_Test(&q, &done, MPI_STATUS_IGNORE);
    o->native = handle_of(q);
    fail(c, rc, &o->desc, "collective");
    if (rc != MPI_SUCCESS || !done) return false;
    const int64_t *at = o->coll.in_at;
    if (g->copy_back) memcpy(o->out, c->tmp, (size_t)(at[c->rank + 1] - at[c->rank]) * dtype_bytes(o->coll.dtype));
    g->copy_back = false;
    return true;
}

/* ---- comparing, for groups across hosts --------------------------------------------------------------------- */

static bool mpi_compare(struct comm *c, struct op *o)
{
    struct group *g = c->group;
    if (!o->at_work) {
        o->at_work = 1;
        MPI_Request q;
        int rc = MPI_Iallgather(&o->desc, (int)sizeof o->desc, MPI_BYTE, g->descs, (int)sizeof o->desc, MPI_BYTE,
                                g->comm, &q);
        fail(c, rc, &o->desc, "comparison");
        o->native = handle_of(q);
    }
    MPI_Request q = request_of(o->native);
    int done = 0, rc = MPI_Test(&q, &done, MPI_STATUS_IGNORE);
    o->native = handle_of(q);
    fail(c, rc, &o->desc, "comparison");
    if (rc != MPI_SUCCESS || !done) return false;
    o->at_work = 0;
    for (int r = 1; r < c->size; r++) {
        struct err e;
        if (desc_compare(&g->descs[0], c->world_rank[0], &g->descs[r], c->world_rank[r], &e) == OK) continue;
        world_fail(c->w, &e);
        return false;
    }
    return true;
}

/* Ranks that wait for something answer whoever asks for their group: with what they are in there, or elsewhere. */
static void mpi_answer(struct world *w)
{
    struct launch *l = w->shared;
    struct err e;
    if (l->lasting && mpi_broken(w, &e)) world_fail(w, &e);
    if (l->lasting && board_failed(w->board)) return;
    for (int asked = 1; asked;) {
        MPI_Status from;
        char group[DESC_GROUP];
        struct desc d;
        if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_ROLL, l->world, &asked, &from) != MPI_SUCCESS || !asked) return;
        MPI_Recv(group, DESC_GROUP, MPI_CHAR, from.MPI_SOURCE, TAG_ROLL, l->world, MPI_STATUS_IGNORE);
        board_running(w->board, w->row, group, &d);
        MPI_Send(&d, (int)sizeof d, MPI_BYTE, from.MPI_SOURCE, TAG_ANSWER, l->world);
    }
}

static void mpi_roll(struct comm *c, struct desc *of, bool *here)
{
    struct launch *l = c->w->shared;
    int left = c->size - 1;
    double from_s = clock_now_s();
    struct away away = {0};
    for (int r = 0; r < c->size; r++) {
        here[r] = r == c->rank;
        if (r != c->rank) MPI_Send(c->name, DESC_GROUP, MPI_CHAR, c->world_rank[r], TAG_ROLL, l->world);
    }
    for (; left && away.last_s - away.lost_s < from_s + ROLL_S; clock_sleep_s(1e-3)) {
        MPI_Status from;
        struct desc d;
        int there = 0;
        mpi_answer(c->w);
        board_beat(c->w->board, c->w->row);
        away_look(&away, clock_now_s());
        while (MPI_Iprobe(MPI_ANY_SOURCE, TAG_ANSWER, l->world, &there, &from) == MPI_SUCCESS && there) {
            MPI_Recv(&d, (int)sizeof d, MPI_BYTE, from.MPI_SOURCE, TAG_ANSWER, l->world, MPI_STATUS_IGNORE);
            for (int r = 0; r < c->size; r++)
                if (c->world_rank[r] == from.MPI_SOURCE && !here[r]) here[r] = true, of[r] = d, left--;
        }
    }
}

/* ---- groups -------------------------------------------------------------------------------------------------- */

/* Both libraries lay windows into files there, as long as it has a byte: MPICH without asking for room, so that the
 * first touch of a page too many ends the process with SIGBUS; Open MPI fails with MPI_ERR_INTERN. Where there is no
 * such folder, or the library was told to use another, the library's own answer must do. */
#define SHM "/dev/shm"
static long long shm_room(void)
{
    struct statvfs v;
    bool elsewhere = getenv("OMPI_MCA_osc_sm_backing_store") || getenv("OMPI_MCA_osc_sm_backing_directory");
    if (elsewhere || statvfs(SHM, &v)) return LLONG_MAX;
    return (long long)v.f_bavail * (long long)v.f_frsize;
}

/* Memory that the ranks of a communicator of one host see, page-aligned: windows are mapped by pages, so what a rank
 * skips to align is the same for all. */
static int window_new(MPI_Comm comm, size_t bytes, MPI_Win *win, void **p, struct err *e)
{
    int rank, unit;
    MPI_Aint size;
    void *mine, *first;
    MPI_Comm_rank(comm, &rank);
    long long room = rank == 0 ? shm_room() : 0;
    int rc = MPI_Bcast(&room, 1, MPI_LONG_LONG, 0, comm);
    if (rc == MPI_SUCCESS && room < (long long)(bytes + PAGE))
        return err_set(e, ERR_MEMORY,
                       "shared memory for the ranks of a host: wanted %lld KiB, %s has %lld KiB free; make it larger "
                       "(docker run --shm-size=1g, mount -o remount,size=1g %s) or remove what was left there",
                       (long long)(bytes + PAGE) / 1024, SHM, room / 1024, SHM);
    if (rc == MPI_SUCCESS)
        rc = MPI_Win_allocate_shared(rank == 0 ? (MPI_Aint)(bytes + PAGE) : 0, 1, MPI_INFO_NULL, comm, &mine, win);
    if (rc == MPI_SUCCESS) rc = MPI_Win_shared_query(*win, 0, &size, &unit, &first);
    if (rc == MPI_SUCCESS) *p = (void *)(((uintptr_t)first + PAGE - 1) / PAGE * PAGE);
    return mpi_failed(rc, e, "shared memory");
}

static bool one_host(const struct comm *c)
{
    for (int r = 1; r < c->size; r++)
        if (c->host[r] != c->host[0]) return false;
    return true;
}

/* What the ranks of a group tell its first before the library makes it. */
struct card {
    char name[DESC_GROUP];
    int32_t size;
    uint32_t pad;
    uint64_t ranks; /* hash64 of the list */
};

/* What it says to them. Of a crew: which messages are theirs, and where the memory is that they have in common. */
struct go {
    int32_t yes, id;
    int64_t pid, fd; /* fd -1: none */
};

/* False when the requests have waited too long, or the job has failed. Whoever asks for us is answered meanwhile. */
static bool all_come(struct comm *c, MPI_Request *q, int n, double timeout_s)
{
    int first = 0; /* that is not done */
    struct away away = {0};
    for (double from = clock_now_s();; clock_sleep_s(1e-4)) {
        for (int done = 1; first < n && done; first += done)
            if (MPI_Test(&q[first], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (first == n) return true;
        mpi_answer(c->w);
        board_beat(c->w->board, c->w->row);
        away_look(&away, clock_now_s());
        if (board_failed(c->w->board)) return false;
        if (away.last_s - from - away.lost_s > timeout_s && late_may(c->w, "ranks wait for others to make a group"))
            return false;
    }
}

static bool cards_differ(const struct card *card, int n)
{
    for (int r = 1; r < n; r++)
        if (memcmp(&card[r], &card[0], sizeof *card)) return true;
    return false;
}

/* Which of the ranks did not come, or came with another list. */
static int refuse_cards(const struct comm *c, const struct card *card, MPI_Request *q, const char *ranks, struct err *e)
{
    struct str away = {0};
    int rc = OK;
    for (int r = 1; r < c->size; r++) {
        int there = 0;
        if (MPI_Test(&q[r - 1], &there, MPI_STATUS_IGNORE) == MPI_SUCCESS && !there)
            str_printf(&away, "%s%d", away.n ? ", " : "", c->world_rank[r]);
        else if (!rc && memcmp(&card[r], &card[0], sizeof *card))
            rc = err_set(e, ERR_IO,
                         "rank %d comes to group %s with other ranks than rank %d, which has %s (%d ranks; there: "
                         "group %.*s of %d)",
                         c->world_rank[r], c->name, c->w->rank, ranks, c->size, DESC_GROUP, card[r].name,
                         (int)card[r].size);
    }
    if (!rc && away.n)
        rc = err_set(e, ERR_IO, "group %s (ranks %s): after %.2f s (comm.timeout_s) rank%s %s did not come to make it",
                     c->name, ranks, world_timeout(c->w, false), strchr(str_text(&away), ',') ? "s" : "",
                     str_text(&away));
    str_free(&away);
    return rc;
}

/* Making a group waits inside the library, for ever if a rank does not come or has another list. So its ranks meet
 * first, in messages that are timed: each hands its list to the first of them, which lets all go on. After a failure
 * the requests stay as they are: the library may still look at what they point to. */
static int meet_first(struct comm *c, struct go *told, struct err *e)
{
    struct launch *l = c->w->shared;
    struct str ranks = {0};
    int n = c->size, rc = OK;
    if (n == 1 || (c->w->n_comms == 0 && !l->lasting)) return OK; /* all ranks came to make the world */
    struct go *go = xcalloc(1, sizeof *go);
    *go = *told;
    struct card *card = xcalloc((size_t)n, sizeof *card);
    MPI_Request *q = xcalloc((size_t)n, sizeof *q);
    *card = (struct card){.size = n, .ranks = hash64(c->world_rank, (size_t)n * sizeof *c->world_rank)};
    snprintf(card->name, sizeof card->name, "%s", c->name);
    for (int r = 0; r < n; r++) str_printf(&ranks, "%s%d", r ? ", " : "", c->world_rank[r]);
    if (c->rank == 0) {
        for (int r = 1; r < n; r++)
            MPI_Irecv(&card[r], (int)sizeof *card, MPI_BYTE, c->world_rank[r], TAG_CARD, l->world, &q[r - 1]);
        if (!all_come(c, q, n - 1, world_timeout(c->w, false)) || cards_differ(card, n))
            rc = refuse_cards(c, card, q, str_text(&ranks), e);
        go->yes = !rc;
        for (int r = 1; !rc && r < n; r++)
            MPI_Isend(go, (int)sizeof *go, MPI_BYTE, c->world_rank[r], TAG_GO, l->world, &q[r - 1]);
        if (!rc && !all_come(c, q, n - 1, world_timeout(c->w, false))) rc = comm_status(c, e);
    } else {
        double most_s = world_timeout(c->w, false),
               longer = most_s + (most_s < 8 ? most_s / 4 : 2); /* the first knows better */
        MPI_Isend(card, (int)sizeof *card, MPI_BYTE, c->world_rank[0], TAG_CARD, l->world, &q[0]);
        MPI_Irecv(go, (int)sizeof *go, MPI_BYTE, c->world_rank[0], TAG_GO, l->world, &q[1]);
        if (!all_come(c, q, 2, longer) && !(rc = comm_status(c, e)))
            rc = err_set(e, ERR_IO,
                         "group %s (ranks %s): after %.2f s (comm.timeout_s) rank %d, the first of them, did not come "
                         "to make it",
                         c->name, str_text(&ranks), longer, c->world_rank[0]);
    }
    if (rc && l->lasting && !board_failed(c->w->board)) rc = mpi_broken(c->w, e) ? ERR_LOST : rc;
    if (rc) world_fail(c->w, e);
    str_free(&ranks);
    if (rc) return comm_status(c, e);
    *told = *go;
    xfree(card);
    xfree(q);
    xfree(go);
    return OK;
}

static int mpi_join(struct comm *c, struct err *e)
{
    struct launch *l = c->w->shared;
    int met = meet_first(c, &(struct go){0}, e);
    if (met) return met;
    struct group *g = xcalloc(1, sizeof *g);
    MPI_Group all, some;
    MPI_Comm_group(l->world, &all);
    MPI_Group_incl(all, c->size, c->world_rank, &some);
    int rc = mpi_failed(MPI_Comm_create_group(l->world, some, TAG, &g->comm), e, "a group");
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    g->window = MPI_WIN_NULL;
    if (!rc) MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
    void *p = NULL;
    if (!rc && one_host(c)) {
        c->stage_bytes = STAGE_MPI;
        size_t bytes = (staged_bytes(c->size, c->stage_bytes) + 63) / 64 * 64;
        rc = window_new(g->comm, bytes + meet_pieces_bytes(c->size), &g->window, &p, e);
        c->meet = p;
        c->pieces = (int64_t *)(void *)((char *)p + bytes);
        if (!rc && c->rank == 0) staged_init(c->meet, c->size);
        if (!rc) MPI_Barrier(g->comm);
    }
    g->counts = xcalloc(4 * (size_t)c->size, sizeof *g->counts);
    g->descs = xcalloc((size_t)c->size, sizeof *g->descs);
    c->group = g;
    return rc;
}

static void mpi_leave(struct comm *c)
{
    struct group *g = c->group;
    bool well = !board_failed(c->w->board); /* else the others may never come */
    if (well && g->window != MPI_WIN_NULL) MPI_Win_free(&g->window);
    if (well) MPI_Comm_free(&g->comm);
    xfree(g->counts);
    xfree(g->descs);
    xfree(g);
}

/* ---- groups of a crew's world --------------------------------------------------------------------------------- */

/* What the ranks of a group of one host have in common begins with the number of those that see it. */
static size_t common_bytes(const struct comm *c)
{
    return 64 + (staged_bytes(c->size, STAGE_MPI) + 63) / 64 * 64 + meet_pieces_bytes(c->size);
}

static void lay_out(struct comm *c, void *p)
{
    char *at = (char *)p + 64;
    c->stage_bytes = STAGE_MPI;
    c->meet = (struct meet *)(void *)at;
    c->pieces = (int64_t *)(void *)(at + (staged_bytes(c->size, STAGE_MPI) + 63) / 64 * 64);
}

/* Its maker may close it when all see it. */
static int all_see(struct comm *c, struct group *g, struct err *e)
{
    atomic_int *seen = g->memory;
    struct away away = {0};
    if (g->memory_fd < 0) return atomic_fetch_add(seen, 1), OK;
    for (double from = clock_now_s(); atomic_load(seen) < c->size - 1; clock_sleep_s(1e-4)) {
        mpi_answer(c->w);
        board_beat(c->w->board, c->w->row);
        if (board_failed(c->w->board)) return comm_status(c, e);
        away_look(&away, clock_now_s());
        if (away.last_s - from - away.lost_s > c->w->cfg.timeout_s)
            return err_set(e, ERR_IO, "group %s: after %.2f s (comm.timeout_s) only %d of %d ranks see its memory",
                           c->name, c->w->cfg.timeout_s, atomic_load(seen) + 1, c->size);
    }
    return OK;
}

static int lasting_join(struct comm *c, struct err *e)
{
    struct launch *l = c->w->shared;
    struct group *g = xcalloc(1, sizeof *g);
    struct go go = {.fd = -1, .pid = getpid()};
    bool common = one_host(c), makes = c->rank == 0;
    *g = (struct group){.comm = l->world, .window = MPI_WIN_NULL, .memory_fd = -1, .memory_bytes = common_bytes(c)};
    if (makes) go.id = c->w->rank * WORLD_COMMS + l->led++ % WORLD_COMMS;
    if (makes && common) {
        g->memory = blocks_memory_new(g->memory_bytes, &g->memory_fd);
        go.fd = g->memory_fd;
        if (g->memory) {
            lay_out(c, g->memory);
            staged_init(c->meet, c->size);
        }
    }
    c->group = g;
    int rc = meet_first(c, &go, e);
    g->id = go.id;
    if (!rc && common && !makes && go.fd >= 0) {
        g->memory = blocks_memory_see(go.pid, go.fd, g->memory_bytes);
        if (g->memory) lay_out(c, g->memory);
    }
    if (!rc && common && !g->memory)
        rc = err_set(e, ERR_MEMORY, "group %s: no memory that its %d ranks have in common (memfd, /proc/PID/fd)",
                     c->name, c->size);
    if (!rc && common) rc = all_see(c, g, e);
    if (!rc) return OK;
    world_fail(c->w, e);
    c->meet = NULL;
    blocks_memory_free(g->memory, g->memory_bytes, g->memory_fd);
    xfree(g);
    return comm_status(c, e);
}

static void lasting_leave(struct comm *c)
{
    struct group *g = c->group;
    blocks_memory_free(g->memory, g->memory_bytes, g->memory_fd);
    xfree(g);
}

#define QUIET_S 20.0

/* Messages that are under way write into buffers which are about to be given up. A world that is revoked completes
 * them, with an error. */
static void lasting_quiet(struct world *w)
{
    mpi_revoke(w);
    for (int i = 0; i < w->n_comms; i++)
        for (int k = 0; k < COMM_RING; k++) {
            struct op *o = &w->comms[i]->ring[k];
            double until = clock_now_s() + QUIET_S;
            for (int n = 0; n < o->n_req; n++) {
                struct request *r = &o->req[n];
                MPI_Request q = request_of(r->handle);
                for (int done = !r->posted || r->done; !done && clock_now_s() < until;)
                    if (MPI_Test(&q, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) done = 1;
                r->posted = false;
            }
            if (clock_now_s() < until) continue;
            log_error("rank %d: a message of '%s' does not end, though its world has: going on would overwrite memory",
                      w->rank, o->desc.what);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

static void lasting_die(struct world *w)
{
    (void)w;
    raise(SIGKILL);
}

static bool has_window(const struct comm *c) { return c->meet != NULL; }

/* ---- the world ------------------------------------------------------------------------------------------------ */

enum { TOLD_NOT, TOLD_BEGUN, TOLD_AGAIN, TOLD_WHOLE };
#define LAST_WORDS_S 6.0

/* The cause is said and the recorder on disk, however long a busy machine lets those wait who do it: our end would be
 * theirs. False: they may have been killed meanwhile. */
static bool words_done(struct board *b)
{
    for (double from = clock_now_s(); atomic_load(&b->told) != TOLD_WHOLE || !atomic_load(&b->kept);
         clock_sleep_s(0.01))
        if (clock_now_s() - from > LAST_WORDS_S) return false;
    return true;
}

/* If nobody has taken it over from `told`. */
static void speak(struct board *b, int told, const struct err *cause)
{
    if (!atomic_compare_exchange_strong(&b->told, &told, told + 1)) return;
    log_error("%s", cause->text);
    atomic_store(&b->told, TOLD_WHOLE);
}

/* The first rank of a host to get here speaks; the others give it time to, and one of them speaks where it does not. */
static void mpi_abort(struct world *w, const struct err *why)
{
    (void)why; /* the board has the first cause */
    struct err cause;
    int rank;
    board_cause(w->board, &cause, &rank);
    speak(w->board, TOLD_NOT, &cause);
    if (!words_done(w->board)) speak(w->board, TOLD_BEGUN, &cause);
    clock_sleep_s(0.1); /* launchers drop what they have not read yet */
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void mpi_close(struct world *w)
{
    struct launch *l = w->shared;
    if (board_failed(w->board)) {
        struct err cause;
        int rank;
        board_cause(w->board, &cause, &rank);
        mpi_abort(w, &cause);
    }
    board_leave(w->board, w->row);
    blocks_free(w->blocks);
    MPI_Win_free(&l->board);
    MPI_Comm_free(&l->host);
    MPI_Comm_free(&l->world);
    MPI_Finalize();
    xfree(l);
}

static const struct transport_ops transport_mpi = {
    .name = "mpi",
    .max_message = MESSAGE_MOST,
    .own_collectives = true,
    .join = mpi_join,
    .leave = mpi_leave,
    .start = mpi_start,
    .test = mpi_test,
    .shared_may = has_window,
    .prepare = host_prepare,
    .shared = host_work,
    .behind = host_behind,
    .compare = mpi_compare,
    .roll = mpi_roll,
    .answer = mpi_answer,
    .native_start = native_start,
    .native_test = native_test,
    .abort = mpi_abort,
    .close = mpi_close,
};

static void lasting_close(struct world *w)
{
    struct launch *l = w->shared;
    board_leave(w->board, w->row);
    blocks_free(w->blocks);
    blocks_memory_free(l->memory, l->memory_bytes, -1);
    xfree(l);
}

const struct transport_ops mpi_lasting = {
    .name = "mpi",
    .max_message = MESSAGE_MOST,
    .join = lasting_join,
    .leave = lasting_leave,
    .start = mpi_start,
    .test = mpi_test,
    .shared_may = has_window,
    .prepare = host_prepare,
    .shared = host_work,
    .behind = host_behind,
    .roll = mpi_roll,
    .answer = mpi_answer,
    .abort = mpi_abort,
    .quiet = lasting_quiet,
    .die = lasting_die,
    .close = lasting_close,
};

const char *comm_mpi_name(void) { return LIBRARY; }

/* Up to the first comma or line end of what the library says, in one spelling of the blanks: "Open MPI v4.1.4", "MPICH
 * Version: 4.0.2". */
void comm_mpi_library(char out[64])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n = 0, k = 0;
    MPI_Get_library_version(text, &n);
    for (const char *p = text; *p && *p != ',' && *p != '\n' && k < 63; p++) {
        bool blank = *p == ' ' || *p == '\t';
        if (!blank || (k && out[k - 1] != ' ')) out[k++] = blank ? ' ' : *p;
    }
    out[k] = 0;
}

int mpi_initialise(const struct comm_config *cfg, bool *one_thread, struct err *e)
{
    int have = 0;
    MPI_Initialized(&have);
    if (have) return err_set(e, ERR_REQUEST, "the world of the launcher can be made once");
    int rc = mpi_failed(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &have), e, "start");
    *one_thread = have < MPI_THREAD_SERIALIZED;
    if (!rc && *one_thread && cfg && cfg->progress == COMM_THREAD)
        rc = err_set(e, ERR_REQUEST, "%s allows no calls from a second thread: set comm.progress to inline",
                     comm_mpi_name());
    return rc;
}

/* Each rank's host, as the lowest world rank there; and its row on the board. */
static void find_hosts(const struct launch *l, int size, int *host, int *row)
{
    int here, first, mine[2], *all = xcalloc(2 * (size_t)size, sizeof *all);
    MPI_Comm_rank(l->world, &first);
    MPI_Comm_rank(l->host, &here);
    MPI_Bcast(&first, 1, MPI_INT, 0, l->host);
    mine[0] = first;
    mine[1] = here;
    MPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, l->world);
    for (int r = 0; r < size; r++) {
        host[r] = all[2 * r];
        row[r] = host[r] == first ? all[2 * r + 1] : -1;
    }
    xfree(all);
}

/* Launchers bind processes to cores, or leave them all to all of them. */
static int count_sharers(const struct launch *l, int here)
{
    struct cores mine, *all = xcalloc((size_t)here, sizeof *all);
    int n = 0;
    cores_of(0, &mine);
    MPI_Allgather(mine.word, CORES_MOST / 64, MPI_UINT64_T, all, CORES_MOST / 64, MPI_UINT64_T, l->host);
    for (int i = 0; i < here; i++) n += cores_common(&mine, &all[i], NULL) > 0;
    xfree(all);
    return n;
}

/* Do the processes of this host see each other's blocks? Found out once, together: operations have no time to
 * disagree. */
static void show_blocks(struct world *w, void *tables, int here)
{
    struct launch *l = w->shared;
    struct err e = {0};
    w->blocks = blocks_new(tables, here, w->row, w->board);
    MPI_Barrier(l->host);
    int works = blocks_try(w->blocks, &e) == OK, all = 0;
    if (MPI_Allreduce(&works, &all, 1, MPI_INT, MPI_MIN, l->host) != MPI_SUCCESS) all = 0;
    blocks_use(w->blocks, all);
    if (!works) log_debug("rank %d: %s: collectives copy through stages", w->rank, e.text);
    else if (w->row == 0)
        log_debug("processes of this host %s", all ? "see each other's buffers" : "copy through stages");
}

int comm_world_mpi(struct comm **out, const struct comm_config *cfg, struct err *e)
{
    if (!comm_launched())
        return err_set(e, ERR_REQUEST, "no launcher started this process: mpirun -np N tutti ..., or tutti train -n N");
    int rc = comm_config_check(cfg, e), rank, size, here;
    bool one_thread = false;
    if (!rc) rc = mpi_initialise(cfg, &one_thread, e);
    if (rc) return rc;
    struct launch *l = xcalloc(1, sizeof *l);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &l->world);
    MPI_Comm_set_errhandler(l->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(l->world, &rank);
    MPI_Comm_size(l->world, &size);
    MPI_Comm_split_type(l->world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &l->host);
    if (cfg && cfg->ranks_per_host > 0) {
        MPI_Comm real = l->host;
        MPI_Comm_split(real, rank / cfg->ranks_per_host, rank, &l->host);
        MPI_Comm_free(&real);
    }
    MPI_Comm_size(l->host, &here);
    int *host = xcalloc((size_t)size, sizeof *host), *row = xcalloc((size_t)size, sizeof *row);
    find_hosts(l, size, host, row);
    void *board = NULL;
    size_t board_end = (board_bytes(here) + 63) / 64 * 64;
    rc = window_new(l->host, board_end + blocks_table_bytes(here), &l->board, &board, e);
    if (!rc) {
        if (host[rank] == rank) board_init(board, here);
        MPI_Barrier(l->host);
        struct world *w = world_new(&transport_mpi, l, board, rank, size, host, count_sharers(l, here), cfg);
        w->row = row[rank];
        board_enter(board, w->row, rank);
        w->row_of = row;
        w->one_thread = one_thread;
        if (here > 1) show_blocks(w, (char *)board + board_end, here);
        int *all = xcalloc((size_t)size, sizeof *all);
        for (int r = 0; r < size; r++) all[r] = r;
        rc = world_comm(out, w, all, size, "world", e);
        xfree(all);
    } else {
        xfree(row);
    }
    xfree(host);
    return rc;
}
