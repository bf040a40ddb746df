/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_groups.c: how groups are made, after their ranks have met in messages that are timed, and the memory that the
 * ranks of one host have in common: a window of the library's, or, where groups outlive their ranks, the first rank's.
 */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "comm/blocks.h"
#include "comm/mpi_inside.h"
#include "comm/staged.h"

#define PAGE ((size_t)4096)

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
int mpi_window_new(MPI_Comm comm, size_t bytes, MPI_Win *win, void **p, struct err *e)
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

int mpi_join(struct comm *c, struct err *e)
{
    struct launch *l = c->w->shared;
    int met = meet_first(c, &(struct go){0}, e);
    if (met) return met;
    struct mpi_ranks *g = xcalloc(1, sizeof *g);
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
        rc = mpi_window_new(g->comm, bytes + meet_pieces_bytes(c->size), &g->window, &p, e);
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

void mpi_leave(struct comm *c)
{
    struct mpi_ranks *g = c->group;
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
static int all_see(struct comm *c, struct mpi_ranks *g, struct err *e)
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

int mpi_lasting_join(struct comm *c, struct err *e)
{
    struct launch *l = c->w->shared;
    struct mpi_ranks *g = xcalloc(1, sizeof *g);
    struct go go = {.fd = -1, .pid = getpid()};
    bool common = one_host(c), makes = c->rank == 0;
    *g = (struct mpi_ranks){.comm = l->world, .window = MPI_WIN_NULL, .memory_fd = -1, .memory_bytes = common_bytes(c)};
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

void mpi_lasting_leave(struct comm *c)
{
    struct mpi_ranks *g = c->group;
    blocks_memory_free(g->memory, g->memory_bytes, g->memory_fd);
    xfree(g);
}
