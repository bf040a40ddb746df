/* SPDX-License-Identifier: Apache-2.0 */
/* A member's life from epoch to epoch. Every member decides by itself, from what all know (who is alive, the config),
 * so nothing about layouts is sent; that all read the same config is compared as ever.
 *
 * Rejected: mending the world in place and stepping on with the state that is left: a rank that dies takes a shard of
 * the optimizer with it (zero), or the half of a step, and what would come out is no state that an undisturbed run ever
 * had. Going back to a checkpoint costs steps, and keeps every bit. */
#include "train/epochs.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/crew.h"
#include "config/afford.h"
#include "config/same.h"
#include "train/trainer_impl.h"

#define LOCK_WAIT_S 30.0 /* a file system may hold the lock of a process that died for as long */

enum { DP_KEYS = 2 };
struct member {
    struct job job; /* this member's own: ranks and keys change */
    struct crew *crew;
    bool launched;
    int wanted;                /* ranks at work, as the run was asked for */
    int64_t replicate, shard;  /* of that layout */
    int64_t per_copy, servers; /* ranks of a copy of the model, without dp_shard; and of a parameter server */
    int64_t least;
    char **keys; /* the request's n_keys, then room for a layout with fewer ranks */
    int n_keys;
    char dp_key[DP_KEYS][64];
    struct epoch epoch;
    double noticed_s; /* clock_now_s() when this epoch's death was found here; 0: it was not */
};

/* Keys as they come, before anything is known about ranks. What is wrong with them is said where they are read in
 * earnest. */
static bool peek(const struct job *j, struct config *c, struct arena *a)
{
    return config_load_text(c, NULL, a, j->config_path, j->config_text, j->n_text, j->overrides, j->n_overrides,
                            NULL) == OK;
}

bool epochs_wanted(const struct job *j)
{
    struct config c;
    struct arena *a = arena_new();
    bool wanted = peek(j, &c, a) && c.run.elastic;
    arena_free(a);
    return wanted;
}

/* ---- which layout ---- */

/* The job is that of n ranks, with these degrees (replicate 0: those that were asked for). *c keeps numbers only. */
static int set_layout(struct member *m, int n, int64_t replicate, int64_t shard, struct config *c, struct err *e)
{
    struct job *j = &m->job;
    struct conf *f = NULL;
    struct tokenizer *t = NULL;
    struct arena *a = arena_new();
    j->n_overrides = m->n_keys;
    snprintf(m->dp_key[0], sizeof m->dp_key[0], "parallel.dp_replicate=%lld", (long long)replicate);
    snprintf(m->dp_key[1], sizeof m->dp_key[1], "parallel.dp_shard=%lld", (long long)shard);
    for (int i = 0; replicate && i < DP_KEYS; i++) m->keys[j->n_overrides++] = m->dp_key[i];
    j->n_ranks = n;
    j->ranks_here = j->least_here = crew_ranks_here(m->crew, n);
    j->sharers = m->launched ? crew_sharers(m->crew, n) : n;
    j->cores_left = 0;
    int rc = job_read_config(j, c, &f, a, &t, e);
    if (!rc) rc = afford_least(c, f, n, j->ranks_here, e);
    tokenizer_free(t);
    arena_free(a);
    return rc;
}

/* As it was asked for: all members but the spares. */
static int first_layout(struct member *m, struct err *e)
{
    struct config c;
    struct arena *a = arena_new();
    int64_t alive = crew_size(m->crew), spares = peek(&m->job, &c, a) ? c.run.spares : 0;
    arena_free(a);
    if (spares >= alive)
        return err_set(e, ERR_REQUEST,
                       "run.spares: %lld of the %lld ranks that were started wait, and none is left to train; choose "
                       "at "
                       "most %lld, or start more ranks",
                       (long long)spares, (long long)alive, (long long)alive - 1);
    m->wanted = (int)(alive - spares);
    int rc = set_layout(m, m->wanted, 0, 0, &c, e);
    if (rc) return rc;
    m->replicate = c.parallel.dp_replicate;
    m->shard = c.parallel.dp_shard;
    m->servers = c.parallel.servers;
    m->per_copy = c.parallel.tp * c.parallel.cp * c.parallel.pp;
    m->least = c.run.least_ranks;
    if (m->least <= m->wanted) return OK;
    return err_set(e, ERR_REQUEST,
                   "run.least_ranks: %lld, and only %d ranks are at work; choose at most that, or start more",
                   (long long)m->least, m->wanted);
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* The fewest shards that take no more memory each than was asked for; where there are none, as many as there can be. */
static int64_t shards_near(int64_t dp, int64_t wanted)
{
    for (int64_t s = wanted; s < dp; s++)
        if (dp % s == 0) return s;
    return dp;
}

/* Replicas drop out before state is cut otherwise. */
static int layout_of(struct member *m, int n, struct config *c, struct err *e)
{
    int64_t workers = n - m->servers, dp = workers / m->per_copy,
            shards[] = {m->shard, shards_near(dp, m->shard), common_divisor(dp, m->shard), 1};
    struct err why;
    if (workers < m->per_copy || workers % m->per_copy)
        return err_set(e, ERR_REQUEST,
                       "%lld ranks are no whole number of copies of the model, of %lld ranks each (tp x cp x pp)",
                       (long long)workers, (long long)m->per_copy);
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
        if (dp % shards[i]) continue;
        int rc = set_layout(m, n, dp / shards[i], shards[i], c, &why);
        if (!rc) return OK;
        if (e->code == OK) *e = why;
    }
    return e->code;
}

