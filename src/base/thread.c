/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c: a team of persistent workers, thread names, the cores we may use.
 *
 * Idea: three gates (start, done, barrier). A gate is a counter that only grows: who waits remembers the value
 * and waits for another one, so a wake-up can be neither lost nor counted twice. A waiter looks at the counter
 * for SPIN_S, which covers the gap between two kernels, and then sleeps on a condition variable. It spins only
 * if the team has a core for each member; else it would burn the time slice of the thread it waits for.
 * Cost of an empty team_run: about a microsecond while the workers still spin, tens when they sleep.
 *
 * Rejected: a queue of tasks (who runs what would depend on timing), OpenMP (its pool belongs to the process,
 * not to a rank), futexes (what they save over an uncontended mutex was not worth the second code path).
 */
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"

#define SPIN_S 50e-6
#define CACHE_LINE 64

struct gate {
    _Alignas(CACHE_LINE) atomic_uint opened; /* times; written under the lock, read anywhere */
    pthread_mutex_t lock;                    /* makes "look, then sleep" one step */
    pthread_cond_t changed;
};

struct worker {
    struct team *team;
    pthread_t thread;
    int member;
};

/* fn, arg and quit are written by the owner before it opens `start` and read by workers after that; the gates'
 * acquire and release order them. */
struct team {
    struct gate start, done, meet;
    _Alignas(CACHE_LINE) atomic_int working; /* workers still inside fn */
    _Alignas(CACHE_LINE) atomic_int arrived; /* members waiting at the barrier */
    int n;
    bool spin, running, quit;
    team_fn *fn;
    void *arg;
    struct worker *workers; /* members 1 .. n-1 */
};

static void gate_init(struct gate *g)
{
    atomic_init(&g->opened, 0);
    CHECK(!pthread_mutex_init(&g->lock, NULL) && !pthread_cond_init(&g->changed, NULL), "no mutex to be had");
}

static void gate_fini(struct gate *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

static unsigned gate_now(struct gate *g) { return atomic_load_explicit(&g->opened, memory_order_acquire); }

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add_explicit(&g->opened, 1, memory_order_release);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Tells the core that this is a spin, so that its sibling thread gets the pipeline. */
#if defined(__x86_64__)
#define relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define relax() __asm__ volatile("yield")
#else
#define relax() ((void)0)
#endif

/* Returns once the gate has been opened since `seen` was read. */
static void gate_wait(struct gate *g, unsigned seen, bool spin)
{
    if (spin) {
        double until = clock_now_s() + SPIN_S;
        do {
            for (int i = 0; i < 32; i++) {
                if (gate_now(g) != seen) return;
                relax();
            }
        } while (clock_now_s() < until);
    }
    pthread_mutex_lock(&g->lock);
    while (gate_now(g) == seen) pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void *worker_main(void *p)
{
    struct worker *w = p;
    struct team *t = w->team;
    char name[16];
    thread_name_get(name); /* inherited from the owner: "r3 s0" becomes "r3 w1" */
    name[strcspn(name, " ")] = 0;
    thread_name_set("%.9s w%d", name, w->member);
    for (unsigned seen = 0;; seen++) { /* the owner cannot open `start` twice before this member is done */
        gate_wait(&t->start, seen, t->spin);
        if (t->quit) return NULL;
        t->fn(t->arg, w->member, t->n);
        if (atomic_fetch_sub_explicit(&t->working, 1, memory_order_acq_rel) == 1) gate_open(&t->done);
    }
}

int team_start(struct team **out, int n_threads, struct err *e)
{
    CHECK(n_threads >= 1, "a team of %d", n_threads);
    struct team *t = mem_pages_new(sizeof *t); /* whole pages: the gates' cache lines stay aligned */
    int failed = t ? 0 : ENOMEM;
    *out = NULL;
    if (!t) return err_errno(e, ERR_MEMORY, failed, "no page for a team of %d threads", n_threads);
    t->n = n_threads;
    t->spin = n_threads <= thread_n_cores();
    t->workers = xcalloc((size_t)n_threads, sizeof *t->workers);
    gate_init(&t->start);
    gate_init(&t->done);
    gate_init(&t->meet);
    for (int i = 1; !failed && i < n_threads; i++) {
        t->workers[i] = (struct worker){.team = t, .member = i};
        failed = pthread_create(&t->workers[i].thread, NULL, worker_main, &t->workers[i]);
        if (failed) t->n = i; /* who is to be joined */
    }
    if (!failed) {
        *out = t;
        return OK;
    }
    char limits[160];
    limit_threads_text(limits);
    int rc = err_set(e, ERR_MEMORY,
                     "thread %d of %d could not be started: %s (%s); choose fewer (run.threads), or raise the limit",
                     t->n, n_threads, strerror(failed), limits);
    team_free(t);
    return rc;
}

struct team *team_new(int n_threads)
{
    struct team *t;
    struct err e = {0};
    CHECK(!team_start(&t, n_threads, &e), "%s", e.text);
    return t;
}

void team_free(struct team *t)
{
    if (!t) return;
    t->quit = true;
    gate_open(&t->start);
    for (int i = 1; i < t->n; i++) pthread_join(t->workers[i].thread, NULL);
    gate_fini(&t->start);
    gate_fini(&t->done);
    gate_fini(&t->meet);
    xfree(t->workers);
    mem_pages_free(t, sizeof *t);
}

int team_size(const struct team *t) { return t ? t->n : 1; }

void team_run(struct team *t, team_fn *fn, void *arg)
{
    if (!t || t->n == 1) {
        fn(arg, 0, 1);
        return;
    }
    CHECK(!t->running, "team_run inside team_run");
    t->running = true;
    t->fn = fn;
    t->arg = arg;
    atomic_store_explicit(&t->working, t->n - 1, memory_order_relaxed);
    unsigned seen = gate_now(&t->done);
    gate_open(&t->start);
    fn(arg, 0, t->n);
    gate_wait(&t->done, seen, t->spin);
    t->running = false;
}

void team_barrier(struct team *t)
{
    if (!t || t->n == 1) return;
    unsigned seen = gate_now(&t->meet);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 < t->n) {
        gate_wait(&t->meet, seen, t->spin);
        return;
    }
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed); /* before the gate: nobody is past it yet */
    gate_open(&t->meet);
}

