/* SPDX-License-Identifier: Apache-2.0 */
/* conveyor.c: rings of items under one lock.
 *
 *   FREE -> read -> READY -> taken -> BUSY -> worked -> DONE -> delivered -> FREE
 *
 * A thread that may do so delivers what is done first in line, else reads what there is room for, else works, else
 * sleeps. With one belt only the caller's thread may, with several any. Items of a belt are taken in order. An item is
 * some milliseconds of work, so one lock is enough; a queue without locks was not worth it.
 */
#include "base/conveyor.h"

#include <pthread.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/thread.h"

enum state { FREE, READY, BUSY, DONE };

struct slot {
    void *item;
    enum state state;
    bool follows;
    int code; /* of the work */
    struct err e;
};

struct belt {
    struct slot *slots;
    int64_t n_read, n_taken, n_delivered; /* item i is in slot i % n */
    bool reading, at_end;                 /* one thread reads; there is no more, or it failed */
    int read_code;                        /* of a read that failed: the items before it are delivered first */
    struct err read_e;
};

struct conveyor {
    const struct conveyor_ops *ops;
    void *arg;
    int n, n_belts; /* slots of a belt */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    struct belt *belts;
    int code; /* of what failed to be worked on or delivered */
    struct err *e;
    bool delivering; /* one thread does */
    bool stops;      /* a read failed: nothing more is read */
    bool over;       /* nothing more is to be done */
};

static struct slot *slot_of(const struct conveyor *c, const struct belt *b, int64_t i) { return &b->slots[i % c->n]; }

/* The next item of the belt that may be worked on, now BUSY; NULL: none. */
static struct slot *take(struct conveyor *c, struct belt *b)
{
    if (b->n_taken == b->n_read) return NULL;
    struct slot *s = slot_of(c, b, b->n_taken);
    if (s->follows && b->n_taken > b->n_delivered && slot_of(c, b, b->n_taken - 1)->state != DONE) return NULL;
    s->state = BUSY;
    b->n_taken++;
    return s;
}

/* What follows is called under the lock, and lets it go meanwhile. True: something was done. */

static bool work(struct conveyor *c, int member)
{
    struct slot *s = NULL;
    for (int i = 0; i < c->n_belts && !s; i++) s = take(c, &c->belts[i]);
    if (!s) return false;
    pthread_mutex_unlock(&c->lock);
    s->code = c->ops->work(c->arg, member, s->item, &s->e);
    pthread_mutex_lock(&c->lock);
    s->state = DONE;
    return true;
}

static bool deliver(struct conveyor *c)
{
    struct belt *b = NULL;
    for (int i = 0; i < c->n_belts && !b && !c->delivering; i++) {
        struct belt *x = &c->belts[i];
        if (x->n_delivered < x->n_read && slot_of(c, x, x->n_delivered)->state == DONE) b = x;
    }
    if (!b) return false;
    struct slot *s = slot_of(c, b, b->n_delivered); /* DONE: nobody else's */
    struct err e;
    c->delivering = true;
    pthread_mutex_unlock(&c->lock);
    int code = s->code ? err_set(&e, (enum err_code)s->code, "%s", s->e.text) : c->ops->deliver(c->arg, s->item, &e);
    pthread_mutex_lock(&c->lock);
    c->delivering = false;
    s->state = FREE;
    b->n_delivered++;
    if (code && !c->code) c->code = err_set(c->e, (enum err_code)code, "%s", e.text);
    c->over = c->over || code;
    return true;
}

static bool read_one(struct conveyor *c)
{
    struct belt *b = NULL;
    for (int i = 0; i < c->n_belts && !b && !c->stops; i++) {
        struct belt *x = &c->belts[i];
        if (!x->reading && !x->at_end && x->n_read - x->n_delivered < c->n) b = x;
    }
    if (!b) return false;
    struct slot *s = slot_of(c, b, b->n_read);
    bool follows = false;
    b->reading = true;
    pthread_mutex_unlock(&c->lock);
    int got = c->ops->read(c->arg, s->item, &follows, &b->read_e);
    pthread_mutex_lock(&c->lock);
    b->reading = false;
    if (got > 0) {
        s->state = READY;
        s->follows = follows;
        b->n_read++;
        return true;
    }
    b->at_end = true;
    b->read_code = got;
    c->stops = c->stops || got;
    return true;
}

static bool all_done(const struct conveyor *c)
{
    for (int i = 0; i < c->n_belts; i++) {
        const struct belt *b = &c->belts[i];
        if (b->reading || b->n_delivered < b->n_read || !(b->at_end || c->stops)) return false;
    }
    return true;
}

static void member_main(void *arg, int member, int n_members)
{
    struct conveyor *c = arg;
    bool carries = member == 0 || c->n_belts > 1;
    (void)n_members;
    pthread_mutex_lock(&c->lock);
    while (!c->over) {
        bool did = (carries && (deliver(c) || read_one(c))) || work(c, member);
        if (carries && all_done(c)) c->over = did = true;
        if (did) pthread_cond_broadcast(&c->changed);
        else pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

int conveyor_run_belts(const struct conveyor_ops *ops, void *arg, void *const *items, int n_belts, int n_each,
                       int n_threads, struct err *e)
{
    CHECK(n_belts >= 1 && n_each >= 1 && n_threads >= 1, "%d belts of %d items and %d threads", n_belts, n_each,
          n_threads);
    struct team *team;
    int code = team_start(&team, n_threads, e);
    if (code) return code;
    struct conveyor c = {.ops = ops, .arg = arg, .e = e, .n = n_each, .n_belts = n_belts};
    c.belts = xcalloc((size_t)n_belts, sizeof *c.belts);
    for (int i = 0; i < n_belts; i++) {
        c.belts[i].slots = xcalloc((size_t)n_each, sizeof *c.belts[i].slots);
        for (int k = 0; k < n_each; k++) c.belts[i].slots[k].item = items[i * n_each + k];
    }
    CHECK(!pthread_mutex_init(&c.lock, NULL) && !pthread_cond_init(&c.changed, NULL), "no mutex to be had");
    team_run(team, member_main, &c);
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
    for (int i = 0; i < n_belts; i++) {
        struct belt *b = &c.belts[i];
        if (!c.code && b->read_code) c.code = err_set(e, (enum err_code)b->read_code, "%s", b->read_e.text);
        xfree(b->slots);
    }
    xfree(c.belts);
    team_free(team);
    return c.code;
}

int conveyor_run(const struct conveyor_ops *ops, void *arg, void *const *items, int n_items, int n_threads,
                 struct err *e)
{
    return conveyor_run_belts(ops, arg, items, 1, n_items, n_threads, e);
}
