/* SPDX-License-Identifier: Apache-2.0 */
/* hang.c: one thread that sleeps until somebody asks. First the addresses of all threads are taken, which is a matter
 * of milliseconds, and only then are they given names. Files of other processes are known to be new by their inode,
 * since every writing makes a new file; the groups are made from the files, so ranks of other hosts are in it too.
 */
#include "watch/hang.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stacks.h"
#include "base/symbols.h"
#include "base/thread.h"
#include "watch/hang_groups.h"

#define OWN_WITHIN_S 1.0    /* for threads of this process to answer */
#define OTHERS_WITHIN_S 3.0 /* for other processes to write their files */
#define RECENT_S 120.0      /* files of ranks of other hosts that belong to the same hang */

struct member_rank { /* a rank that is a thread of this process */
    struct comm *world;
    const struct engine *engine;
    int rank;
    pid_t tid;
};

struct hang {
    pthread_t thread;
    struct stacks *stacks;
    pthread_mutex_t ask; /* guards what is wanted; never held for long */
    pthread_cond_t wake;
    bool quit, own, all;
    enum { LATE_NO, LATE_ASKED, LATE_DONE } late;
    double late_done_s;
    char why[400];
    pthread_mutex_t lock; /* guards the rest, and is held while it is written: engines and worlds stay until then */
    char *dir;
    struct member_rank *rank; /* ascending */
    int n, room;
};

/* ---- the ranks ---- */

void hang_dir(struct hang *h, const char *dir)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    xfree(h->dir);
    h->dir = xstrdup(dir);
    pthread_mutex_unlock(&h->lock);
}

void hang_enter(struct hang *h, struct comm *world)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    GROW(h->rank, h->n, h->room, 1);
    int rank = world ? comm_rank(world) : 0, at = h->n++;
    for (; at > 0 && h->rank[at - 1].rank > rank; at--) h->rank[at] = h->rank[at - 1];
    h->rank[at] = (struct member_rank){.world = world, .rank = rank, .tid = (pid_t)syscall(SYS_gettid)};
    pthread_mutex_unlock(&h->lock);
}

void hang_engine(struct hang *h, const struct comm *world, const struct engine *g)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < h->n; i++)
        if (h->rank[i].world == world) h->rank[i].engine = g;
    pthread_mutex_unlock(&h->lock);
}

void hang_leave(struct hang *h, const struct comm *world)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    int i = 0;
    while (i < h->n && h->rank[i].world != world) i++;
    if (i < h->n) memmove(&h->rank[i], &h->rank[i + 1], (size_t)(--h->n - i) * sizeof *h->rank);
    pthread_mutex_unlock(&h->lock);
}

/* ---- one process ---- */

static void put_head(struct str *s, const char *why, pid_t pid)
{
    char host[64] = "", when[40];
    time_t now = time(NULL);
    struct tm t;
    gethostname(host, sizeof host - 1);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", gmtime_r(&now, &t));
    str_printf(s, "%s\nprocess %ld on %s, %s UTC\n\n", why, (long)pid, host, when);
}

/* rank -1: of no rank. */
static void put_thread(struct str *s, const struct stack *t, int rank, struct symbols *names)
{
    char owner[32] = "";
    if (rank >= 0) snprintf(owner, sizeof owner, " of rank %d", rank);
    str_printf(s, "thread %ld '%s'%s: %s%s%s%s\n", (long)t->tid, t->name, owner, stacks_state(t->state),
               *t->wait ? " (" : "", t->wait, *t->wait ? ")" : "");
    for (int i = 0; i < t->n; i++) {
        str_puts(s, HANG_FRAME);
        symbols_name(names, t->at[i], i > 0, s);
        str_putc(s, '\n');
    }
    if (!t->n) str_puts(s, HANG_FRAME "(no stack: it did not answer)\n");
    str_putc(s, '\n');
}

static void write_file(const char *dir, const char *name, const struct str *text)
{
    struct err e = {0};
    char *path = fs_join(dir, name);
    if (fs_write_atomic(path, text->p, text->n, &e)) log_or_drop(LOG_WARN, "stacks: %s", e.text);
    xfree(path);
}

