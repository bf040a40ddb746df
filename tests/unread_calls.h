/* SPDX-License-Identifier: Apache-2.0 */
/* unread_calls.h: the calls that look at a disk, defined in front of the C library's, so that the n-th of those that
 * are watched fails, says that there is nothing, gives less than there is, or is interrupted; and a walk over all n.
 * Included once in a program, behind cmocka. */
#ifndef TUTTI_TESTS_UNREAD_CALLS_H
#define TUTTI_TESTS_UNREAD_CALLS_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "drawn.h"

enum way { FAILS, DENIED, LIES, SHORTER, DELAYED, WAYS, FLIPS = WAYS /* of who compares what it read alone */ };
static const char *const way_name[] = {"EIO", "EACCES", "ENOENT", "the end, too early", "EINTR", "another byte"};

static struct {
    const char *watch; /* paths with this in them; NULL: nothing happens */
    enum way way;
    int64_t at, n;    /* calls so far; the one that it happens to, 0: none */
    const char *full; /* a file with this in its path cannot be made; NULL: all can */
} fault;

static bool watched(const char *path) { return fault.watch && strstr(path, fault.watch) && ++fault.at == fault.n; }

static bool watched_fd(int fd)
{
    char link[64], path[512];
    if (!fault.watch) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t k = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    path[k < 0 ? 0 : k] = 0;
    return watched(path);
}

/* Whether a call that is no read comes to what it does. */
static bool passes(void) { return fault.way == SHORTER || fault.way == DELAYED || fault.way == FLIPS; }

/* A call that finds something: -1, as it would be. */
static int refused(void)
{
    static const int why[WAYS + 1] =
        {[FAILS] = EIO, [DENIED] = EACCES, [LIES] = ENOENT, [SHORTER] = EIO, [DELAYED] = EINTR};
    errno = why[fault.way];
    return -1;
}

int open(const char *path, int flags, ...)
{
    if (fault.full && flags & O_CREAT && strstr(path, fault.full)) return errno = ENOSPC, -1;
    bool strikes = watched(path) && !(flags & O_CREAT);
    return strikes && !passes() ? refused() : (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0666);
}

/* Less than there is: half, and at the next call the end. */
static ssize_t gives(int fd, void *p, size_t n, off_t at)
{
    if (!watched_fd(fd)) return syscall(SYS_pread64, fd, p, n, at);
    if (fault.way == FAILS || fault.way == DELAYED) return refused();
    if (fault.way == SHORTER) return 0;
    if (fault.way == FLIPS) {
        ssize_t k = syscall(SYS_pread64, fd, p, n, at);
        if (k > 0) ((unsigned char *)p)[k / 2] ^= 4;
        return k;
    }
    return syscall(SYS_pread64, fd, p, n, at);
}

ssize_t pread(int fd, void *p, size_t n, off_t at) { return gives(fd, p, n, at); }

int stat(const char *restrict path, struct stat *restrict st)
{
    if (watched(path) && !passes()) return refused();
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

int lstat(const char *restrict path, struct stat *restrict st)
{
    if (watched(path) && (fault.way == FAILS || fault.way == DENIED)) return refused();
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *st)
{
    if (watched_fd(fd) && fault.way == FAILS) return refused();
    return (int)syscall(SYS_fstat, fd, st);
}

int access(const char *path, int mode)
{
    if (watched(path) && !passes()) return refused();
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

DIR *opendir(const char *path)
{
    if (watched(path) && !passes()) {
        refused();
        return NULL;
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return fd < 0 ? NULL : fdopendir(fd);
}

struct dirent *readdir(DIR *d)
{
    static struct dirent *(*real)(DIR *);
    if (!real) *(void **)(void *)&real = dlsym(RTLD_NEXT, "readdir");
    if (!watched_fd(dirfd(d)) || fault.way != FAILS) return real(d);
    refused();
    return NULL;
}

/* ---- a walk over all calls ---- */

/* Looks once. 0: an error, said in `e`; 1: all that there is; -1: anything else. */
typedef int reader_fn(void *ctx, struct err *e);

/* least: calls that are met when nothing happens to one. */
static inline void walk_way(const char *name, const char *watch, enum way way, reader_fn *reads, void *ctx,
                            int64_t least)
{
    for (int64_t n = 1;; n++) {
        struct err e = {0};
        if (n > 8 && !drawn_here(n, 2)) continue; /* every day half of the later ones */
        fault.way = way;
        fault.at = 0;
        fault.n = n;
        fault.watch = watch;
        int said = reads(ctx, &e);
        int64_t calls = fault.at;
        fault.watch = NULL;
        if (said < 0)
            fail_msg("%s: call %lld of %lld: %s: %s", name, (long long)n, (long long)calls, way_name[way], e.text);
        if (!said && !*e.text)
            fail_msg("%s: call %lld: %s: an error without a word", name, (long long)n, way_name[way]);
        if (calls >= n) continue;
        if (said != 1) fail_msg("%s: %s", name, e.text); /* nothing happened */
        if (calls < least) fail_msg("%s: only %lld calls were met", name, (long long)calls);
        return;
    }
}

/* lies: whether the reader can tell that "there is nothing" is a lie, since it is said elsewhere that there is. */
static inline void walk(const char *name, const char *watch, bool lies, reader_fn *reads, void *ctx, int64_t least)
{
    for (int way = 0; way < WAYS; way++)
        if (way != LIES || lies) walk_way(name, watch, (enum way)way, reads, ctx, least);
}

#endif
