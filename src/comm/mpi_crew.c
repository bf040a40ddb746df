/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_crew.c: members that are processes of an MPI library which goes on without its dead (ULFM: user-level failure
 * mitigation, MPI Forum; Open MPI 5 under mpirun --with-ft ulfm).
 *
 *   alive   communicator of all members that are left. The end of an epoch revokes it, which wakes spares; then all
 *           agree (which works on a revoked one), and shrink it to those that are left
 *   train   communicator of an epoch's world, split off it. A rank that finds another one gone revokes it, so that all
 *           come back, whomever they wait for; all messages of all groups go over it (mpi_groups.c, mpi_lasting_join)
 *
 * A call that fails on one member may have succeeded on another. So after each step of making a world all agree whether
 * it was made, and nobody waits for one that turned back. Who is gone is the difference between `alive` before and
 * after, the same on all.
 *
 * Rejected: a communicator of the library for each group (each would have to be revoked, by members that may not all
 * have made it), and windows of the library (its one-sided part does not outlive a rank). */
#include <mpi.h>
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
#include <mpi-ext.h>
#endif
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/blocks.h"
#include "comm/crew_impl.h"
#include "comm/mpi_inside.h"

#if defined(OMPI_HAVE_MPI_EXT_FTMPI) && OMPI_HAVE_MPI_EXT_FTMPI

#define MEMBERS_MOST 16000 /* tags of their groups are below INT_MAX */
#define OTHERS "another rank found one gone"

struct mpi_crew {
    MPI_Comm alive, train; /* MPI_COMM_NULL: not at work */
    int *member;           /* [size of alive] */
    bool one_thread;
};

/* ---- what is lost, for mpi.c ---- */

bool mpi_revoked(const struct world *w)
{
    const struct launch *l = w->shared;
    int yes = 0;
    return l->lasting && MPIX_Comm_is_revoked(l->world, &yes) == MPI_SUCCESS && yes;
}

void mpi_revoke(struct world *w)
{
    struct launch *l = w->shared;
    if (!mpi_revoked(w)) MPIX_Comm_revoke(l->world);
}

/* World ranks that the library knows to be dead, as a list of numbers; how many. */
static int list_dead(MPI_Comm comm, struct str *out)
{
    MPI_Group dead, all;
    int n = 0;
    if (MPIX_Comm_get_failed(comm, &dead) != MPI_SUCCESS) return 0;
    MPI_Group_size(dead, &n);
    MPI_Comm_group(comm, &all);
    for (int i = 0, r; i < n; i++) {
        MPI_Group_translate_ranks(dead, 1, &i, all, &r);
        if (out) str_printf(out, "%s%d", i ? ", " : "", r);
    }
    MPI_Group_free(&dead);
    MPI_Group_free(&all);
    return n;
}

int mpi_lost(const struct comm *c, int rc, int world_rank, const char *doing, struct err *e)
{
    const struct launch *l = c->w->shared;
    int class = MPI_SUCCESS;
    if (!l->lasting || rc == MPI_SUCCESS) return OK;
    MPI_Error_class(rc, &class);
    if (class == MPIX_ERR_REVOKED) return err_set(e, ERR_LOST, "%s", OTHERS);
    if (class != MPIX_ERR_PROC_FAILED && class != MPIX_ERR_PROC_FAILED_PENDING) return OK;
    if (world_rank < 0) return err_set(e, ERR_LOST, "a rank is gone: its process ended: %s", doing);
    return err_set(e, ERR_LOST, "rank %d is gone: its process ended: %s", world_rank, doing);
}

int mpi_broken(const struct world *w, struct err *e)
{
    const struct launch *l = w->shared;
    if (!l->lasting) return OK;
    if (mpi_revoked(w)) return err_set(e, ERR_LOST, "%s", OTHERS);
    struct str dead = {0};
    int n = list_dead(l->world, &dead), rc = OK;
    if (n)
        rc = err_set(e, ERR_LOST, "rank%s %s %s gone: %s ended", n > 1 ? "s" : "", str_text(&dead),
                     n > 1 ? "are" : "is", n > 1 ? "their processes" : "its process");
    str_free(&dead);
    return rc;
}

