/* SPDX-License-Identifier: Apache-2.0 */
/* stacks.c: one signal for each thread, with the address of a slot. Unwinding is glibc's backtrace, which reads tables
 * that the loader keeps without a lock (_dl_find_object) once it was called; libunwind would be one more library for
 * the same. Rejected: frame pointers (the libraries that ranks wait in have none), a tracer for one's own threads (the
 * system may not allow it, and a process cannot trace itself). Cost: some microseconds of each thread.
 */
#include "base/stacks.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"

#if defined(__x86_64__)
#define interrupted_at(u) ((void *)(uintptr_t)(u)->uc_mcontext.gregs[REG_RIP])
#elif defined(__aarch64__)
#define interrupted_at(u) ((void *)(uintptr_t)(u)->uc_mcontext.pc)
#else
#define interrupted_at(u) ((void)(u), (void *)0)
#endif

enum { SLOT_EMPTY, SLOT_ASKED, SLOT_WRITING, SLOT_ANSWERED };
enum { HANDLER_FRAMES = 2 /* the handler and what the kernel put below it */, ROOM = STACK_DEPTH + 8 };
struct slot {
    atomic_int state;
    int n;
    void *interrupted, *at[ROOM];
};

struct stacks {
    pthread_mutex_t lock; /* one taking at a time */
    struct sigaction before;
};

static void write_slot(int signal, siginfo_t *i, void *context)
{
    (void)signal;
    if (i->si_code != SI_QUEUE || i->si_pid != getpid() || !i->si_value.sival_ptr) return;
    int was = errno, asked = SLOT_ASKED;
    struct slot *s = i->si_value.sival_ptr;
    if (atomic_compare_exchange_strong(&s->state, &asked, SLOT_WRITING)) {
        s->interrupted = interrupted_at((ucontext_t *)context);
        s->n = backtrace(s->at, ROOM);
        atomic_store_explicit(&s->state, SLOT_ANSWERED, memory_order_release);
    }
    errno = was;
}

int stacks_open(struct stacks **out, struct err *e)
{
    struct stacks *s = xcalloc(1, sizeof *s);
    struct sigaction a = {.sa_sigaction = write_slot, .sa_flags = SA_SIGINFO | SA_RESTART};
    void *first[2];
    *out = NULL;
    (void)backtrace(first, 2); /* loads libgcc_s, which a handler must not */
    if (sigaction(SIGURG, &a, &s->before)) {
        int failed = errno;
        xfree(s);
        return err_errno(e, ERR_IO, failed, "no handler for SIGURG");
    }
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return OK;
}

void stacks_close(struct stacks *s)
{
    if (!s) return;
    sigaction(SIGURG, &s->before, NULL);
    pthread_mutex_destroy(&s->lock);
    xfree(s);
}

/* ---- what /proc says ---- */

/* The first line of a file of /proc without its end; false: there is none. */
static bool first_line(char *out, size_t room, const char *fmt, long pid, long tid, const char *what)
{
    char path[80];
    out[0] = 0;
    snprintf(path, sizeof path, fmt, pid, tid, what);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool got = fgets(out, (int)room, f) != NULL;
    fclose(f);
    out[strcspn(out, "\n")] = 0;
    return got;
}

static void look_at(pid_t pid, struct stack *s)
{
    char line[256];
    static const char of_task[] = "/proc/%ld/task/%ld/%s";
    s->state = '?';
    if (first_line(line, sizeof line, of_task, pid, s->tid, "comm")) snprintf(s->name, sizeof s->name, "%.15s", line);
    if (first_line(line, sizeof line, of_task, pid, s->tid, "stat")) { /* TID (NAME) STATE ... */
        const char *end = strrchr(line, ')');
        if (end && end[1] == ' ' && end[2]) s->state = end[2];
    }
    if (first_line(line, sizeof line, of_task, pid, s->tid, "wchan") && strcmp(line, "0") != 0)
        snprintf(s->wait, sizeof s->wait, "%.31s", line);
}

static int by_tid(const void *a, const void *b)
{
    pid_t x = ((const struct stack *)a)->tid, y = ((const struct stack *)b)->tid;
    return (x > y) - (x < y);
}

