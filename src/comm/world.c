/* SPDX-License-Identifier: Apache-2.0 */
/* world.c: a rank's membership in the job, and how a failure spreads: the first one is written on the board under its
 * lock, everybody who waits looks at the board, and the recorder is dumped by the rank that failed first.
 */
#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/impl.h"
#include "device/device.h"

#define TIMEOUT_S 600
#define QUIET_S 0.5

/* What follows from the settings. */
static void settle(struct world *w)
{
    if (w->cfg.timeout_s <= 0) w->cfg.timeout_s = TIMEOUT_S;
    xfree(w->dump_dir);
    w->cfg.dump_dir = w->dump_dir = w->cfg.dump_dir ? xstrdup(w->cfg.dump_dir) : NULL;
    w->asked = select_named(w->cfg.algorithm);
    table_fini(&w->table);
    int rc = table_parse(&w->table, w->cfg.table, NULL);
    CHECK(!rc, "a table that comm_config_check refuses");
    w->cfg.table = w->cfg.algorithm = NULL; /* the caller's */
    w->spin = w->sharers * (w->cfg.progress == COMM_THREAD ? 2 : 1) <= thread_n_cores();
}

struct world *world_new(const struct transport_ops *ops, void *shared, struct board *board, int rank, int size,
                        const int *host, int sharers, const struct comm_config *cfg)
{
    struct world *w = xcalloc(1, sizeof *w);
    *w = (struct world){.ops = ops, .shared = shared, .board = board, .row = rank, .rank = rank, .size = size};
    if (cfg) w->cfg = *cfg;
    w->folds = fold_best();
    w->host = xcalloc((size_t)size, sizeof *w->host);
    for (int r = 0; r < size; r++)
        w->host[r] = host ? host[r] : w->cfg.ranks_per_host > 0 ? r / w->cfg.ranks_per_host : 0;
    w->sharers = sharers;
    for (int r = 0; !sharers && r < size; r++) w->sharers += w->host[r] == w->host[rank];
    settle(w);
    struct err e = {0};
    if (engine_start(w, &e)) world_fail(w, &e); /* sticky: who made the world asks comm_status */
    return w;
}

double world_timeout(const struct world *w, bool messages)
{
    if (w->patience_s > 0) return w->patience_s;
    return messages && w->cfg.timeout_p2p_s > 0 ? w->cfg.timeout_p2p_s : w->cfg.timeout_s;
}

void comm_patience(struct comm *world, double timeout_s) { world->w->patience_s = timeout_s; }

int comm_configure(struct comm *world, const struct comm_config *cfg, struct err *e)
{
    struct world *w = world->w;
    int rc = comm_config_check(cfg, e), ranks_per_host = w->cfg.ranks_per_host;
    if (rc) return rc;
    if (cfg->progress == COMM_THREAD && w->one_thread)
        return err_set(e, ERR_REQUEST, "%s allows no calls from a second thread: set comm.progress to inline",
                       comm_mpi_name());
    CHECK(w->n_comms == 1 && atomic_load(&w->pending) == 0, "settings come before groups and operations");
    engine_stop(w);
    w->cfg = *cfg;
    w->cfg.ranks_per_host = ranks_per_host;
    settle(w);
    world->asked = w->asked;
    return engine_start(w, e);
}

/* The thread ends first: closing may free what it looks at (the board). From then on this thread is the only one. */
void world_free(struct world *w)
{
    engine_stop(w);
    w->ops->close(w);
    xfree(w->host);
    xfree(w->row_of);
    xfree(w->dump_dir);
    table_fini(&w->table);
    xfree(w);
}

int world_row(const struct world *w, int rank)
{
    return w->row_of ? w->row_of[rank] : w->board->n_rows == w->size ? rank : rank == w->rank ? w->row : -1;
}

int comm_seen(const struct comm *world) { return world->w->board->n_rows; }

int64_t comm_seen_doing(struct comm *world, int i, int *rank, char *out)
{
    struct board *b = world->w->board;
    *rank = board_rank(b, i);
    board_doing(b, i, out);
    return board_process(b, i);
}

static void dump(struct world *w)
{
    struct str text = {0}, path = {0};
    struct err e = {0};
    str_printf(&text, "%s\n\n", w->board->cause.text);
    board_print(w->board, &text);
    str_printf(&path, "%s/flight-rank%d.txt", w->dump_dir, w->rank);
    if (fs_mkdirs(w->dump_dir, &e) || fs_write_atomic(str_text(&path), text.p, text.n, &e)) log_warn("%s", e.text);
    str_free(&text);
    str_free(&path);
}

void world_fail(struct world *w, const struct err *e)
{
    if (!board_fail(w->board, w->rank, e)) return;
    if (w->dump_dir) dump(w);
    atomic_store(&w->board->kept, 1);
}

