/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c: moves the operations of one rank on, all its communicators in turn.
 *
 * A poll walks the open operations of every communicator. Collectives of one communicator run one after the other;
 * exchanges start when no collective is open before them and then finish in any order. When progress is inline the
 * rank polls while it waits and once at each submission; with a thread, that thread polls while anything is open and
 * sleeps when nothing is.
 *
 * Waiting: look for a while, then yield the core, then sleep in growing naps of at most 0.2 ms: other ranks may need
 * this core to get on. Rejected: waking sleepers through a condition variable per group, which costs a system call on
 * every operation and cannot cover MPI.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/cond.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/impl.h"
#include "device/device.h"

#if defined(__x86_64__)
#define relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define relax() __asm__ volatile("yield")
#else
#define relax() ((void)0)
#endif

struct patience {
    int64_t tries;
    double since_s, looked_s, nap_s;
    struct away away;
};

enum { LOOKS = 200 };
#define YIELD_S 2e-3
#define NAP_LEAST_S 20e-6
#define NAP_MOST_S 200e-6
#define LOOK_EVERY_S 20e-3

/* Lets time pass; true now and then, when it is worth asking who is late. */
static bool patience(struct patience *p, bool spin)
{
    double now;
    p->tries++;
    if (spin && p->tries < LOOKS) {
        relax();
        return false;
    }
    if (p->nap_s <= 0) {
        sched_yield(); /* on a busy machine one may take as long as the others' turns */
        now = clock_now_s();
        away_look(&p->away, now);
        if (p->since_s <= 0) p->since_s = p->looked_s = now;
        if (now - p->since_s > YIELD_S) p->nap_s = NAP_LEAST_S;
        return false;
    }
    clock_sleep_s(p->nap_s);
    p->nap_s = 2 * p->nap_s < NAP_MOST_S ? 2 * p->nap_s : NAP_MOST_S;
    now = clock_now_s();
    away_look(&p->away, now);
    if (now - p->looked_s < LOOK_EVERY_S) return false;
    p->looked_s = now;
    return true;
}

static void complete(struct comm *c, struct op *o, int64_t ticket)
{
    struct world *w = c->w;
    if (o->stage == OP_LINK && o->ready_s > o->through_s)
        atomic_fetch_add(&c->link_ns, (long long)(1e9 * (o->ready_s - o->through_s)));
    o->stage = OP_QUEUED;
    if (atomic_load_explicit(&w->watched, memory_order_relaxed)) o->over_s = clock_now_s();
    atomic_store_explicit(&o->done, ticket, memory_order_release);
    atomic_fetch_sub(&w->pending, 1);
    if (!atomic_load(&w->waiting)) return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->woken);
    pthread_mutex_unlock(&w->lock);
}

static bool comm_poll(struct comm *c)
{
    int64_t last = atomic_load_explicit(&c->submitted, memory_order_acquire);
    bool moved = false;
    for (int64_t t = c->open; t <= last; t++) {
        struct op *o = &c->ring[t % COMM_RING];
        if (atomic_load_explicit(&o->done, memory_order_relaxed) < t) {
            enum op_stage before = o->stage;
            int64_t work = o->at_work;
            bool done = op_advance(c, o);
            moved |= done || o->stage != before || o->at_work != work;
            if (done) complete(c, o, t);
            else if (o->coll.op != COMM_EXCHANGE) break;
            else continue;
        }
        if (t == c->open) c->open++;
    }
    return moved;
}

bool engine_poll(struct world *w)
{
    bool moved = false;
    pthread_mutex_lock(&w->comms_lock);
    for (int i = 0; i < w->n_comms && !board_failed(w->board); i++) moved |= comm_poll(w->comms[i]);
    pthread_mutex_unlock(&w->comms_lock);
    return moved;
}

/* After a failure: who holds the lock may be in the middle of an operation whose memory the waiting rank is about to
 * give up; whoever takes it later does nothing. */
void engine_past(struct world *w)
{
    pthread_mutex_lock(&w->comms_lock);
    pthread_mutex_unlock(&w->comms_lock);
}

/* ---- the thread ------------------------------------------------------------------------------------------ */

