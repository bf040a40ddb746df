/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c: ranks are processes that a launcher started. Only this file and those beside it (mpi_*.c) know MPI.
 *
 * MPI serves three ends: messages for the algorithms (tagged sends and receives that never block), windows of shared
 * memory for the ranks of one host (the board; per group a meeting place and stages, see staged.c: mpi_groups.c), and
 * the library's own collectives as one more algorithm (mpi_native.c). MPI is called by one thread at a time: the
 * rank's, or the engine's when progress has a thread of its own.
 *
 * Counts: a message is at most 1 GiB; execute.c splits longer ones, so counts beyond 2^31 need nothing special. Errors
 * of the library are returned, not fatal: they become the world's cause. A rank that gives up calls MPI_Abort, the one
 * thing that reaches ranks on other hosts; the first cause is printed before that, once a host.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/blocks.h"
#include "comm/host.h"
#include "comm/mpi_inside.h"

#define MESSAGE_MOST ((size_t)1 << 30)
#define ROLL_S 5.0 /* a rank that waits looks for calls every 20 ms, unless a busy machine keeps it from that */

#if defined(OPEN_MPI)
#define LIBRARY                                                                                                        \
    "Open MPI " COMM_STR(OMPI_MAJOR_VERSION) "." COMM_STR(OMPI_MINOR_VERSION) "." COMM_STR(OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define LIBRARY "MPICH " MPICH_VERSION
#else
#define LIBRARY "MPI"
#endif

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

void mpi_fail(struct comm *c, int rc, const struct desc *d, const char *what) { fail_with(c, rc, -1, d, what); }

/* ---- messages ----------------------------------------------------------------------------------------------- */

/* Messages of different operations never meet, so ranks that disagree wait, which is found out, and do not go on with
 * wrong numbers. */
static int tag_of(const struct desc *d, int turns)
{
    return d->op == COMM_EXCHANGE ? TAG : TAG_COLLECTIVE + (int)(d->seq % turns) * COMM_OP_N + d->op;
}

static void mpi_start(struct comm *c, struct request *r)
{
    struct mpi_ranks *g = c->group;
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

/* ---- comparing, for groups across hosts --------------------------------------------------------------------- */

static bool mpi_compare(struct comm *c, struct op *o)
{
    struct mpi_ranks *g = c->group;
    if (!o->at_work) {
        o->at_work = 1;
        MPI_Request q;
        int rc = MPI_Iallgather(&o->desc, (int)sizeof o->desc, MPI_BYTE, g->descs, (int)sizeof o->desc, MPI_BYTE,
                                g->comm, &q);
        mpi_fail(c, rc, &o->desc, "comparison");
        o->native = handle_of(q);
    }
    MPI_Request q = request_of(o->native);
    int done = 0, rc = MPI_Test(&q, &done, MPI_STATUS_IGNORE);
    o->native = handle_of(q);
    mpi_fail(c, rc, &o->desc, "comparison");
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

void mpi_answer(struct world *w)
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

/* ---- what only a crew's world does -------------------------------------------------------------------------- */

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
    .native_start = mpi_native_start,
    .native_test = mpi_native_test,
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
    .join = mpi_lasting_join,
    .leave = mpi_lasting_leave,
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
    if (!rc) mpi_stay();
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
    rc = mpi_window_new(l->host, board_end + blocks_table_bytes(here), &l->board, &board, e);
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
