/* SPDX-License-Identifier: Apache-2.0 */
/* log.c: lines to stderr, and one status line that is redrawn in place on a terminal.
 *
 * The sink is the process's, not a rank's, because the terminal is: the mutex below guards every mutable field
 * of `sink`, and each line leaves in one write so that other processes' lines do not cut it. A line that comes
 * while a status is shown wipes it, prints, and draws it again. Elsewhere (file, pipe) a status is a plain line
 * and no escape sequence is ever written.
 */
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shown.h"
#include "base/str.h"

static struct {
    pthread_mutex_t lock;
    int ready; /* the fields below are set */
    enum log_level level;
    int terminal;
    struct str status; /* what is shown in place now, or empty */
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *name, *plain, *colour;
} levels[] = {
    [LOG_ERROR] = {"error", "error: ", "\033[31merror:\033[0m "},
    [LOG_WARN] = {"warn", "warning: ", "\033[33mwarning:\033[0m "},
    [LOG_INFO] = {"info", "", ""},
    [LOG_DEBUG] = {"debug", "debug: ", "debug: "},
};

/* With the lock held. */
static void prepare(void)
{
    if (sink.ready) return;
    const char *want = getenv("LOG"), *term = getenv("TERM");
    sink.level = LOG_INFO;
    for (int i = 0; want && i <= LOG_DEBUG; i++)
        if (strcasecmp(want, levels[i].name) == 0) sink.level = (enum log_level)i;
    sink.terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    sink.ready = 1;
}

static void take(void)
{
    pthread_mutex_lock(&sink.lock);
    prepare();
}

static void release(void) { pthread_mutex_unlock(&sink.lock); }

static void emit(const struct str *s)
{
    const char *p = str_text(s);
    for (size_t left = s->n; left;) {
        ssize_t n = write(STDERR_FILENO, p, left);
        if (n <= 0) return; /* stderr is gone: nothing sensible is left to do */
        p += n;
        left -= (size_t)n;
    }
}

static void add_text(struct str *s, const char *fmt, va_list args)
{
    char text[2000];
    vsnprintf(text, sizeof text, fmt, args);
    shown_put(s, text, strlen(text), true);
}

#define WIPE "\r\033[K"

/* With the lock held. */
static void line(enum log_level level, const char *fmt, va_list args)
{
    struct str s = {0};
    if (level > sink.level) return;
    if (sink.status.n) str_puts(&s, WIPE);
    str_puts(&s, sink.terminal ? levels[level].colour : levels[level].plain);
    add_text(&s, fmt, args);
    str_putc(&s, '\n');
    str_add(&s, str_text(&sink.status), sink.status.n);
    emit(&s);
    str_free(&s);
}

enum log_level log_most(enum log_level most)
{
    take();
    enum log_level before = sink.level;
    sink.level = most;
    release();
    return before;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    va_list args;
    take();
    va_start(args, fmt);
    line(level, fmt, args);
    va_end(args);
    release();
}

void log_or_drop(enum log_level level, const char *fmt, ...)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    for (int i = 0; i < 20; i++) {
        if (!pthread_mutex_trylock(&sink.lock)) {
            va_list args;
            prepare();
            va_start(args, fmt);
            if (poll(&p, 1, 0) > 0 && (p.revents & POLLOUT)) line(level, fmt, args);
            va_end(args);
            release();
            return;
        }
        clock_sleep_s(0.01);
    }
}

void log_status(const char *fmt, ...)
{
    take();
    if (sink.level >= LOG_INFO) {
        struct str s = {0};
        if (sink.terminal) str_puts(&s, WIPE);
        va_list args;
        va_start(args, fmt);
        add_text(&s, fmt, args);
        va_end(args);
        str_clear(&sink.status);
        if (sink.terminal) str_add(&sink.status, s.p + strlen(WIPE), s.n - strlen(WIPE));
        else str_putc(&s, '\n');
        emit(&s);
        str_free(&s);
    }
    release();
}

void log_status_end(void)
{
    take();
    if (sink.status.n) {
        struct str s = {0};
        str_putc(&s, '\n');
        emit(&s);
        str_free(&s);
    }
    str_free(&sink.status); /* also what keeps a leak checker quiet at exit */
    release();
}

int log_is_terminal(void)
{
    take();
    int yes = sink.terminal;
    release();
    return yes;
}
