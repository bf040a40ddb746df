/* SPDX-License-Identifier: Apache-2.0 */
/* crew_local.c: members that are threads of one process. They meet under one lock: whoever is last (or finds, when
 * another has died, that he was the last to be waited for) does for all what the meeting is for. */
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/crew_impl.h"

/* What the members share; all of it under the lock. */
struct muster {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int began, alive, come;
    int64_t meetings; /* that are over */
    bool *gone;       /* [began] */
    bool ended;       /* this epoch is: spares need not wait */
    char cause[CREW_CAUSE];
    int flags;            /* brought to this meeting, and'ed */
    int result;           /* of the last meeting */
    struct comm **worlds; /* [began] by seat, made by the last meeting for one */
    int code;
    struct err why;
    bool refused; /* not all threads could be started: `why` */
};

typedef void meeting_fn(struct muster *m, const struct crew *c, const struct comm_config *cfg);

/* Under the lock; `what` is done once, when all that are alive have come. */
static void meet_all(struct crew *c, meeting_fn *what, const struct comm_config *cfg)
{
    struct muster *m = c->shared;
    int64_t this_one = m->meetings;
    m->come++;
    while (m->meetings == this_one && m->come < m->alive) pthread_cond_wait(&m->news, &m->lock);
    if (m->meetings != this_one) return;
    what(m, c, cfg);
    m->come = 0;
    m->meetings++;
    pthread_cond_broadcast(&m->news);
}

static void make_worlds(struct muster *m, const struct crew *c, const struct comm_config *cfg)
{
    m->ended = false;
    m->flags = ~0;
    m->cause[0] = 0;
    if (!m->refused) m->code = comm_world_local(m->worlds, c->at_work, cfg, &m->why);
}

static int local_world(struct crew *c, const struct comm_config *cfg, struct err *e)
{
    struct muster *m = c->shared;
    pthread_mutex_lock(&m->lock);
    meet_all(c, make_worlds, cfg);
    int rc = m->code, seat = crew_seat(c);
    if (rc) *e = m->why;
    c->world = !rc && seat < c->at_work ? m->worlds[seat] : NULL;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static void local_wait(struct crew *c)
{
    struct muster *m = c->shared;
    pthread_mutex_lock(&m->lock);
    while (!m->ended) pthread_cond_wait(&m->news, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static void count_flags(struct muster *m, const struct crew *c, const struct comm_config *cfg)
{
    (void)c;
    (void)cfg;
    m->result = m->flags;
}

static int local_over(struct crew *c, int *flags, bool *gone, struct err *e)
{
    struct muster *m = c->shared;
    (void)e;
    pthread_mutex_lock(&m->lock);
    m->ended = true;
    m->flags &= *flags;
    if (!m->cause[0]) memcpy(m->cause, c->cause, sizeof m->cause);
    pthread_cond_broadcast(&m->news);
    meet_all(c, count_flags, NULL);
    *flags = m->result;
    memcpy(c->cause, m->cause, sizeof c->cause);
    memcpy(gone, m->gone, (size_t)m->began * sizeof *gone);
    pthread_mutex_unlock(&m->lock);
    comm_free(c->world); /* all have come to rest */
    c->world = NULL;
    return OK;
}

static void local_drop(struct crew *c)
{
    struct muster *m = c->shared;
    comm_free(c->world);
    c->world = NULL;
    pthread_mutex_lock(&m->lock);
    m->gone[c->self] = true;
    m->alive--;
    m->ended = true;
    pthread_cond_broadcast(&m->news);
    pthread_mutex_unlock(&m->lock);
}

static const struct crew_ops ops_local = {local_world, local_wait, local_over, local_drop};

struct member {
    pthread_t thread;
    struct crew *crew;
    crew_fn *fn;
    void *arg;
    int rc;
    struct err e;
};

static void *be_member(void *arg)
{
    struct member *m = arg;
    thread_name_set("r%d", m->crew->self);
    m->rc = m->fn(m->crew, m->arg, &m->e);
    return NULL;
}

/* Of the members that are alive. */
static int first_failure(const struct muster *m, const struct member *of, struct err *e)
{
    for (int i = 0; i < m->began; i++)
        if (!m->gone[i] && of[i].rc) return *e = of[i].e, of[i].rc;
    if (m->alive > 0) return OK;
    return err_set(e, ERR_LOST, "all %d ranks are gone: there is nobody to go on", m->began);
}

static int start_failed(int i, int n, int why, struct err *e)
{
    char limits[160];
    limit_threads_text(limits);
    return err_set(e, ERR_MEMORY,
                   "the thread of rank %d of %d could not be started: %s (%s); choose fewer ranks (-n), or raise the "
                   "limit",
                   i, n, strerror(why), limits);
}

int crew_run_local(int n, crew_fn *fn, void *arg, struct err *e)
{
    struct muster m = {.began = n, .alive = n, .flags = ~0};
    struct member *of = xcalloc((size_t)n, sizeof *of);
    int rc = OK, started = 0, joined = 1;
    char name[16];
    m.gone = xcalloc((size_t)n, sizeof *m.gone);
    m.worlds = xcalloc((size_t)n, sizeof *m.worlds);
    pthread_mutex_init(&m.lock, NULL);
    pthread_cond_init(&m.news, NULL);
    for (int i = 0; i < n; i++) {
        of[i] = (struct member){.crew = crew_new(&ops_local, &m, i, n), .fn = fn, .arg = arg};
        for (int k = 0; k < n; k++) crew_card_fill(&of[i].crew->card[k]);
    }
    pthread_mutex_lock(&m.lock); /* nobody's first meeting is complete before all threads are there, or none goes on */
    for (started = 1; started < n; started++) {
        int failed = pthread_create(&of[started].thread, NULL, be_member, &of[started]);
        if (!failed) continue;
        m.code = rc = start_failed(started, n, failed, e);
        m.refused = true;
        m.why = *e;
        m.alive = started - 1; /* this thread does not come, either */
        break;
    }
    pthread_cond_broadcast(&m.news);
    pthread_mutex_unlock(&m.lock);
    thread_name_get(name);
    if (!rc) be_member(&of[0]);
    thread_name_set("%s", name);
    for (; joined < started; joined++) pthread_join(of[joined].thread, NULL);
    if (!rc) rc = first_failure(&m, of, e);
    for (int i = 0; i < n; i++) crew_free(of[i].crew);
    pthread_cond_destroy(&m.news);
    pthread_mutex_destroy(&m.lock);
    xfree(m.gone);
    xfree(m.worlds);
    xfree(of);
    return rc;
}
