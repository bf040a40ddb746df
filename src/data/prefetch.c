/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.c: a ring of depth + 1 batches between the owner and its workers.
 *
 * The owner holds the slot it was given last; the other `depth` are the workers' to fill. A worker takes the next batch
 * that nobody has taken, fills it, and says so; the owner gets batch i when batch i is filled, so which worker was how
 * fast changes nothing but the time. After an error at batch i nothing behind i is begun, and what is before i still
 * comes. The mutex guards all fields from n_begun on; a slot's contents belong to whoever these say.
 */
#include "data/prefetch.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/thread.h"

struct prefetch {
    const struct dataset *d;
    struct prefetch_config c;
    int n_slots;
    struct batch *slots; /* batch i is in slots[i % n_slots] */
    pthread_t *thread;
    int n_threads;
    double waited_s; /* the owner's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t n_begun, n_taken; /* batches */
    bool *filled;             /* of each slot: its batch is there */
    int64_t failed;           /* the batch of `error`; INT64_MAX: none */
    struct err error;
    bool stop;
};

/* The next batch to fill, when there is a free slot for it; -1 when it is time to stop. */
static int64_t begin_batch(struct prefetch *p)
{
    int64_t i = -1;
    pthread_mutex_lock(&p->lock);
    while (!p->stop && p->failed == INT64_MAX && p->n_begun - p->n_taken >= p->n_slots - (p->n_taken > 0))
        pthread_cond_wait(&p->changed, &p->lock);
    if (!p->stop && p->failed == INT64_MAX) i = p->n_begun++;
    pthread_mutex_unlock(&p->lock);
    return i;
}

static void end_batch(struct prefetch *p, int64_t i, int code, const struct err *e)
{
    pthread_mutex_lock(&p->lock);
    if (!code) {
        p->filled[i % p->n_slots] = true;
    } else if (i < p->failed) {
        p->failed = i;
        p->error = *e;
        err_prefix(&p->error, "the batch of step %lld", (long long)(p->c.first_step + i + 1)); /* as metrics count */
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void *fill_slots(void *arg)
{
    struct prefetch *p = arg;
    thread_name_set("prefetch");
    for (int64_t i; (i = begin_batch(p)) >= 0;) {
        struct err e = {.code = OK};
        int code =
            dataset_batch(p->d, p->c.first_step + i, p->c.global_batch, p->c.first, &p->slots[i % p->n_slots], &e);
        end_batch(p, i, code, &e);
    }
    return NULL;
}

static void stop_threads(struct prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++) pthread_join(p->thread[i], NULL);
}

void prefetch_free(struct prefetch *p)
{
    if (!p) return;
    stop_threads(p);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    for (int i = 0; i < p->n_slots && !p->c.memory; i++) batch_fini(&p->slots[i]);
    xfree(p->slots);
    xfree(p->filled);
    xfree(p->thread);
    xfree(p);
}

size_t prefetch_bytes(int64_t count, int64_t seq_len, int64_t n_pixels, int depth)
{
    return (size_t)(depth + 1) * batch_memory(count, seq_len, n_pixels);
}

static void make_slots(struct prefetch *p)
{
    int64_t n = p->c.count, seq = dataset_seq_len(p->d), pixels = dataset_pixels(p->d);
    size_t each = batch_memory(n, seq, pixels);
    p->n_slots = p->c.depth + 1;
    p->slots = xcalloc((size_t)p->n_slots, sizeof *p->slots);
    p->filled = xcalloc((size_t)p->n_slots, sizeof *p->filled);
    for (int i = 0; i < p->n_slots; i++)
        if (p->c.memory) batch_place(&p->slots[i], n, seq, pixels, (char *)p->c.memory + (size_t)i * each);
        else batch_init_pictures(&p->slots[i], n, seq, pixels);
}

int prefetch_new(struct prefetch **out, const struct dataset *d, const struct prefetch_config *c, struct err *e)
{
    int workers = c->workers ? c->workers : 1, failed = 0;
    CHECK(c->depth >= 1 && workers >= 1 && workers <= c->depth, "%d workers and %d batches ahead", workers, c->depth);
    struct prefetch *p = xcalloc(1, sizeof *p);
    p->d = d;
    p->c = *c;
    p->failed = INT64_MAX;
    make_slots(p);
    p->thread = xcalloc((size_t)workers, sizeof *p->thread);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    while (!failed && p->n_threads < workers) {
        failed = pthread_create(&p->thread[p->n_threads], NULL, fill_slots, p);
        p->n_threads += !failed;
    }
    *out = failed ? NULL : p;
    if (!failed) return OK;
    char limits[160];
    limit_threads_text(limits);
    prefetch_free(p);
    return err_set(e, ERR_MEMORY,
                   "a thread that reads batches ahead could not be started: %s (%s); choose fewer threads "
                   "(run.threads, data.workers), or raise the limit",
                   strerror(failed), limits);
}

/* The lock is held. */
static int next_is_there(struct prefetch *p, struct err *e)
{
    int slot = (int)(p->n_taken % p->n_slots);
    if (!p->filled[slot] && p->failed != p->n_taken) {
        double from = clock_now_s();
        while (!p->filled[slot] && p->failed != p->n_taken) pthread_cond_wait(&p->changed, &p->lock);
        p->waited_s += clock_now_s() - from;
    }
    return p->filled[slot] ? OK : err_set(e, p->error.code, "%s", p->error.text);
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
    int code = next_is_there(p, e), slot = (int)(p->n_taken % p->n_slots);
    if (!code) {
        *b = &p->slots[slot];
        p->filled[slot] = false; /* and the owner's until the next call */
        p->n_taken++;
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return code;
}

double prefetch_waited_s(const struct prefetch *p) { return p->waited_s; }