static void *engine_main(void *arg)
{
    struct world *w = arg;
    thread_name_set("r%d comm", w->rank);
    struct patience p = {0};
    for (;;) {
        pthread_mutex_lock(&w->lock);
        atomic_store(&w->asleep, 1);
        while (!w->quit && !w->call && (atomic_load(&w->pending) == 0 || board_failed(w->board)))
            pthread_cond_wait(&w->wake, &w->lock);
        atomic_store(&w->asleep, 0);
        void (*call)(void *) = w->call;
        bool quit = w->quit && !call;
        pthread_mutex_unlock(&w->lock);
        if (quit) return NULL;
        if (call) {
            call(w->call_arg);
            pthread_mutex_lock(&w->lock);
            w->call = NULL;
            pthread_cond_broadcast(&w->woken);
            pthread_mutex_unlock(&w->lock);
        }
        if (engine_poll(w)) p = (struct patience){0};
        else if (atomic_load(&w->pending) && patience(&p, w->spin)) late_look(w, &p.away);
    }
}

int engine_start(struct world *w, struct err *e)
{
    pthread_mutex_init(&w->comms_lock, NULL);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    cond_init(&w->woken);
    if (w->cfg.progress != COMM_THREAD) return OK;
    int failed = pthread_create(&w->thread, NULL, engine_main, w);
    if (!failed) return OK;
    char limits[160];
    limit_threads_text(limits);
    w->cfg.progress = COMM_INLINE; /* there is nothing to stop */
    return err_set(e, ERR_MEMORY,
                   "rank %d: its communication thread could not be started: %s (%s); choose fewer threads "
                   "(run.threads), comm.progress: inline, or raise the limit",
                   w->rank, strerror(failed), limits);
}

static void engine_wake(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void engine_stop(struct world *w)
{
    if (w->cfg.progress == COMM_THREAD) {
        pthread_mutex_lock(&w->lock);
        w->quit = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    pthread_mutex_destroy(&w->comms_lock);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->woken);
}

void engine_call(struct world *w, void (*fn)(void *), void *arg)
{
    if (w->cfg.progress == COMM_INLINE) {
        fn(arg);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->call_arg = arg;
    w->call = fn;
    pthread_cond_signal(&w->wake);
    while (w->call) pthread_cond_wait(&w->woken, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void engine_submit(struct comm *c, int64_t ticket)
{
    struct world *w = c->w;
    atomic_store_explicit(&c->submitted, ticket, memory_order_release);
    if (w->cfg.progress == COMM_INLINE) engine_poll(w);
    else if (atomic_load(&w->asleep)) engine_wake(w);
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

/* With a thread of its own the thread asks. */
static void look(struct world *w, double now, struct away *away)
{
    w->looked_s = now;
    board_beat(w->board, w->row);
    if (w->cfg.progress == COMM_INLINE) late_look(w, away);
}

void engine_look(struct world *w)
{
    double now = clock_now_s();
    struct away away = {.last_s = w->looked_s}; /* who polls may compute in between: not waiting either */
    if (now - w->looked_s < LOOK_EVERY_S) return;
    away_look(&away, now);
    look(w, now, &away);
}

/* Others may wait for what this rank's device has not begun. */
static bool drive(struct world *w) { return w->stream && stream_nudge(w->stream); }

/* The thread does the work and wakes us; a failure elsewhere wakes nobody, so look now and then. */
static void wait_thread(struct comm *c, int64_t ticket)
{
    struct world *w = c->w;
    struct patience p = {0};
    while (!op_done(c, ticket) && !board_failed(w->board)) {
        if (drive(w)) continue;
        if (p.nap_s <= 0) {
            patience(&p, w->spin);
            continue;
        }
        engine_look(w);
        pthread_mutex_lock(&w->lock);
        atomic_store(&w->waiting, 1);
        if (!op_done(c, ticket)) cond_wait_s(&w->woken, &w->lock, 10e-3);
        atomic_store(&w->waiting, 0);
        pthread_mutex_unlock(&w->lock);
    }
}

void engine_wait(struct comm *c, int64_t ticket)
{
    struct world *w = c->w;
    if (w->cfg.progress == COMM_THREAD) {
        wait_thread(c, ticket);
    } else {
        struct patience p = {0};
        while (!op_done(c, ticket) && !board_failed(w->board)) {
            if (engine_poll(w) || drive(w)) p = (struct patience){0};
            else if (patience(&p, w->spin)) look(w, clock_now_s(), &p.away);
        }
    }
    if (board_failed(w->board)) world_quiet(w);
}
