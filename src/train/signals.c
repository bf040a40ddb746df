/* SPDX-License-Identifier: Apache-2.0 */
/* A watcher thread waits on a signalfd and a pipe that tells it to go. */
#include "train/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "train/signals_start.h"

static const struct {
    int number;
    const char *name;
    bool again_now; /* a second one means at once */
    bool always;    /* also where the process was started with it ignored */
} caught[] = {
    {SIGINT, "SIGINT", true, true},     {SIGTERM, "SIGTERM", true, true},   {SIGHUP, "SIGHUP", false, false},
    {SIGUSR1, "SIGUSR1", false, false}, {SIGUSR2, "SIGUSR2", false, false}, {SIGXCPU, "SIGXCPU", false, false},
};
enum { N_CAUGHT = sizeof caught / sizeof *caught };
#define LOOK_S 1.0 /* between looks for the launcher */

struct signals {
    _Atomic(signals_quit_fn *) quit;
    void *quit_ctx; /* written before it */
    int fd, pipe[2];
    sigset_t set, before;
    pthread_t watcher;
    atomic_int number, silent, ready;
    atomic_int parent; /* the launcher's process on this host; 0: nobody in particular */
};

const char *signals_name(int number)
{
    for (int i = 0; i < N_CAUGHT; i++)
        if (caught[i].number == number) return caught[i].name;
    return "a signal";
}

static bool means_now(int number)
{
    for (int i = 0; i < N_CAUGHT; i++)
        if (caught[i].number == number) return caught[i].again_now;
    return false;
}

/* The next signal, waiting for at most this long (< 0: for ever): its number, 0 when none came, -1 when the watcher is
 * to go. */
static int next_signal(struct signals *s, double wait_s)
{
    struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->pipe[0], .events = POLLIN}};
    struct signalfd_siginfo info;
    if (poll(p, 2, wait_s < 0 ? -1 : (int)(1e3 * wait_s) + 1) < 0) return errno == EINTR ? 0 : -1;
    if (p[1].revents) return -1;
    if (!(p[0].revents & POLLIN) || read(s->fd, &info, sizeof info) != sizeof info) return 0;
    if (info.ssi_signo != SIGQUIT) return (int)info.ssi_signo;
    signals_quit_fn *quit = atomic_load(&s->quit);
    if (quit) quit(s->quit_ctx, info.ssi_code == SI_QUEUE ? info.ssi_int : 0);
    return 0;
}

__attribute__((noreturn)) static void end_now(int number, const char *what)
{
    if (what) log_or_drop(LOG_WARN, "%s: %s", signals_name(number), what);
    _exit(128 + number);
}

/* A process that need not speak ends a second after the one that does, whose launcher ends it before; else it alone got
 * the signal, and speaks. */
static double set_up_left_s(const struct signals *s, double first_s)
{
    return first_s + SIGNALS_SETUP_S + (atomic_load(&s->silent) ? 1.0 : 0.0) - clock_now_s();
}

static bool launcher_is_gone(const struct signals *s)
{
    int parent = atomic_load(&s->parent);
    return parent && getppid() != parent;
}

static void first_wish(struct signals *s, int number)
{
    atomic_store(&s->number, number);
    if (atomic_load(&s->silent)) return;
    if (atomic_load(&s->ready))
        log_or_drop(LOG_INFO, "%s: finishing this step, then saving; SIGINT or SIGTERM once more stops at once",
                    signals_name(number));
    else log_or_drop(LOG_INFO, "%s: stopping; no step was done yet, there is nothing to save", signals_name(number));
}

static void *watch(void *arg)
{
    struct signals *s = arg;
    double first_s = 0;
    thread_name_set("signals");
    for (;;) {
        bool wished = atomic_load(&s->number) != 0, ready = atomic_load(&s->ready) != 0;
        double left_s = set_up_left_s(s, first_s);
        if (wished && !ready && left_s <= 0)
            end_now(atomic_load(&s->number),
                    "stopped while the run was being set up; no step was done, nothing is lost");
        int number = next_signal(s, wished && !ready && left_s < LOOK_S ? left_s : LOOK_S);
        if (number < 0) return NULL;
        if (!number && !wished && launcher_is_gone(s)) {
            if (!atomic_load(&s->silent))
                log_or_drop(LOG_WARN,
                            "the launcher of this process is gone, and nobody would end it: as after SIGTERM");
            number = SIGTERM;
        }
        if (!number) continue;
        if (wished && means_now(number) && clock_now_s() - first_s > SIGNALS_GRACE_S)
            end_now(number, atomic_load(&s->silent) ? NULL : "stopped at once, without saving");
        if (wished) continue;
        first_wish(s, number);
        while ((number = next_signal(s, 0)) > 0)
            continue; /* came together with it, however late the watcher reads them */
        if (number < 0) return NULL;
        first_s = clock_now_s();
    }
}

/* Those that are not ignored on purpose. What a library put in place of that goes. */
static void choose(sigset_t *set)
{
    struct sigaction now;
    sigemptyset(set);
    sigaddset(set, SIGQUIT); /* no wish to stop: next_signal */
    for (int i = 0; i < N_CAUGHT; i++) {
        int number = caught[i].number;
        bool ignored = !sigaction(number, NULL, &now) && now.sa_handler == SIG_IGN;
        if (caught[i].always || !(ignored || signals_start_ignored(number))) sigaddset(set, number);
        else if (!ignored) signal(number, SIG_IGN);
    }
}

int signals_open(struct signals **out, struct err *e)
{
    struct signals *s = xcalloc(1, sizeof *s);
    *out = NULL;
    choose(&s->set);
    pthread_sigmask(SIG_BLOCK, &s->set, &s->before);
    s->fd = signalfd(-1, &s->set, SFD_CLOEXEC | SFD_NONBLOCK);
    s->pipe[0] = s->pipe[1] = -1;
    int failed = s->fd < 0 || pipe(s->pipe) < 0 ? errno : pthread_create(&s->watcher, NULL, watch, s);
    if (failed) {
        int rc = err_errno(e, ERR_IO, failed, "cannot watch for signals");
        if (s->fd >= 0) close(s->fd);
        if (s->pipe[0] >= 0) close(s->pipe[0]);
        if (s->pipe[1] >= 0) close(s->pipe[1]);
        pthread_sigmask(SIG_SETMASK, &s->before, NULL);
        xfree(s);
        return rc;
    }
    *out = s;
    return OK;
}

void signals_close(struct signals *s)
{
    if (!s) return;
    close(s->pipe[1]);
    pthread_join(s->watcher, NULL);
    close(s->pipe[0]);
    close(s->fd);
    if (!atomic_load(&s->number)) pthread_sigmask(SIG_SETMASK, &s->before, NULL);
    xfree(s);
}

void signals_on_quit(struct signals *s, signals_quit_fn *fn, void *ctx)
{
    if (!s) return;
    s->quit_ctx = ctx;
    atomic_store(&s->quit, fn);
}

void signals_speak(struct signals *s, bool speaks)
{
    if (s) atomic_store(&s->silent, !speaks);
}

void signals_launched(struct signals *s)
{
    int parent = getppid();
    if (s && parent != 1) atomic_store(&s->parent, parent);
}

void signals_set_up(struct signals *s)
{
    if (s) atomic_store(&s->ready, 1);
}

bool signals_stop_wanted(const struct signals *s) { return signals_number(s) != 0; }

int signals_number(const struct signals *s) { return s ? atomic_load(&s->number) : 0; }

const atomic_int *signals_flag(const struct signals *s) { return s ? &s->number : NULL; }