void thread_name_set(const char *fmt, ...)
{
    char name[16];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    pthread_setname_np(pthread_self(), name);
}

void thread_name_get(char out[16])
{
    if (pthread_getname_np(pthread_self(), out, 16)) strcpy(out, "?");
}

/* Cores that one cgroup v2 directory allows, rounded up; INT_MAX where it sets no limit. */
static int quota_of(const char *dir)
{
    char path[4300];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", dir);
    FILE *f = fopen(path, "r");
    if (!f) return INT32_MAX;
    long long quota, period;
    int n = fscanf(f, "%lld %lld", &quota, &period); /* "max 100000" reads nothing */
    fclose(f);
    if (n != 2 || quota <= 0 || period <= 0) return INT32_MAX;
    long long cores = (quota + period - 1) / period;
    return cores > INT32_MAX ? INT32_MAX : (int)cores;
}

static pthread_once_t quota_once = PTHREAD_ONCE_INIT;
static int quota_cores = INT32_MAX; /* written once */

/* The smallest limit from our cgroup up to the root of what we can see, as it is when somebody first asks: a plan of
 * thousands of layouts asks for each. */
static void quota_read(void)
{
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return;
    char line[4200], dir[4200] = "";
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(dir, sizeof dir, "%s", line + 3);
    }
    fclose(f);
    for (;;) {
        int here = quota_of(dir);
        if (here < quota_cores) quota_cores = here;
        char *slash = strrchr(dir, '/');
        if (!slash) return;
        *slash = 0;
    }
}

int thread_quota_cores(void)
{
    pthread_once(&quota_once, quota_read);
    return quota_cores;
}

#define MAX_CPUS 16384

int thread_n_cores(void)
{
    unsigned long mask[MAX_CPUS / 8 / sizeof(unsigned long)] = {0};
    int n = 1;
    if (!sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask)) n = CPU_COUNT_S(sizeof mask, (cpu_set_t *)mask);
    int quota = thread_quota_cores();
    if (quota < n) n = quota;
    return n < 1 ? 1 : n;
}