/* "rank 3: step 12, ...; is in all_reduce ..." of each rank here. Under the lock: engines and worlds stay. */
static void put_ranks(struct hang *h, struct str *s)
{
    for (int i = 0; i < h->n; i++) {
        const struct member_rank *m = &h->rank[i];
        char doing[COMM_DOING] = "";
        int rank;
        str_printf(s, HANG_RANK "%d: ", m->rank);
        if (m->engine) engine_doing(m->engine, s);
        else str_puts(s, "no step yet");
        for (int k = 0; m->world && k < comm_seen(m->world); k++) {
            comm_seen_doing(m->world, k, &rank, doing);
            if (rank == m->rank) str_printf(s, "; %s", doing);
        }
        str_putc(s, '\n');
    }
    str_putc(s, '\n');
}

static int rank_of(const struct hang *h, pid_t thread)
{
    for (int i = 0; i < h->n; i++)
        if (h->rank[i].tid == thread) return h->rank[i].rank;
    return -1;
}

/* Where no directory is known yet (the MPI library does not come up) they go to stderr. */
static void write_own(struct hang *h, const char *why)
{
    struct str text = {0};
    struct stack *list;
    char name[40];
    int n;
    stacks_take(h->stacks, OWN_WITHIN_S, &list, &n);
    put_head(&text, why, getpid());
    put_ranks(h, &text);
    struct symbols *names = symbols_open(getpid());
    for (int i = 0; i < n; i++)
        if (list[i].tid != (pid_t)syscall(SYS_gettid)) put_thread(&text, &list[i], rank_of(h, list[i].tid), names);
    symbols_close(names);
    if (h->dir && h->n) {
        snprintf(name, sizeof name, HANG_FILE, h->rank[0].rank);
        write_file(h->dir, name, &text);
    } else {
        (void)!write(STDERR_FILENO, text.p, text.n);
    }
    str_free(&text);
    xfree(list);
}

/* ---- the other processes of this host ---- */

struct other {
    int rank;
    pid_t pid;
    char doing[COMM_DOING];
    ino_t before; /* its file, 0: none */
    bool over;    /* there is a new one, or there will be none */
    bool there;
};

static ino_t inode_of(const char *dir, int rank)
{
    char name[40];
    struct stat s;
    snprintf(name, sizeof name, HANG_FILE, rank);
    char *path = fs_join(dir, name);
    ino_t inode = stat(path, &s) ? 0 : s.st_ino;
    xfree(path);
    return inode;
}

static int list_others(struct hang *h, struct other **out)
{
    struct comm *world = h->n ? h->rank[0].world : NULL;
    int n = 0, seen = world ? comm_seen(world) : 0;
    *out = xcalloc((size_t)seen + 1, sizeof **out);
    for (int i = 0; i < seen; i++) {
        struct other *o = &(*out)[n];
        o->pid = (pid_t)comm_seen_doing(world, i, &o->rank, o->doing);
        if (o->pid <= 0 || o->pid == getpid()) continue;
        o->before = inode_of(h->dir, o->rank);
        n++;
    }
    return n;
}

/* Neither stopped nor in the kernel for good: it may answer. */
static bool may_answer(pid_t pid)
{
    struct stack *list = NULL;
    int n = 0;
    bool may =
        !stacks_look(pid, &list, &n, NULL) && n && !strchr("TtZX", list[0].state) && stacks_catches(pid, SIGQUIT);
    xfree(list);
    return may;
}

static void ask_others(struct other *o, int n)
{
    for (int i = 0; i < n; i++)
        o[i].over =
            !may_answer(o[i].pid) || sigqueue(o[i].pid, SIGQUIT, (union sigval){.sival_int = HANG_ASKED_BY_RANK}) != 0;
}

static bool others_wrote(const struct hang *h, struct other *o, int n)
{
    bool all = true;
    for (int i = 0; i < n; i++) {
        if (o[i].over) continue;
        ino_t now = inode_of(h->dir, o[i].rank);
        o[i].there = o[i].over = now && now != o[i].before;
        all &= o[i].over;
    }
    return all;
}

/* A process that does not answer, as it looks from outside. */
static void write_other(const struct hang *h, const struct other *o, const char *why)
{
    struct str text = {0};
    struct stack *list = NULL;
    struct err e = {0}, no = {0};
    char name[40];
    int n = 0;
    put_head(&text, why, o->pid);
    str_printf(&text, HANG_RANK "%d: it did not answer, and was looked at by process %ld; ", o->rank, (long)getpid());
    if (stacks_look(o->pid, &list, &n, &e) || !n) {
        str_printf(&text, "the process cannot be seen; %s\n", o->doing);
    } else {
        str_printf(&text, "its process %s; %s\n\n", stacks_state(list[0].state), o->doing);
        struct symbols *names = symbols_open(o->pid);
        if (!names || symbols_trace(names, list, n, &no))
            str_printf(&text, "its stacks cannot be had: %s\n\n", no.text);
        for (int i = 0; i < n; i++) put_thread(&text, &list[i], list[i].tid == o->pid ? o->rank : -1, names);
        symbols_close(names);
    }
    snprintf(name, sizeof name, HANG_FILE, o->rank);
    write_file(h->dir, name, &text);
    str_free(&text);
    xfree(list);
}