/* ---- making a world ---- */

/* All have brought OK. Works also when some are dead or `alive` is revoked. */
static bool all_agree(MPI_Comm alive, bool ok)
{
    int flag = ok;
    MPIX_Comm_agree(alive, &flag); /* its own code tells only whether there are dead that were not asked about */
    return flag;
}

static int call_lost(struct err *e, const char *what)
{
    return err_set(e, ERR_LOST, "a rank is gone: its process ended while %s", what);
}

/* Hosts by lowest rank; config.ranks_per_host pretends that there are more of them. */
static void place(const struct crew *c, int per_host, int *host, int *row)
{
    for (int r = 0; r < c->at_work; r++) {
        host[r] = r;
        row[r] = 0;
        for (int p = r; p-- > 0;) {
            bool with = c->card[c->seat[p]].machine == c->card[c->seat[r]].machine;
            if (per_host > 0) with &= p / per_host == r / per_host;
            host[r] = with ? host[p] : host[r];
            row[r] += with;
        }
    }
}

struct build { /* of a world */
    struct crew *c;
    struct launch *l;
    int rank, here, *host, *row;
    struct world *w;
};

/* The board of each host, and behind it the tables of blocks. ERR_LOST; ERR_MEMORY on all ranks alike. */
static int share_memory(struct build *b, struct err *e)
{
    struct launch *l = b->l;
    int fd = -1, first = b->host[b->rank], n = b->c->at_work;
    size_t board_end = (board_bytes(b->here) + 63) / 64 * 64;
    l->memory_bytes = board_end + blocks_table_bytes(b->here);
    if (first == b->rank) l->memory = blocks_memory_new(l->memory_bytes, &fd);
    if (l->memory) board_init(l->memory, b->here);
    int64_t mine = fd, *all = xcalloc((size_t)n, sizeof *all);
    int ok = MPI_Allgather(&mine, 1, MPI_INT64_T, all, 1, MPI_INT64_T, l->world) == MPI_SUCCESS, there = 0;
    if (ok && first != b->rank && all[first] >= 0)
        l->memory = blocks_memory_see(b->c->card[b->c->seat[first]].pid, all[first], l->memory_bytes);
    int have = l->memory != NULL;
    ok = ok && MPI_Allreduce(&have, &there, 1, MPI_INT, MPI_MIN, l->world) == MPI_SUCCESS;
    if (fd >= 0) close(fd);
    xfree(all);
    if (!ok) return call_lost(e, "memory of hosts was shared");
    return there ? OK
                 : err_set(e, ERR_MEMORY, "no memory that the ranks of a host have in common (memfd, /proc/PID/fd)");
}

static int show_blocks(struct build *b, struct err *e)
{
    struct launch *l = b->l;
    struct err why = {0};
    char *tables = (char *)l->memory + (board_bytes(b->here) + 63) / 64 * 64;
    if (b->here > 1) b->w->blocks = blocks_new(tables, b->here, b->w->row, b->w->board);
    int works, all = 0, ok = MPI_Barrier(l->world) == MPI_SUCCESS;
    works = ok && (b->here == 1 || blocks_try(b->w->blocks, &why) == OK);
    ok = ok && MPI_Allreduce(&works, &all, 1, MPI_INT, MPI_MIN, l->world) == MPI_SUCCESS;
    if (b->w->blocks) blocks_use(b->w->blocks, ok && all);
    return ok ? OK : call_lost(e, "ranks of a host looked at each other's memory");
}

static int build_world(struct build *b, const struct comm_config *cfg, struct err *e)
{
    struct crew *c = b->c;
    struct mpi_crew *m = c->shared;
    int n = c->at_work, rc = share_memory(b, e);
    if (rc) return rc;
    b->w = world_new(&mpi_lasting, b->l, b->l->memory, b->rank, n, b->host, crew_sharers(c, n), cfg);
    b->w->row = b->row[b->rank];
    b->w->row_of = xcalloc((size_t)n, sizeof *b->w->row_of);
    for (int r = 0; r < n; r++) b->w->row_of[r] = b->host[r] == b->host[b->rank] ? b->row[r] : -1;
    b->w->one_thread = m->one_thread;
    board_enter(b->l->memory, b->w->row, b->rank);
    rc = show_blocks(b, e);
    int *all = xcalloc((size_t)n, sizeof *all);
    for (int r = 0; r < n; r++) all[r] = r;
    if (!rc) rc = world_comm(&c->world, b->w, all, n, "world", e);
    if (!rc && board_failed(b->w->board)) rc = comm_status(c->world, e);
    xfree(all);
    return rc;
}

