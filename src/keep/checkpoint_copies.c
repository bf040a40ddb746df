/* SPDX-License-Identifier: Apache-2.0 */
/* One thread, one checkpoint at a time, the newest: what was published while one was copied comes next. While a step is
 * copied, keep-last-K does not remove it (in_use).
 */
#include "keep/checkpoint_copies.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "keep/run_name.h"

struct copies {
    struct copy_place place;
    char *root, *dir; /* of checkpoints; run.dir, absolute */
    uint64_t run;
    int keep;
    struct copies_found found;
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

/* -- both sides ------------------------------------------------------------------------------------------------ */

/* What this run's disk and the place hold, side by side. */
struct sides {
    struct ckpt_held here;
    struct ckpt_listing *own; /* all of `here` */
    int n_own;
    char *dir; /* run.dir, absolute */
    struct copy_self me;
    struct copy_held there;
    uint64_t run; /* whose `there` is; 0: nobody's */
    bool others;  /* and that is another run */
};

static char *absolute(const char *path)
{
    char *real = realpath(path, NULL), *out = xstrdup(real ? real : path);
    free(real);
    return out;
}

/* The run's name is what its folder says, or else its newest checkpoint. */
static int look_here(struct sides *s, const struct copies_config *c, struct err *e)
{
    uint64_t run = c->run;
    *s = (struct sides){.dir = absolute(c->run_dir)};
    int rc = ckpt_recover(c->root, e);
    if (!rc) ckpt_hold(&s->here, c->root);
    if (!rc) rc = ckpt_list(c->root, &s->own, &s->n_own, e);
    if (!rc && !run && run_name_read(c->run_dir, &run, e) == HELD_UNKNOWN) rc = (int)e->code;
    s->me = (struct copy_self){run ? run : s->here.newest.run, s->dir, s->own, s->n_own, c->takes};
    return rc;
}

/* Of the place; *e says why it is unknown, or that it is another run's. */
static int look_there(struct sides *s, struct copy_place *p, const struct ckpt_listing *beside, struct err *e)
{
    copy_place_look(p, beside, &s->there);
    bool read = s->there.what != HELD_UNKNOWN || s->there.owned;
    int rc = read ? copy_held_ours(p, &s->there, &s->me, &s->run, e) : OK;
    s->others = rc != OK;
    if (!rc && s->there.what == HELD_UNKNOWN) rc = err_set(e, s->there.why.code, "%s", s->there.why.text);
    return rc;
}

static void sides_free(struct sides *s)
{
    ckpt_held_free(&s->here);
    ckpt_list_free(s->own, s->n_own);
    copy_held_free(&s->there);
    xfree(s->dir);
}

/* -- the newest back ------------------------------------------------------------------------------------------- */

static void say_damaged(const struct sides *s)
{
    for (int i = 0; i < s->there.n; i++)
        if (s->there.list[i].code) log_warn("a copy that cannot be used: %s", s->there.list[i].problem);
}

/* How new what is here is, as far as it can be used; what is damaged is not. */
static int64_t newest_here(const struct sides *s, bool damaged)
{
    int64_t newest = -1;
    for (int i = 0; i < s->n_own; i++) {
        const struct ckpt_listing *x = &s->own[i];
        bool is_newest = s->here.newest.path && !strcmp(x->path, s->here.newest.path);
        if (x->code == OK && !(damaged && is_newest) && x->publication > newest) newest = x->publication;
    }
    return newest;
}

static int pass(struct copies_found *f, const struct ckpt_listing *x, struct err *why, struct err *e)
{
    log_warn("the copy of step %lld is damaged, and the next one is tried: %s", (long long)x->step, why->text);
    if (f->n_passed == COPIES_PASSED) return err_set(e, ERR_CORRUPT, "%s; so are %d others", why->text, f->n_passed);
    f->passed[f->n_passed++] = x->step;
    return OK;
}

/* Those that are newer than what is here, the newest first, until one is whole. */
static int fetch_first(struct sides *s, struct copy_place *p, const struct copies_config *c, struct copies_found *f,
                       struct err *e)
{
    struct err why = {0};
    int64_t here = newest_here(s, c->damaged);
    int rc = OK;
    for (int i = s->there.n - 1; i >= 0 && !rc && !f->fetched; i--) {
        const struct ckpt_listing *x = &s->there.list[i];
        if (x->code || x->publication <= here) continue;
        double from = clock_now_s();
        log_info("%s has step %lld, which is newer than what %s has%s: fetching it", p->shown, (long long)x->step,
                 c->root, s->n_own ? " that is whole" : "");
        rc = copy_place_take(p, x->step, c->root, &why);
        if (rc == ERR_CORRUPT) rc = copy_place_take(p, x->step, c->root, &why); /* a wrong answer comes once */
        f->fetched = !rc;
        if (!rc) log_info("fetched step %lld in %.2f s", (long long)x->step, clock_now_s() - from);
        if (rc == ERR_CORRUPT) rc = pass(f, x, &why, e);
        else if (rc) *e = why;
    }
    if (!rc && f->n_passed && !f->fetched && here < 0)
        rc = err_set(e, ERR_CORRUPT, "%s: every copy that is there is damaged, the last one: %s", p->shown, why.text);
    if (f->fetched) f->run = s->run;
    return rc;
}

static int fetch(struct sides *s, struct copy_place *p, const struct copies_config *c, struct copies_found *f,
                 struct err *e)
{
    static const char anyway[] = "; to begin afresh whatever is there: checkpoint.resume=never, with another "
                                 "checkpoint.copy_to";
    bool whole = s->here.what == HELD_KNOWN && !c->damaged;
    int rc = look_there(s, p, whole ? &s->here.newest : NULL, e);
    if (s->there.what != HELD_UNKNOWN && !s->others) say_damaged(s);
    if (rc && rc != ERR_SIGNAL && !s->others && (whole || s->here.what == HELD_UNKNOWN)) {
        log_warn("%s: what it has is unknown: %s; %s", p->shown, e->text,
                 whole ? "the run goes on from its own disk" : "nothing is fetched");
        return OK;
    }
    if (!rc) rc = fetch_first(s, p, c, f, e);
    if (rc && rc != ERR_SIGNAL && !s->others && s->here.what == HELD_NONE &&
        strlen(e->text) + sizeof anyway < sizeof e->text)
        strcat(e->text, anyway);
    return rc;
}

int copies_fetch(const struct copies_config *c, struct copies_found *found, struct err *e)
{
    struct sides s;
    struct copy_place p;
    *found = (struct copies_found){0};
    int rc = look_here(&s, c, e), opened = copy_place_open(&p, c->to, c->remote, rc ? NULL : e);
    if (!rc) rc = opened;
    /* Of a disk that fails, or of a newer tutti's checkpoint, the run itself says why it does not go on. */
    bool stops = s.here.what == HELD_UNKNOWN && s.here.why.code != ERR_CORRUPT;
    if (!rc && !stops) rc = fetch(&s, &p, c, found, e);
    copy_place_close(&p);
    sides_free(&s);
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
    bool made = false;
    int n_own;
    struct ckpt_listing *own;
    char *dir = dir_of(x, step);
    atomic_store(&x->in_use, step);
    int rc = ckpt_list(x->root, &own, &n_own, e);
    struct copy_put put = {.me = {.run = x->run, .dir = x->dir, .own = own, .n_own = n_own},
                           .from = dir,
                           .keep = x->keep,
                           .passed = x->found.passed,
                           .n_passed = x->found.n_passed};
    if (!rc) rc = copy_place_put(&x->place, &put, &made, e);
    ckpt_list_free(own, n_own);
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

/* Whether the place is this run's, and has nothing that is later than what the run has. */
static int compare(struct copies *x, const struct copies_config *c, struct err *e)
{
    struct sides s;
    int rc = look_here(&s, c, e);
    bool known = s.here.what == HELD_KNOWN;
    if (known) x->wanted = s.here.newest.step;
    if (!rc) rc = look_there(&s, &x->place, known ? &s.here.newest : NULL, e);
    if (rc && rc != ERR_SIGNAL && s.there.what == HELD_UNKNOWN && !s.others) {
        log_warn("%s: what it has is unknown: %s; nothing is copied until it is known", x->place.shown, e->text);
        rc = OK;
    }
    int64_t here = newest_here(&s, false);
    for (int i = 0; !rc && i < s.there.n; i++) {
        const struct ckpt_listing *t = &s.there.list[i];
        bool passed = false;
        for (int k = 0; k < x->found.n_passed; k++) passed |= x->found.passed[k] == t->step;
        if (t->code == OK && t->publication > here && !passed)
            rc = err_set(e, ERR_REQUEST,
                         "%s holds a copy of step %lld, which was published later than all that this run has, and "
                         "which it does not go on from: its copies would never be the newest there; give another "
                         "checkpoint.copy_to, or remove what is there",
                         x->place.shown, (long long)t->step);
    }
    sides_free(&s);
    return rc;
}

int copies_begin(struct copies **out, const struct copies_config *c, struct err *e)
{
    struct copies *x = xcalloc(1, sizeof *x);
    struct remote_options o = c->remote ? *c->remote : remote_defaults();
    *out = x;
    x->root = xstrdup(c->root);
    x->dir = absolute(c->run_dir);
    x->run = c->run;
    if (c->found) x->found = *c->found;
    x->keep = to_int(c->keep);
    x->retry_s = c->retry_s;
    x->wanted = x->done = -1;
    atomic_init(&x->in_use, -1);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    o.give_up = &x->give_up;
    int rc = copy_place_open(&x->place, c->to, &o, e);
    if (!rc) rc = compare(x, c, e);
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
    xfree(x->dir);
    xfree(x);
}