/* ---- all of them ---- */

static void write_groups(const struct hang *h, const char *why)
{
    struct str text = {0};
    put_head(&text, why, getpid());
    if (hang_groups(h->dir, RECENT_S, &text)) write_file(h->dir, HANG_SUMMARY, &text);
    str_free(&text);
}

static void write_all(struct hang *h, const char *why)
{
    struct other *o;
    int n = list_others(h, &o);
    ask_others(o, n);
    write_own(h, why);
    for (double until = clock_now_s() + OTHERS_WITHIN_S; !others_wrote(h, o, n) && clock_now_s() < until;)
        clock_sleep_s(0.01);
    for (int i = 0; i < n; i++)
        if (!o[i].there) write_other(h, &o[i], why);
    write_groups(h, why);
    xfree(o);
}

/* Once for all that asked until now. */
static void write_stacks(struct hang *h, const char *why, bool all, bool late)
{
    pthread_mutex_lock(&h->lock);
    if (!h->dir || !h->n) {
        write_own(h, why);
    } else if (all) {
        write_all(h, why);
        log_or_drop(LOG_INFO, "%sstacks of all threads are in %s/" HANG_SUMMARY " and stacks-rank*.txt",
                    late ? "" : "SIGQUIT: the run goes on; ", h->dir);
    } else {
        write_own(h, why);
    }
    pthread_mutex_unlock(&h->lock);
}

static void *serve(void *arg)
{
    struct hang *h = arg;
    char why[sizeof h->why];
    thread_name_set("stacks");
    pthread_mutex_lock(&h->ask);
    for (;;) {
        while (!h->quit && !h->own && !h->all) pthread_cond_wait(&h->wake, &h->ask);
        if (h->quit) break;
        bool all = h->all, late = h->late == LATE_ASKED;
        h->own = h->all = false;
        memcpy(why, h->why, sizeof why);
        pthread_mutex_unlock(&h->ask);
        write_stacks(h, why, all, late);
        pthread_mutex_lock(&h->ask);
        if (late) h->late_done_s = clock_now_s();
        if (late) h->late = LATE_DONE;
    }
    pthread_mutex_unlock(&h->ask);
    return NULL;
}

void hang_asked(void *arg, int value)
{
    struct hang *h = arg;
    bool by_rank = value == HANG_ASKED_BY_RANK;
    if (!h) return;
    pthread_mutex_lock(&h->ask);
    if (by_rank) h->own = true;
    else h->all = true;
    if (h->late != LATE_ASKED)
        snprintf(h->why, sizeof h->why, "asked for by %s", by_rank ? "a rank of this host" : "SIGQUIT");
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->ask);
}

bool hang_late(void *arg, const char *what)
{
    struct hang *h = arg;
    if (!h) return true;
    pthread_mutex_lock(&h->ask);
    if (h->late == LATE_DONE && clock_now_s() - h->late_done_s > OTHERS_WITHIN_S) h->late = LATE_NO; /* another hang */
    if (h->late == LATE_NO) {
        h->late = LATE_ASKED;
        h->all = true;
        snprintf(h->why, sizeof h->why, "%s", what);
        pthread_cond_signal(&h->wake);
    }
    bool done = h->late == LATE_DONE;
    pthread_mutex_unlock(&h->ask);
    return done;
}

int hang_open(struct hang **out, struct err *e)
{
    struct hang *h = xcalloc(1, sizeof *h);
    *out = NULL;
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->ask, NULL);
    pthread_cond_init(&h->wake, NULL);
    int rc = stacks_open(&h->stacks, e), failed = rc ? 0 : pthread_create(&h->thread, NULL, serve, h);
    if (failed) rc = err_errno(e, ERR_MEMORY, failed, "no thread that writes stacks");
    if (!rc) {
        *out = h;
        return OK;
    }
    stacks_close(h->stacks);
    xfree(h);
    return rc;
}

void hang_close(struct hang *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->ask);
    h->quit = true;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->ask);
    pthread_join(h->thread, NULL);
    stacks_close(h->stacks);
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->lock);
    pthread_mutex_destroy(&h->ask);
    xfree(h->rank);
    xfree(h->dir);
    xfree(h);
}