/* For a member at work, over m->train. */
static int make_world(struct crew *c, const struct comm_config *cfg, struct err *e)
{
    struct mpi_crew *m = c->shared;
    size_t n = (size_t)c->at_work;
    struct launch *l = xcalloc(1, sizeof *l);
    struct build b = {.c = c, .l = l, .rank = crew_seat(c)};
    *l = (struct launch){.world = m->train, .host = MPI_COMM_NULL, .board = MPI_WIN_NULL, .lasting = true};
    b.host = xcalloc(n, sizeof *b.host);
    b.row = xcalloc(n, sizeof *b.row);
    place(c, cfg->ranks_per_host, b.host, b.row);
    for (int r = 0; r < c->at_work; r++) b.here += b.host[r] == b.host[b.rank];
    int rc = build_world(&b, cfg, e);
    if (rc && !c->world && b.w) world_free(b.w);
    else if (rc && !c->world) {
        blocks_memory_free(l->memory, l->memory_bytes, -1);
        xfree(l);
    }
    xfree(b.host);
    xfree(b.row);
    return rc;
}

static void drop_world(struct crew *c)
{
    struct err e;
    if (!c->world) return;
    err_set(&e, ERR_LOST, "%s", OTHERS);
    world_fail(c->world->w, &e); /* what is still open is given up */
    comm_free(c->world);
    c->world = NULL;
}

static int crew_mpi_world(struct crew *c, const struct comm_config *cfg, struct err *e)
{
    struct mpi_crew *m = c->shared;
    int rc = OK, seat = crew_seat(c), color = seat < c->at_work ? 0 : MPI_UNDEFINED;
    m->train = MPI_COMM_NULL;
    bool split = MPI_Comm_split(m->alive, color, seat, &m->train) == MPI_SUCCESS;
    if (!split) MPIX_Comm_revoke(m->alive);
    if (!all_agree(m->alive, split)) {
        m->train = MPI_COMM_NULL; /* some have half of it: whoever revokes it, or hears of that, ends in the library */
        return call_lost(e, "the others were gathered");
    }
    if (m->train != MPI_COMM_NULL) {
        MPI_Comm_set_errhandler(m->train, MPI_ERRORS_RETURN);
        rc = comm_config_check(cfg, e);
        if (!rc) rc = make_world(c, cfg, e);
        if (rc) MPIX_Comm_revoke(m->train);
    }
    if (all_agree(m->alive, rc == OK)) return OK;
    drop_world(c);
    return rc ? rc : call_lost(e, "a world was made");
}

/* ---- the end of an epoch ---- */

#define NAP_S 10e-3

static void crew_mpi_wait(struct crew *c)
{
    struct mpi_crew *m = c->shared;
    for (int over = 0, there; !over; clock_sleep_s(NAP_S)) {
        MPI_Iprobe(MPI_ANY_SOURCE, 0, m->alive, &there, MPI_STATUS_IGNORE); /* the library gets on */
        if (MPIX_Comm_is_revoked(m->alive, &over) != MPI_SUCCESS) return;
    }
}

/* What members know, of the first that knows more than that others know. Who finds another one gone here revokes
 * `next`, and Open MPI (5.0.11) ends with a segmentation fault in a process that hears of a revocation of what it is
 * still about to make: so nobody comes here before all are back from making it. */
static bool share_cause(struct crew *c, MPI_Comm next, int n)
{
    char *all = xcalloc((size_t)n, CREW_CAUSE);
    bool ok = MPI_Allgather(c->cause, (int)CREW_CAUSE, MPI_BYTE, all, (int)CREW_CAUSE, MPI_BYTE, next) == MPI_SUCCESS;
    if (!ok) MPIX_Comm_revoke(next);
    ok = all_agree(next, ok);
    for (int i = 0, found = 0; ok && i < n && !found; i++) {
        const char *its = all + (size_t)i * CREW_CAUSE;
        found = its[0] && strcmp(its, OTHERS) != 0;
        if (found) memcpy(c->cause, its, CREW_CAUSE);
    }
    xfree(all);
    return ok;
}

