/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.c: a ring of depth + 1 batches between two threads.
 *
 * The owner holds the slot it was given last; the other `depth` are the thread's to fill. The mutex guards n_filled,
 * n_taken, code, error and stop; a slot's contents belong to whoever the counters say.
 */
#include "data/prefetch.h"

#include <pthread.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/thread.h"

struct prefetch {
    const struct dataset *d;
    int64_t first_step, global_batch, first;
    int n_slots;
    struct batch *slots; /* batch i is in slots[i % n_slots] */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t n_filled, n_taken;
    int code; /* the thread stopped with this after n_filled batches */
    struct err error;
    bool stop;
};

/* Waits for a free slot; false when it is time to stop. */
static bool wait_for_room(struct prefetch *p, int64_t i)
{
    pthread_mutex_lock(&p->lock);
    while (!p->stop && i - p->n_taken >= p->n_slots - (p->n_taken > 0)) pthread_cond_wait(&p->changed, &p->lock);
    bool go = !p->stop;
    pthread_mutex_unlock(&p->lock);
    return go;
}

static void *fill_slots(void *arg)
{
    struct prefetch *p = arg;
    thread_name_set("prefetch");
    int code = OK;
    for (int64_t i = 0; !code && wait_for_room(p, i); i++) {
        struct err e = {.code = OK};
        code = dataset_batch(p->d, p->first_step + i, p->global_batch, p->first, &p->slots[i % p->n_slots], &e);
        pthread_mutex_lock(&p->lock);
        if (code) {
            p->code = code;
            p->error = e;
        } else {
            p->n_filled = i + 1;
        }
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

static void release(struct prefetch *p)
{
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    for (int i = 0; i < p->n_slots; i++) batch_fini(&p->slots[i]);
    xfree(p->slots);
    xfree(p);
}

int prefetch_new(struct prefetch **out, const struct dataset *d, int64_t first_step, int64_t global_batch,
                 int64_t first, int64_t count, int depth, struct err *e)
{
    CHECK(depth >= 1, "a prefetch of %d batches", depth);
    struct prefetch *p = xcalloc(1, sizeof *p);
    *p = (struct prefetch){.d = d,
                           .first_step = first_step,
                           .global_batch = global_batch,
                           .first = first,
                           .n_slots = depth + 1};
    p->slots = xcalloc((size_t)p->n_slots, sizeof *p->slots);
    for (int i = 0; i < p->n_slots; i++) batch_init(&p->slots[i], count, dataset_seq_len(d));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    int failed = pthread_create(&p->thread, NULL, fill_slots, p);
    *out = failed ? NULL : p;
    if (!failed) return OK;
    char limits[160];
    limit_threads_text(limits);
    release(p);
    return err_set(e, ERR_MEMORY,
                   "the thread that reads batches ahead could not be started: %s (%s); choose fewer threads "
                   "(run.threads), or raise the limit",
                   strerror(failed), limits);
}

/* The lock is held. */
static int next_is_there(struct prefetch *p, struct err *e)
{
    while (p->n_filled == p->n_taken && !p->code) pthread_cond_wait(&p->changed, &p->lock);
    return p->n_filled > p->n_taken ? OK : err_set(e, p->error.code, "%s", p->error.text);
}

int prefetch_wait(struct prefetch *p, struct err *e)
{
    pthread_mutex_lock(&p->lock);
    int code = next_is_there(p, e);
    pthread_mutex_unlock(&p->lock);
    return code;
}

int prefetch_next(struct prefetch *p, const struct batch **b, struct err *e)
{
    pthread_mutex_lock(&p->lock);
    int code = next_is_there(p, e);
    if (!code) *b = &p->slots[p->n_taken++ % p->n_slots];
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return code;
}

void prefetch_free(struct prefetch *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    release(p);
}
