/* SPDX-License-Identifier: Apache-2.0 */
/* One thread, one checkpoint at a time, the newest: what was published while one was copied comes next. While a step is
 * copied, keep-last-K does not remove it (in_use).
 */
#include "run/checkpoint_copies.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

struct copies {
    struct copy_place place;
    char *root;
    int keep;
    double retry_s;
    atomic_llong in_use;
    atomic_int give_up; /* for remote: whatever waits ends */
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int64_t wanted, done; /* steps; -1 none */
    bool ends;            /* no more will come */
};

/* -- the newest back ------------------------------------------------------------------------------------------- */

/* How new what root has is: its newest usable one's publication, and whether something that may be newer is damaged. */
static int newest_here(const char *root, int64_t *publication, bool *damaged, struct err *e)
{
    char *path = NULL, *nearest = NULL;
    struct err why;
    struct ckpt *c;
    *publication = -1;
    int rc = ckpt_recover(root, e);
    if (rc) return rc;
    int found = ckpt_newest(root, &path, &nearest, &why);
    *damaged = found != OK;
    const char *usable = path ? path : nearest;
    if (usable && ckpt_open(&c, usable, NULL) == OK) {
        *publication = ckpt_publication(c);
        ckpt_close(c);
    }
    xfree(path);
    xfree(nearest);
    return OK;
}

int copies_fetch(const struct copies_config *c, bool *fetched, struct err *e)
{
    struct copy_place place;
    struct copy_at there;
    int64_t here = -1;
    bool damaged = false;
    *fetched = false;
    int rc = copy_place_open(&place, c->to, c->remote, e);
    if (!rc) rc = newest_here(c->root, &here, &damaged, e);
    if (!rc) rc = copy_place_newest(&place, &there, e);
    if (rc == ERR_IO && here >= 0 && !damaged) { /* what is here is whole, and a copy is of what was here */
        log_warn("%s: what it has is unknown: %s; the run goes on from its own disk", place.shown, e->text);
        there.publication = -1;
        rc = OK;
    }
    if (!rc && there.publication > here) {
        double from = clock_now_s();
        log_info("%s has step %lld, which is newer than what %s has%s: fetching it", place.shown, (long long)there.step,
                 c->root, damaged ? " that is whole" : "");
        rc = copy_place_take(&place, there.step, c->root, e);
        if (!rc) log_info("fetched step %lld in %.2f s", (long long)there.step, clock_now_s() - from);
        *fetched = !rc;
    }
    copy_place_close(&place);
    return rc;
}

/* -- beside the steps ------------------------------------------------------------------------------------------ */

static char *dir_of(const struct copies *x, int64_t step)
{
    char name[40];
    snprintf(name, sizeof name, "step-%08lld", (long long)step);
    return fs_join(x->root, name);
}

static int copy_one(struct copies *x, int64_t step, struct err *e)
{
    double from = clock_now_s();
    bool made;
    char *dir = dir_of(x, step);
    atomic_store(&x->in_use, step);
    int rc = copy_place_put(&x->place, dir, x->keep, &made, e);
    atomic_store(&x->in_use, -1);
    if (!rc && made)
        log_info("copied step %lld to %s in %.2f s", (long long)step, x->place.shown, clock_now_s() - from);
    xfree(dir);
    return rc;
}

/* Waits for s seconds, or until no more will come; with the lock held. */
static void pause_for(struct copies *x, double s)
{
    double until = clock_now_s() + s;
    while (!x->ends && clock_now_s() < until) {
        pthread_mutex_unlock(&x->lock);
        clock_sleep_s(0.05);
        pthread_mutex_lock(&x->lock);
    }
}

static void *work(void *arg)
{
    struct copies *x = arg;
    int failed = 0;
    thread_name_set("copies");
    copy_place_tidy(&x->place); /* the run's lock is held: nobody else writes there */
    pthread_mutex_lock(&x->lock);
    for (;;) {
        while (x->wanted == x->done && !x->ends) pthread_cond_wait(&x->changed, &x->lock);
        if (x->wanted == x->done) break;
        int64_t step = x->wanted;
        bool last = x->ends; /* whatever comes of it, it is not tried again */
        pthread_mutex_unlock(&x->lock);
        struct err why = {0};
        int rc = copy_one(x, step, &why);
        pthread_mutex_lock(&x->lock);
        if (!rc) {
            failed = 0;
            x->done = step;
            continue;
        }
        failed++;
        if ((failed & (failed - 1)) == 0 || last) /* the 1st, 2nd, 4th, 8th ... in a row */
            log_warn("step %lld was not copied to %s: %s; %s", (long long)step, x->place.shown, why.text,
                     last ? "the next start of the run copies it" : "it is tried again, and the run goes on");
        if (last) break;
        pause_for(x, x->retry_s);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* The run's newest, and that no later publication is there, of another run. */
static int compare(struct copies *x, struct err *e)
{
    struct copy_at there;
    struct err why;
    int64_t here;
    bool damaged;
    char *path = NULL;
    int rc = newest_here(x->root, &here, &damaged, e);
    if (rc) return rc;
    rc = copy_place_newest(&x->place, &there, &why);
    if (rc) log_warn("%s: what it has is unknown: %s", x->place.shown, why.text);
    if (!rc && there.publication > here)
        return err_set(e, ERR_REQUEST,
                       "%s holds copies of another run, or of what this one does not go on from (step %lld is newer "
                       "than "
                       "all that this run has): its copies would never be the newest there; give another "
                       "checkpoint.copy_to, or remove what is there",
                       x->place.shown, (long long)there.step);
    if (ckpt_newest(x->root, &path, NULL, NULL) == OK && path) {
        const char *slash = strrchr(path, '/');
        x->wanted = ckpt_step_of(slash ? slash + 1 : path);
    }
    xfree(path);
    return OK;
}

int copies_begin(struct copies **out, const struct copies_config *c, struct err *e)
{
    struct copies *x = xcalloc(1, sizeof *x);
    struct remote_options o = c->remote ? *c->remote : remote_defaults();
    *out = x;
    x->root = xstrdup(c->root);
    x->keep = to_int(c->keep);
    x->retry_s = c->retry_s;
    x->wanted = x->done = -1;
    atomic_init(&x->in_use, -1);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    o.give_up = &x->give_up;
    int rc = copy_place_open(&x->place, c->to, &o, e);
    if (!rc) rc = compare(x, e);
    if (!rc) {
        int failed = pthread_create(&x->thread, NULL, work, x);
        if (failed) rc = err_set(e, ERR_MEMORY, "no thread to copy checkpoints with: %s", strerror(failed));
        x->runs = !failed;
    }
    if (rc) {
        copies_end(x, true);
        *out = NULL;
    }
    return rc;
}

void copies_offer(struct copies *x, int64_t step)
{
    if (!x) return;
    pthread_mutex_lock(&x->lock);
    if (x->wanted != x->done && x->wanted != atomic_load(&x->in_use))
        log_info("step %lld is not copied: step %lld came before its turn", (long long)x->wanted, (long long)step);
    x->wanted = step;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

const atomic_llong *copies_in_use(const struct copies *x) { return x ? &x->in_use : NULL; }

void copies_end(struct copies *x, bool at_once)
{
    if (!x) return;
    if (at_once) atomic_store(&x->give_up, 1);
    pthread_mutex_lock(&x->lock);
    x->ends = true;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
    if (x->runs) pthread_join(x->thread, NULL);
    copy_place_close(&x->place);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    xfree(x->root);
    xfree(x);
}
