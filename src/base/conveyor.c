/* SPDX-License-Identifier: Apache-2.0 */
/* conveyor.c: a ring of items under one lock.
 *
 *   FREE -> read -> READY -> taken -> BUSY -> worked -> DONE -> delivered -> FREE
 *
 * The caller's thread delivers what is done first in line, else reads what there is room for, else works like the
 * others, else sleeps. Items are taken in order. An item is some milliseconds of work, so one lock is enough; a queue
 * without locks was not worth it.
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

struct conveyor {
    const struct conveyor_ops *ops;
    void *arg;
    struct err *e;
    int code;      /* what conveyor_run comes back with */
    int read_code; /* of a read that failed: the items before it are delivered first */
    struct err read_e;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    struct slot *slots;
    int n;
    int64_t n_read, n_taken, n_delivered; /* item i is in slot i % n */
    bool over;                            /* nothing more is to be taken */
};

static struct slot *slot_of(struct conveyor *c, int64_t i) { return &c->slots[i % c->n]; }

/* The next item that may be worked on, now BUSY; NULL: none. Under the lock. */
static struct slot *take(struct conveyor *c)
{
    if (c->over || c->n_taken == c->n_read) return NULL;
    struct slot *s = slot_of(c, c->n_taken);
    if (s->follows && c->n_taken > c->n_delivered && slot_of(c, c->n_taken - 1)->state != DONE) return NULL;
    s->state = BUSY;
    c->n_taken++;
    return s;
}

/* Under the lock, which is let go meanwhile. */
static void work(struct conveyor *c, int member, struct slot *s)
{
    pthread_mutex_unlock(&c->lock);
    s->code = c->ops->work(c->arg, member, s->item, &s->e);
    pthread_mutex_lock(&c->lock);
    s->state = DONE;
    pthread_cond_broadcast(&c->changed);
}

static void work_until_over(struct conveyor *c, int member)
{
    pthread_mutex_lock(&c->lock);
    while (!c->over) {
        struct slot *s = take(c);
        if (s) work(c, member, s);
        else pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

/* Delivers the first item in line. Without the lock: a slot that is DONE is the owner's. */
static int deliver(struct conveyor *c)
{
    struct slot *s = slot_of(c, c->n_delivered);
    int code = s->code ? err_set(c->e, (enum err_code)s->code, "%s", s->e.text) : OK;
    return code ? code : c->ops->deliver(c->arg, s->item, c->e);
}

/* The owner's next move; false: all is done or failed. */
static bool step(struct conveyor *c, bool *more)
{
    pthread_mutex_lock(&c->lock);
    bool first_done = c->n_delivered < c->n_read && slot_of(c, c->n_delivered)->state == DONE;
    bool room = *more && c->n_read - c->n_delivered < c->n;
    if (!first_done && !room) {
        struct slot *s = take(c);
        if (s) work(c, 0, s);
        else if (c->n_delivered < c->n_read) pthread_cond_wait(&c->changed, &c->lock);
    }
    bool ends = !first_done && !*more && c->n_delivered == c->n_read;
    pthread_mutex_unlock(&c->lock);
    int got = OK;
    bool follows = false;
    if (first_done) got = deliver(c);
    else if (room) got = c->ops->read(c->arg, slot_of(c, c->n_read)->item, &follows, &c->read_e);
    if (first_done && got) c->code = got;
    if (c->code || ends) return false;
    if (!first_done && room && got < 0) c->read_code = got;
    if (!first_done && room && got <= 0) *more = false;

    pthread_mutex_lock(&c->lock);
    if (first_done) slot_of(c, c->n_delivered++)->state = FREE;
    if (!first_done && room && got > 0) {
        struct slot *s = slot_of(c, c->n_read++);
        s->state = READY;
        s->follows = follows;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return true;
}

static void member_main(void *arg, int member, int n_members)
{
    struct conveyor *c = arg;
    (void)n_members;
    if (member > 0) {
        work_until_over(c, member);
        return;
    }
    for (bool more = true; step(c, &more);) continue;
    if (!c->code && c->read_code) c->code = err_set(c->e, (enum err_code)c->read_code, "%s", c->read_e.text);
    pthread_mutex_lock(&c->lock);
    c->over = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

int conveyor_run(const struct conveyor_ops *ops, void *arg, void *const *items, int n_items, int n_threads,
                 struct err *e)
{
    CHECK(n_items >= 1 && n_threads >= 1, "a conveyor of %d items and %d threads", n_items, n_threads);
    struct team *team;
    int code = team_start(&team, n_threads, e);
    if (code) return code;
    struct conveyor c = {.ops = ops, .arg = arg, .e = e, .n = n_items};
    c.slots = xcalloc((size_t)n_items, sizeof *c.slots);
    for (int i = 0; i < n_items; i++) c.slots[i].item = items[i];
    CHECK(!pthread_mutex_init(&c.lock, NULL) && !pthread_cond_init(&c.changed, NULL), "no mutex to be had");
    team_run(team, member_main, &c);
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
    xfree(c.slots);
    team_free(team);
    return c.code;
}