/* The layout of this epoch; *n ranks of it are at work. */
static int choose_layout(struct member *m, int *n, struct err *e)
{
    struct config c;
    struct err why = {0};
    int alive = crew_size(m->crew);
    if (crew_epoch(m->crew) == 1) {
        int rc = first_layout(m, e);
        *n = m->wanted;
        return rc;
    }
    if (alive >= m->wanted) {
        *n = m->wanted;
        return set_layout(m, *n, 0, 0, &c, e);
    }
    for (*n = alive; *n >= m->least; --*n) {
        struct err no = {0};
        if (!layout_of(m, *n, &c, &no)) {
            if (why.code && crew_seat(m->crew) == 0) log_info("%d of %d ranks wait: %s", alive - *n, alive, why.text);
            return OK;
        }
        if (why.code == OK) why = no;
    }
    return err_set(e, ERR_LOST,
                   "%.400s; %d of %d ranks are left, and there is no layout of %lld to %d ranks "
                   "(run.least_ranks)%s%.300s",
                   crew_cause(m->crew), alive, m->wanted, (long long)m->least, alive, why.code ? ": " : "", why.text);
}

/* ---- one epoch ---- */

/* The first rank's process keeps the run's directory from others; when it dies, the next one takes it. Collective. */
static int keep_directory(struct member *m, struct comm *world, const struct config *c, const struct conf *f,
                          struct err *e)
{
    struct job *j = &m->job;
    int rc = OK;
    if (comm_rank(world) == 0 && !j->locked) {
        double until = clock_now_s() + (crew_epoch(m->crew) > 1 ? LOCK_WAIT_S : 0);
        while ((rc = job_take_directory(j, c, f, e)) && j->lock.busy && clock_now_s() < until) clock_sleep_s(0.1);
    }
    return comm_agree(world, rc, e);
}

/* All that is between the world and the trainer: processes have read files of their own. */
static int train(struct member *m, struct comm *world, struct err *e)
{
    struct job *j = &m->job;
    struct config c;
    struct conf *f = NULL;
    struct tokenizer *t = NULL;
    struct arena *a = arena_new();
    int rc = m->launched ? job_read_config(j, &c, &f, a, &t, e) : OK;
    if (m->launched) {
        rc = comm_agree(world, rc, e);
        if (!rc) rc = same_config(world, &c, f, e);
        if (!rc) rc = job_same_cores(j, world, &c, e);
        if (!rc) rc = keep_directory(m, world, &c, f, e);
        j->refused = rc && comm_status(world, NULL) == OK;
    }
    tokenizer_free(t);
    arena_free(a);
    if (!rc) rc = trainer_rank(world, j, e);
    j->refused |= rc == ERR_SIGNAL;
    return rc;
}

static int open_world(struct member *m, int n, struct comm **world, struct err *e)
{
    struct config c;
    struct conf *f = NULL;
    struct tokenizer *t = NULL;
    struct arena *a = arena_new();
    int rc = job_read_config(&m->job, &c, &f, a, &t, e);
    struct comm_config cc = {0};
    if (!rc) cc = config_comm(&c);
    cc.dump_dir = c.run.dir;
    if (!rc) job_watch_hangs(&m->job, &cc);
    if (!rc) rc = crew_world(m->crew, n, &cc, world, e);
    tokenizer_free(t);
    arena_free(a);
    return rc;
}

/* What it came to for this member; *died: it is the dead one. */
static int one_epoch(struct member *m, int n, bool *died, struct err *e)
{
    struct comm *world = NULL;
    struct err cause;
    int rc = open_world(m, n, &world, e);
    *died = false;
    if (rc) return rc;
    if (!world) {
        if (m->launched) signals_set_up(m->job.signals); /* it has nothing to save, and is told when the others stop */
        crew_wait(m->crew);
        return OK;
    }
    rc = train(m, world, e);
    *died = comm_died(world);
    m->noticed_s = comm_failed_s(world);
    if (rc && comm_status(world, &cause) == ERR_LOST) { /* whatever it looked like here */
        rc = ERR_LOST;
        *e = cause;
    }
    if (rc && rc != ERR_LOST && !m->job.refused) comm_abort(world, e);
    return rc;
}

/* ---- from epoch to epoch ---- */

