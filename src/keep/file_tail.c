/* SPDX-License-Identifier: Apache-2.0 */
/* One window of the file is held; it moves towards the beginning. A line is copied out whole before it is judged. */
#include "keep/file_tail.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum { WINDOW = 1 << 16 };
#define LINE_LIMIT ((int64_t)64 << 20)

struct tail {
    const char *path;
    int fd;
    int64_t lo, hi; /* what the window holds of the file; lo == hi: nothing */
    char window[WINDOW];
};

static int read_at(const struct tail *t, char *to, int64_t at, int64_t n, struct err *e)
{
    for (int64_t got = 0; got < n;) {
        ssize_t k = pread(t->fd, to + got, (size_t)(n - got), at + got);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0)
            return err_errno(e, ERR_IO, errno, "%s: cannot be read at byte %lld", t->path, (long long)(at + got));
        if (k == 0)
            return err_set(e, ERR_IO, "%s: became shorter than %lld bytes while it was read", t->path,
                           (long long)(at + n));
        got += k;
    }
    return OK;
}

/* *at: where the last end of line before `end` is, -1: there is none. */
static int last_newline(struct tail *t, int64_t end, int64_t *at, struct err *e)
{
    *at = -1;
    for (int64_t until = end; until > 0;) {
        if (end - until > LINE_LIMIT)
            return err_set(e, ERR_CORRUPT,
                           "%s: no end of line in the %lld bytes before byte %lld: not a file of lines; move it away",
                           t->path, (long long)LINE_LIMIT, (long long)end);
        if (until <= t->lo || until > t->hi) {
            t->lo = until > WINDOW ? until - WINDOW : 0;
            t->hi = t->lo;
            int rc = read_at(t, t->window, t->lo, until - t->lo, e);
            if (rc) return rc;
            t->hi = until;
        }
        const char *found = memrchr(t->window, '\n', (size_t)(until - t->lo));
        if (found) {
            *at = t->lo + (found - t->window);
            return OK;
        }
        until = t->lo;
    }
    return OK;
}

/* *end: where the file is to end. */
static int find_end(struct tail *t, int64_t *end, file_tail_keep_fn *keep, void *ctx, struct err *e)
{
    int64_t newline;
    int rc = last_newline(t, *end, &newline, e);
    if (!rc) *end = newline + 1; /* half a line, from a run that was killed */
    while (!rc && *end > 0) {
        rc = last_newline(t, *end - 1, &newline, e);
        if (rc) break;
        int64_t from = newline + 1, n = *end - 1 - from;
        char *line = xmalloc((size_t)n + 1);
        rc = read_at(t, line, from, n, e);
        bool stays = !rc && keep(ctx, line, (size_t)n);
        xfree(line);
        if (rc || stays) break;
        *end = from;
    }
    return rc;
}

int file_tail_cut(const char *path, file_tail_keep_fn *keep, void *ctx, int64_t *cut, struct err *e)
{
    *cut = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? OK : err_errno(e, ERR_IO, errno, "%s: cannot be opened", path);
    struct tail *t = xcalloc(1, sizeof *t);
    struct stat st;
    t->path = path;
    t->fd = fd;
    int rc = fstat(fd, &st) ? err_errno(e, ERR_IO, errno, "%s: cannot be looked at", path) : OK;
    int64_t end = rc ? 0 : (int64_t)st.st_size;
    if (!rc) rc = find_end(t, &end, keep, ctx, e);
    if (!rc && end < st.st_size) {
        *cut = st.st_size - end;
        if (ftruncate(fd, end) || fsync(fd))
            rc = err_errno(e, ERR_IO, errno, "%s: cannot be cut to %lld bytes", path, (long long)end);
    }
    close(fd);
    xfree(t);
    return rc;
}