/* Threads come to rest for certain. A process that is stopped or dead does not; what it would touch are its own
 * mappings, which stay valid, so after a while the others go on. */
static void quiet(void *world)
{
    struct world *w = world;
    w->ops->quiet(w);
}

void world_quiet(struct world *w)
{
    engine_past(w);
    if (w->ops->quiet && !w->quieted) engine_call(w, quiet, w);
    w->quieted = true;
    double until = w->blocks ? clock_now_s() + QUIET_S : 0;
    for (int r = 0; r < w->board->n_rows; r++)
        while (atomic_load(&w->board->row[r].busy) && (until <= 0 || clock_now_s() < until)) sched_yield();
}

/* ---- groups ------------------------------------------------------------------------------------------------ */

static int listed(struct world *w, struct comm *c, struct err *e)
{
    pthread_mutex_lock(&w->comms_lock);
    bool room = w->n_comms < WORLD_COMMS;
    if (room) w->comms[w->n_comms++] = c;
    pthread_mutex_unlock(&w->comms_lock);
    return room ? OK : err_set(e, ERR_REQUEST, "more than %d communicators at once on one rank", WORLD_COMMS);
}

/* Hosts of a group's ranks, numbered from 0 in the order in which they appear. */
static void number_hosts(struct comm *c)
{
    int n = 0;
    for (int i = 0; i < c->size; i++) {
        int first = 0;
        while (c->w->host[c->world_rank[first]] != c->w->host[c->world_rank[i]]) first++;
        c->host[i] = first == i ? n++ : c->host[first];
    }
}

struct join {
    struct comm *c;
    struct err *e;
    int rc;
};

static void join(void *arg)
{
    struct join *j = arg;
    j->rc = j->c->w->ops->join(j->c, j->e);
}

static void leave(void *arg)
{
    struct comm *c = arg;
    c->w->ops->leave(c);
}

static void release(struct comm *c)
{
    for (int i = 0; i < COMM_RING; i++) {
        struct op *o = &c->ring[i];
        xfree(o->pieces);
        xfree(o->list);
        xfree(o->number);
        xfree(o->req);
        xfree(o->sums);
        comm_moves_free(&o->moves);
    }
    comm_moves_free(&c->sketch);
    xfree(c->world_rank);
    xfree(c->host);
    xfree(c->passed);
    xfree(c->src);
    xfree(c->dst);
    xfree(c->part);
    xfree(c->late);
    xfree(c->fate);
    xfree(c->heard);
    tally_free(&c->tally);
    xfree(c->tmp);
    xfree(c);
}

int world_comm(struct comm **out, struct world *w, const int *ranks, int n, const char *name, struct err *e)
{
    struct comm *c = xcalloc(1, sizeof *c);
    size_t size = (size_t)n;
    *c = (struct comm){.w = w, .rank = -1, .size = n, .open = 1};
    snprintf(c->name, sizeof c->name, "%.*s", DESC_GROUP - 1, name);
    c->world_rank = xcalloc(size, sizeof *c->world_rank);
    c->host = xcalloc(size, sizeof *c->host);
    c->passed = xcalloc(2 * size, sizeof *c->passed);
    c->src = xcalloc(size, sizeof *c->src);
    c->dst = xcalloc(size, sizeof *c->dst);
    c->part = xcalloc(size, sizeof *c->part);
    c->late = xcalloc((size_t)w->size, sizeof *c->late);
    c->fate = xcalloc(size, sizeof *c->fate);
    c->heard = xcalloc(size, sizeof *c->heard);
    for (int i = 0; i < n; i++) {
        CHECK(ranks[i] >= 0 && ranks[i] < w->size, "rank %d in a group of a world of %d", ranks[i], w->size);
        c->world_rank[i] = ranks[i];
        if (ranks[i] == w->rank) c->rank = i;
    }
    CHECK(c->rank >= 0, "rank %d splits off a group that it is not in", w->rank);
    number_hosts(c);
    c->asked = w->asked;
    struct join j = {.c = c, .e = e};
    engine_call(w, join, &j);
    int rc = j.rc;
    if (!rc && (rc = listed(w, c, e))) engine_call(w, leave, c);
    if (rc) {
        release(c);
        return rc;
    }
    *out = c;
    return OK;
}

void comm_free(struct comm *c)
{
    if (!c) return;
    struct world *w = c->w;
    comm_sync(c);
    if (c->called && beside_joins(c)) stream_sync(w->stream); /* the host has to know, too */
    pthread_mutex_lock(&w->comms_lock);
    int i = 0;
    while (w->comms[i] != c) i++;
    w->comms[i] = w->comms[--w->n_comms];
    bool last = w->n_comms == 0;
    pthread_mutex_unlock(&w->comms_lock);
    engine_call(w, leave, c);
    release(c);
    if (last) world_free(w);
}