static void say_epoch(const struct member *m)
{
    struct str s = {0};
    const struct epoch *p = &m->epoch;
    for (int i = 0; i < p->n_lost; i++)
        str_printf(&s, "%s%d (%s)", i ? ", " : "", p->lost[i], crew_host(m->crew, p->lost[i]));
    log_status_end();
    if (p->n_lost) log_warn("gone: member%s %s; %s", p->n_lost > 1 ? "s" : "", str_text(&s), crew_cause(m->crew));
    else log_warn("%s", crew_cause(m->crew));
    log_info("epoch %d: %d ranks at work, %d spare%s", p->number, p->alive - p->spares, p->spares,
             p->spares == 1 ? "" : "s");
    str_free(&s);
}

/* The others are told, and m stands for the next one. */
static int end_epoch(struct member *m, int rc, enum crew_verdict *v, struct err *e)
{
    double now = clock_now_s();
    struct err broken = {0};
    int bad = crew_over(m->crew, rc, e, v, &m->epoch.lost, &m->epoch.n_lost, &broken);
    if (bad) *e = broken;
    m->epoch.since_s = m->noticed_s > 0 ? m->noticed_s : now; /* now: a spare, or one that was done */
    m->noticed_s = 0;
    m->epoch.why = crew_cause(m->crew);
    return bad;
}

static int live(struct member *m, struct err *e)
{
    struct trainer_result *r = m->job.result;
    enum crew_verdict v = CREW_ON;
    while (v == CREW_ON) {
        bool died = false;
        int n = 1, rc = choose_layout(m, &n, e), bad;
        bool leads = crew_seat(m->crew) == 0;
        if (m->launched) {
            r->rank = crew_seat(m->crew);
            signals_speak(m->job.signals, leads);
        }
        if (rc) return rc; /* the same on every member */
        m->epoch.number = crew_epoch(m->crew);
        m->epoch.alive = crew_size(m->crew);
        m->epoch.spares = m->epoch.alive - n;
        if (leads && m->epoch.number > 1) say_epoch(m);
        rc = one_epoch(m, n, &died, e);
        if (died) {
            crew_drop(m->crew);
            return rc;
        }
        if (rc && rc != ERR_LOST && m->launched &&
            leads) /* before a launcher sees the first status and ends the others */
            r->told = fprintf(stderr, "tutti: %s\n", e->text) > 0;
        if ((bad = end_epoch(m, rc, &v, e))) return bad;
        if (v != CREW_ON) return v == CREW_DONE ? OK : rc;
    }
    return OK;
}

static int be_member(struct crew *crew, const struct job *job, bool launched, struct err *e)
{
    struct member m = {.job = *job, .crew = crew, .launched = launched, .n_keys = job->n_overrides, .epoch.why = ""};
    m.job.epoch = &m.epoch;
    m.job.overrides = m.keys = xcalloc((size_t)m.n_keys + DP_KEYS, sizeof *m.keys);
    for (int i = 0; i < m.n_keys; i++) m.keys[i] = job->overrides[i];
    int rc = live(&m, e);
    if (launched && m.job.locked) fs_lock_release(&m.job.lock);
    xfree(m.keys);
    return rc;
}

static int local_member(struct crew *crew, void *arg, struct err *e) { return be_member(crew, arg, false, e); }

/* The process has the directory, whichever of its threads dies. */
static int run_local(struct job *j, int n, struct err *e)
{
    struct config c;
    struct conf *f = NULL;
    struct arena *a = arena_new();
    struct tokenizer *t = NULL;
    int64_t spares = peek(j, &c, a) ? c.run.spares : 0;
    j->n_ranks = j->ranks_here = j->least_here = j->sharers = spares < n ? n - (int)spares : n;
    int rc = job_read_config(j, &c, &f, a, &t, e); /* refused before any rank starts */
    if (!rc) rc = job_take_directory(j, &c, f, e);
    tokenizer_free(t);
    arena_free(a);
    if (!rc) rc = crew_run_local(n, local_member, j, e);
    if (j->locked) fs_lock_release(&j->lock);
    return rc;
}

static int run_launched(struct job *j, int asked, struct err *e)
{
    struct crew *crew = NULL;
    int rc = crew_open_mpi(&crew, &j->result->rank, e);
    if (rc && j->result->rank > 0) {
        *e = (struct err){0};
        return OK; /* first to say so is rank 0: a launcher ends the others once one has failed */
    }
    if (rc) return rc;
    signals_launched(j->signals);
    if (asked && asked != crew_size(crew))
        rc = err_set(e, ERR_REQUEST,
                     "-n %d: the launcher started %d processes, and each of them is a rank; leave -n out, or start %d "
                     "processes",
                     asked, crew_size(crew), asked);
    if (!rc) rc = be_member(crew, j, true, e);
    crew_close(crew, err_exit_status(rc));
    return rc;
}

int epochs_run(struct job *j, int n_ranks, struct err *e)
{
    return comm_launched() ? run_launched(j, n_ranks, e) : run_local(j, n_ranks ? n_ranks : 1, e);
}
