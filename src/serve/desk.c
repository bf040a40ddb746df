/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of calls and a few threads. One thread would do, but for a request whose template takes its time. */
#include "serve/desk.h"

#include <pthread.h>

#include "base/cond.h"
#include "base/mem.h"

enum { THREADS = 8 };

struct desk {
    void (*read)(void *ctx, struct http_call *c);
    void (*over)(void *ctx, struct http_call *c);
    void *ctx;
    int most, n_threads;
    pthread_t thread[THREADS];

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t came;
    struct http_call **line; /* [most], a ring: n from `first` on */
    int first, n;
    bool shut;
};

static struct http_call *take(struct desk *d) /* with the lock */
{
    struct http_call *c = d->line[d->first];
    d->first = (d->first + 1) % d->most;
    d->n--;
    return c;
}

static void *work(void *ctx)
{
    struct desk *d = ctx;
    pthread_mutex_lock(&d->lock);
    while (!d->shut) {
        if (!d->n) {
            pthread_cond_wait(&d->came, &d->lock);
            continue;
        }
        struct http_call *c = take(d);
        pthread_mutex_unlock(&d->lock);
        d->read(d->ctx, c);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

bool desk_put(struct desk *d, struct http_call *c)
{
    pthread_mutex_lock(&d->lock);
    bool room = d->n < d->most && !d->shut;
    if (room) d->line[(d->first + d->n++) % d->most] = c;
    if (room) pthread_cond_signal(&d->came);
    pthread_mutex_unlock(&d->lock);
    return room;
}

int desk_open(struct desk **out, int threads, int most, void (*read)(void *ctx, struct http_call *c),
              void (*over)(void *ctx, struct http_call *c), void *ctx, struct err *e)
{
    CHECK(threads > 0 && threads <= THREADS && most > 0, "a desk of %d threads for %d calls", threads, most);
    struct desk *d = xcalloc(1, sizeof *d);
    *d = (struct desk){.read = read, .over = over, .ctx = ctx, .most = most};
    d->line = xcalloc((size_t)most, sizeof *d->line);
    pthread_mutex_init(&d->lock, NULL);
    cond_init(&d->came);
    int failed = 0;
    while (d->n_threads < threads && !failed) {
        failed = pthread_create(&d->thread[d->n_threads], NULL, work, d);
        d->n_threads += !failed;
    }
    *out = d;
    if (!failed) return OK;
    desk_shut(d);
    desk_free(d);
    *out = NULL;
    return err_errno(e, ERR_MEMORY, failed, "a thread that reads requests cannot be started");
}

void desk_shut(struct desk *d)
{
    pthread_mutex_lock(&d->lock);
    d->shut = true;
    pthread_cond_broadcast(&d->came);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->n_threads; i++) pthread_join(d->thread[i], NULL);
    d->n_threads = 0;
    while (d->n) d->over(d->ctx, take(d)); /* nobody else is here any more */
}

void desk_free(struct desk *d)
{
    if (!d) return;
    CHECK(d->shut && !d->n_threads, "a desk is freed that is not shut");
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->came);
    xfree(d->line);
    xfree(d);
}
