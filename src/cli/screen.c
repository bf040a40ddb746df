/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of our own (fopencookie) in place of stdout and stderr: every printf, puts and fwrite of every command ends
 * in one function. Rejected: a rule that commands clean names before they print them, which two of forty did. */
#include "cli/screen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/shown.h"

/* One of each of a process's two, and not allocated: what wraps fopencookie for a leak checker hides its pointer. */
static struct screen {
    int fd;
    char rest[4]; /* the beginning of a character */
    size_t n_rest;
} screens[2] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};

static bool put_bytes(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static ssize_t put_shown(void *ctx, const char *p, size_t n)
{
    struct screen *s = ctx;
    struct str all = {0}, out = {0};
    str_add(&all, s->rest, s->n_rest);
    str_add(&all, p, n);
    s->n_rest = shown_rest(all.p, all.n);
    memcpy(s->rest, all.p + all.n - s->n_rest, s->n_rest);
    shown_put(&out, all.p, all.n - s->n_rest, true);
    bool done = put_bytes(s->fd, str_text(&out), out.n);
    str_free(&all);
    str_free(&out);
    return done ? (ssize_t)n : 0;
}

static int end_stream(void *ctx)
{
    struct screen *s = ctx;
    struct str out = {0};
    shown_put(&out, s->rest, s->n_rest, true);
    bool done = put_bytes(s->fd, str_text(&out), out.n);
    str_free(&out);
    return done ? 0 : EOF;
}

static FILE *stream_to(struct screen *s, int buffer)
{
    FILE *f = fopencookie(s, "w", (cookie_io_functions_t){.write = put_shown, .close = end_stream});
    CHECK(f, "no stream for file descriptor %d", s->fd);
    setvbuf(f, NULL, buffer, BUFSIZ);
    return f;
}

void screen_open(void)
{
    stdout = stream_to(&screens[0], isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
    stderr = stream_to(&screens[1], _IONBF);
}

void screen_close(void) { fclose(stdout); }

bool screen_put_raw(const char *p, size_t n) { return !fflush(stdout) && put_bytes(STDOUT_FILENO, p, n); }

bool screen_put_data(const char *p, size_t n)
{
    if (isatty(STDOUT_FILENO)) return fwrite(p, 1, n, stdout) == n && !fflush(stdout);
    return screen_put_raw(p, n);
}
