/* SPDX-License-Identifier: Apache-2.0 */
/* One thread at a time for each rank, made for its part and joined after it. It touches the copy of the state and
 * files, never a communicator or a device: those are the rank's own thread's. */
#include "keep/async_save.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

struct async_save {
    const struct engine *g;
    const struct ranks *r;
    char *root;
    struct save_words words;
    struct ckpt_tensor *t; /* in the snapshot */
    int64_t n;
    bool publishes; /* else it writes */
    double from_s, paused_s;
    pthread_t thread;
    bool runs; /* the thread is to be joined */
    atomic_bool done;
    int rc; /* the thread's, when it is done */
    struct err why;
};

static int agree(const struct ranks *r, int rc, struct err *e) { return r->world ? comm_agree(r->world, rc, e) : rc; }

static void *work(void *arg)
{
    struct async_save *x = arg;
    const struct ckpt_info *info = &x->words.info;
    thread_name_set("r%d save %s", x->r->rank, x->publishes ? "pub" : "");
    x->rc = x->publishes ? ckpt_save_publish(x->root, x->r->n_writers, info, &x->why)
                         : save_rank(info, x->root, x->r->writer, x->t, x->n, &x->why);
    atomic_store(&x->done, true);
    return NULL;
}

/* A rank without a part is done at once. Where the system has no thread the part is done here and the steps wait. */
static void start(struct async_save *x)
{
    bool mine = x->publishes ? x->r->rank == 0 : x->r->writes;
    x->rc = OK;
    x->why = (struct err){0};
    atomic_store(&x->done, !mine);
    if (!mine) return;
    int failed = pthread_create(&x->thread, NULL, work, x);
    x->runs = !failed;
    if (!failed) return;
    char name[16];
    thread_name_get(name);
    log_warn("checkpoint.async: no thread to write with (%s): the steps wait this time", strerror(failed));
    work(x);
    thread_name_set("%s", name);
}

static void join(struct async_save *x)
{
    if (x->runs) pthread_join(x->thread, NULL);
    x->runs = false;
}

static int begin(struct async_save *x, struct err *e)
{
    const struct engine *g = x->g;
    const struct ranks *r = x->r;
    int64_t step = x->words.info.step;
    int rc = save_is_worth(g, r, step, e);
    if (rc) return rc;
    if (r->rank == 0) rc = ckpt_save_begin(x->root, step, e);
    if (!rc && r->writes) rc = snapshot_take(&g->snapshot, &g->store, g->stream, g->snapshot_room.p, e);
    rc = agree(r, rc, e);
    return rc ? save_abort(g, r, x->root, step, rc, e) : OK;
}

int async_save_begin(struct async_save **out, const struct engine *g, const struct ranks *r, const struct save_info *s,
                     struct err *e)
{
    struct async_save *x = xcalloc(1, sizeof *x);
    *out = NULL;
    CHECK(g->snapshot_room.p || !r->writes || !g->snapshot.n, "no room for a snapshot");
    x->g = g;
    x->r = r;
    x->root = xstrdup(s->root);
    x->from_s = clock_now_s();
    save_words_make(&x->words, g, s);
    int rc = begin(x, e);
    if (rc) {
        async_save_free(x);
        return rc;
    }
    if (r->writes) x->n = save_describe(g, g->snapshot_room.p, &x->t);
    start(x);
    x->paused_s = clock_now_s() - x->from_s;
    *out = x;
    return OK;
}

bool async_save_is_busy(const struct async_save *x) { return !atomic_load(&x->done); }

static int go_on(struct async_save *x, bool *over, struct err *e)
{
    join(x);
    if (x->rc && e) *e = x->why;
    int rc = agree(x->r, x->rc, e);
    *over = !rc && x->publishes;
    if (rc) return save_abort(x->g, x->r, x->root, x->words.info.step, rc, e);
    if (*over) return OK;
    x->publishes = true;
    start(x);
    return OK;
}

int async_save_next(struct async_save *x, bool *over, struct err *e)
{
    double from = clock_now_s();
    int rc = go_on(x, over, e);
    x->paused_s += clock_now_s() - from; /* the steps waited meanwhile */
    return rc;
}

int async_save_finish(struct async_save *x, struct err *e)
{
    bool over = false;
    int rc = OK;
    while (!rc && !over) rc = async_save_next(x, &over, e);
    return rc;
}

struct ckpt_told async_save_told(const struct async_save *x) { return x->words.told; }

int64_t async_save_step(const struct async_save *x) { return x->words.info.step; }

double async_save_seconds(const struct async_save *x, double *paused)
{
    *paused = x->paused_s;
    return clock_now_s() - x->from_s;
}

void async_save_free(struct async_save *x)
{
    if (!x) return;
    join(x);
    save_forget(x->t, x->n);
    save_words_free(&x->words);
    xfree(x->root);
    xfree(x);
}