#define SETTLED_S 0.2

/* Waits until this process has heard of no other death for a while. Open MPI (5.0.11) ends with a segmentation fault in
 * a process that hears of one while it makes the communicator of those that are left, if the dead one was still counted
 * among them (it gives up what the half-made one has, which is nothing yet): a host's processes die within some
 * milliseconds of each other, and whoever began at the first would be in the midst of it at the second. */
static void settle(MPI_Comm alive)
{
    int there, known = list_dead(alive, NULL);
    for (double since = clock_now_s(); clock_now_s() - since < SETTLED_S; clock_sleep_s(NAP_S)) {
        MPI_Iprobe(MPI_ANY_SOURCE, 0, alive, &there, MPI_STATUS_IGNORE); /* the library gets on */
        int dead = list_dead(alive, NULL);
        if (dead == known) continue;
        known = dead;
        since = clock_now_s();
    }
}

/* `alive` becomes that of those that are left. */
static int shrink(struct crew *c, bool *gone, struct err *e)
{
    struct mpi_crew *m = c->shared;
    MPI_Group was, is;
    MPI_Comm next;
    int n, *at, *member;
    settle(m->alive);
    int rc = mpi_failed(MPIX_Comm_shrink(m->alive, &next), e, "shrinking to the ranks that are left");
    if (rc) return rc;
    MPI_Comm_set_errhandler(next, MPI_ERRORS_RETURN);
    (void)all_agree(next, true); /* all are back: see share_cause */
    MPI_Comm_group(m->alive, &was);
    MPI_Comm_group(next, &is);
    MPI_Comm_size(next, &n);
    at = xcalloc((size_t)n, sizeof *at);
    member = xcalloc((size_t)n, sizeof *member);
    for (int i = 0; i < n; i++) {
        MPI_Group_translate_ranks(is, 1, &i, was, &at[i]);
        member[i] = m->member[at[i]];
    }
    for (int i = 0; i < c->began; i++) gone[i] = true;
    for (int i = 0; i < n; i++) gone[member[i]] = false;
    MPI_Group_free(&was);
    MPI_Group_free(&is);
    xfree(at);
    xfree(m->member);
    m->member = member;
    MPI_Comm_free(&m->alive);
    m->alive = next;
    return OK;
}

enum { ON = 2, DONE = 1 }; /* crew.c: flags */

static int crew_mpi_over(struct crew *c, int *flags, bool *gone, struct err *e)
{
    struct mpi_crew *m = c->shared;
    int rc = OK, n = c->n;
    MPIX_Comm_revoke(m->alive); /* spares wake up */
    if (m->train != MPI_COMM_NULL && !(*flags & DONE)) MPIX_Comm_revoke(m->train);
    MPIX_Comm_agree(m->alive, flags);
    drop_world(c);
    if (m->train != MPI_COMM_NULL) MPI_Comm_free(&m->train);
    if (*flags & DONE || !(*flags & ON)) return OK;
    do {
        rc = shrink(c, gone, e);
        if (!rc) MPI_Comm_size(m->alive, &n);
    } while (!rc && !share_cause(c, m->alive, n));
    if (!rc) return OK;
    log_error("%s", e->text); /* the others may have gone on, and would wait for this one */
    MPI_Abort(MPI_COMM_WORLD, 1);
    return rc;
}

static const struct crew_ops ops_mpi = {crew_mpi_world, crew_mpi_wait, crew_mpi_over, NULL};

/* ---- the beginning ---- */