int stacks_look(pid_t pid, struct stack **out, int *n, struct err *e)
{
    char path[40];
    int room = 0;
    *out = NULL;
    *n = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *d = opendir(path);
    if (!d) return err_errno(e, ERR_IO, errno, "%s", path);
    for (struct dirent *x; (x = readdir(d));) {
        long tid = strtol(x->d_name, NULL, 10);
        if (tid <= 0) continue;
        if (*n == room) *out = xrealloc(*out, (size_t)(room = room ? 2 * room : 16) * sizeof **out);
        (*out)[*n] = (struct stack){.tid = (pid_t)tid};
        look_at(pid, &(*out)[(*n)++]);
    }
    closedir(d);
    if (*n) qsort(*out, (size_t)*n, sizeof **out, by_tid);
    return OK;
}

/* A mask of signals that /proc has of a thread, 0 where it has none. */
static uint64_t mask_of(pid_t pid, pid_t tid, const char *what)
{
    char path[80], line[128];
    uint64_t mask = 0;
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/status", (long)pid, (long)tid);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (str_starts(line, what)) mask = strtoull(line + strlen(what), NULL, 16);
    fclose(f);
    return mask;
}

bool stacks_catches(pid_t pid, int signal)
{
    uint64_t taken = mask_of(pid, pid, "SigBlk:") | mask_of(pid, pid, "SigCgt:");
    return taken >> (signal - 1) & 1;
}

const char *stacks_state(char state)
{
    static const struct {
        char letter;
        const char *text;
    } states[] = {{'R', "runs"},       {'S', "sleeps"},    {'D', "waits in the kernel, for a disk or a network"},
                  {'T', "is stopped"}, {'t', "is traced"}, {'Z', "has ended"},
                  {'X', "has ended"},  {'I', "is idle"}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (states[i].letter == state) return states[i].text;
    return "is in a state that is not known";
}

/* ---- asking ---- */

static bool ask(pid_t tid, struct slot *s)
{
    siginfo_t i = {.si_signo = SIGURG, .si_code = SI_QUEUE};
    i.si_pid = getpid();
    i.si_uid = getuid();
    i.si_value.sival_ptr = s;
    atomic_store(&s->state, SLOT_ASKED);
    return !syscall(SYS_rt_tgsigqueueinfo, (long)getpid(), (long)tid, (long)SIGURG, &i);
}

/* From what the signal interrupted outwards. */
static void answer(struct stack *out, const struct slot *s)
{
    int from = s->n < HANDLER_FRAMES ? s->n : HANDLER_FRAMES;
    for (int i = 0; i < s->n && s->interrupted; i++)
        if (s->at[i] == s->interrupted) from = i;
    for (int i = from; i < s->n && out->n < STACK_DEPTH; i++) out->at[out->n++] = s->at[i];
}

void stacks_take(struct stacks *s, double within_s, struct stack **out, int *n)
{
    pthread_mutex_lock(&s->lock);
    if (stacks_look(getpid(), out, n, NULL)) *n = 0;
    struct slot **slot = xcalloc((size_t)*n + 1, sizeof *slot);
    double until = clock_now_s() + within_s;
    for (int i = 0; i < *n; i++) {
        if (mask_of(getpid(), (*out)[i].tid, "SigBlk:") >> (SIGURG - 1) & 1) continue;
        slot[i] = xcalloc(1, sizeof **slot);
        if (ask((*out)[i].tid, slot[i])) continue; /* else: it has just ended */
        xfree(slot[i]);
        slot[i] = NULL;
    }
    for (int i = 0; i < *n; i++) {
        if (!slot[i]) continue;
        while (atomic_load_explicit(&slot[i]->state, memory_order_acquire) != SLOT_ANSWERED && clock_now_s() < until)
            clock_sleep_s(1e-4);
        if (atomic_load_explicit(&slot[i]->state, memory_order_acquire) != SLOT_ANSWERED) continue; /* the slot stays */
        answer(&(*out)[i], slot[i]);
        xfree(slot[i]);
    }
    xfree(slot);
    pthread_mutex_unlock(&s->lock);
}
