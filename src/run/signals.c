/* A watcher thread waits on a signalfd and a pipe that tells it to go. */
#include "run/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

struct signals {
    int fd, pipe[2];
    sigset_t set, before;
    pthread_t watcher;
    atomic_int number, silent;
};

static void *watch(void *arg)
{
    struct signals *s = arg;
    thread_name_set("signals");
    for (;;) {
        struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->pipe[0], .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) return NULL;
        if (p[1].revents) return NULL;
        struct signalfd_siginfo info;
        if (!(p[0].revents & POLLIN) || read(s->fd, &info, sizeof info) != sizeof info) continue;
        if (atomic_load(&s->number)) {
            log_warn("stopped at once, without saving");
            _exit(128 + (int)info.ssi_signo);
        }
        atomic_store(&s->number, (int)info.ssi_signo);
        if (atomic_load(&s->silent)) continue;
        log_status_end();
        log_info("%s: finishing this step, then saving; once more to stop at once",
                 info.ssi_signo == SIGINT ? "interrupted" : "asked to terminate");
    }
}

int signals_open(struct signals **out, struct err *e)
{
    struct signals *s = xcalloc(1, sizeof *s);
    *out = NULL;
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGINT);
    sigaddset(&s->set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &s->set, &s->before);
    s->fd = signalfd(-1, &s->set, SFD_CLOEXEC);
    s->pipe[0] = s->pipe[1] = -1;
    if (s->fd < 0 || pipe(s->pipe) < 0 || pthread_create(&s->watcher, NULL, watch, s)) {
        int rc = err_errno(e, ERR_IO, errno, "cannot watch for signals");
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
    pthread_sigmask(SIG_SETMASK, &s->before, NULL);
    xfree(s);
}

void signals_speak(struct signals *s, bool speaks)
{
    if (s) atomic_store(&s->silent, !speaks);
}

bool signals_stop_wanted(const struct signals *s)
{
    return s && atomic_load(&s->number) != 0;
}

int signals_number(const struct signals *s)
{
    return s ? atomic_load(&s->number) : 0;
}