/* Whether this process was started so that it outlives others: the library says it of itself. */
static bool is_asked(void)
{
    int level, index, n, yes = 0;
    MPI_T_cvar_handle h;
    if (MPI_T_init_thread(MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) return false;
    if (MPI_T_cvar_get_index("mpi_ft_enable", &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &h, &n) == MPI_SUCCESS) {
        unsigned char value[sizeof(long long)] = {0}; /* a bool or an int, as the version has it */
        bool read = n == 1 && MPI_T_cvar_read(h, value) == MPI_SUCCESS;
        for (size_t i = 0; read && i < sizeof value; i++) yes |= value[i];
        MPI_T_cvar_handle_free(&h);
    }
    MPI_T_finalize();
    return yes != 0;
}

int crew_open_mpi(struct crew **out, int *rank, struct err *e)
{
    bool one_thread = false;
    int n, ok, rc = mpi_initialise(NULL, &one_thread, e);
    *out = NULL;
    *rank = 0;
    if (rc) return rc;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (!is_asked())
        rc = err_set(e, ERR_REQUEST,
                     "run.elastic: this %s ends all processes when one dies, because it was not asked to go on: mpirun "
                     "--with-ft ulfm ...; or let the job be started again (tutti launch), and run.elastic: false",
                     comm_mpi_name());
    if (!rc && n > MEMBERS_MOST)
        rc = err_set(e, ERR_REQUEST, "run.elastic: %d processes, of at most %d", n, MEMBERS_MOST);
    if (rc) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return rc;
    }
    struct mpi_crew *m = xcalloc(1, sizeof *m);
    struct crew *c = crew_new(&ops_mpi, m, *rank, n);
    struct crew_card mine;
    m->train = MPI_COMM_NULL;
    m->one_thread = one_thread;
    m->member = xcalloc((size_t)n, sizeof *m->member);
    for (int i = 0; i < n; i++) m->member[i] = i;
    ok = MPI_Comm_dup(MPI_COMM_WORLD, &m->alive) == MPI_SUCCESS;
    if (ok) MPI_Comm_set_errhandler(m->alive, MPI_ERRORS_RETURN);
    crew_card_fill(&mine);
    ok = ok &&
         MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, c->card, (int)sizeof mine, MPI_BYTE, m->alive) == MPI_SUCCESS;
    *out = c;
    if (ok) return OK;
    log_error("a process ended before all knew each other: start the job again");
    MPI_Abort(MPI_COMM_WORLD, 1);
    return ERR_LOST;
}

#define FINALIZE_S 20.0

/* Where many have died Open MPI (5.0.11) waits in MPI_Finalize for ever. All is done and closed by now. */
static void *end_anyway(void *status)
{
    clock_sleep_s(FINALIZE_S);
    log_or_drop(LOG_WARN, "the MPI library does not come to its end (MPI_Finalize) after ranks have died: this process "
                          "ends without it");
    fflush(stdout);
    _exit(*(int *)status);
}

void crew_close(struct crew *c, int status)
{
    if (!c) return;
    struct mpi_crew *m = c->shared;
    pthread_t guard;
    xfree(m->member);
    xfree(m);
    crew_free(c);
    bool guarded = pthread_create(&guard, NULL, end_anyway, &status) == 0;
    MPI_Finalize();
    if (guarded) pthread_cancel(guard);
    if (guarded) pthread_join(guard, NULL);
}

#else

int mpi_lost(const struct comm *c, int rc, int world_rank, const char *doing, struct err *e)
{
    (void)c, (void)rc, (void)world_rank, (void)doing, (void)e;
    return OK;
}

int mpi_broken(const struct world *w, struct err *e)
{
    (void)w, (void)e;
    return OK;
}

bool mpi_revoked(const struct world *w)
{
    (void)w;
    return false;
}

void mpi_revoke(struct world *w) { (void)w; }

int crew_open_mpi(struct crew **out, int *rank, struct err *e)
{
    bool one_thread;
    *out = NULL;
    *rank = 0;
    if (mpi_initialise(NULL, &one_thread, e)) return e->code;
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return err_set(
        e, ERR_REQUEST,
        "run.elastic: this tutti was built with %s, which ends all processes when one dies (Open MPI 5 with fault "
        "tolerance, under mpirun --with-ft ulfm, does not); let the job be started again (tutti launch), and "
        "run.elastic: false",
        comm_mpi_name());
}

void crew_close(struct crew *c, int status) { (void)c, (void)status; }

#endif
