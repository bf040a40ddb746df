/* SPDX-License-Identifier: Apache-2.0 */
/* fs_read.c: files are read by calls, into memory of ours, never through a map.
 *
 * A map of a file that shrinks, or whose disk fails, kills the process with SIGBUS wherever the page is touched, and
 * nobody learns which file it was. A call returns: a failed one and one that gives less than was asked for become an
 * error that names the file, the offset, what was wanted and what came. It costs nothing measurable: copying from the
 * page cache runs at memory speed, about what the page faults of a map cost (docs/benchmarks.md).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/address.h"
#include "base/fs.h"
#include "base/mem.h"

/* One call does not read more: 2^31 is more than Linux gives at once, and a signal may end any of them early. */
#define CALL_BYTES ((size_t)1 << 30)

int fs_read_failed(struct err *e, int why, const char *path)
{
    if (why == ENOENT && address_is(path)) return address_refuse(path, "a path of this host", e);
    if (why == ENOENT) return err_set(e, ERR_REQUEST, "%s: no such file", path);
    int asked = why == EACCES || why == EPERM || why == ENOTDIR || why == ELOOP || why == ENAMETOOLONG;
    return err_errno(e, asked ? ERR_REQUEST : ERR_IO, why, "%s: cannot be read", path);
}

int fs_file_open(struct fs_file *f, const char *path, struct err *e)
{
    *f = (struct fs_file){.fd = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not hang us */
    if (fd < 0) return fs_read_failed(e, errno, path);
    struct stat st;
    int code = OK;
    if (fstat(fd, &st)) code = fs_read_failed(e, errno, path);
    else if (S_ISDIR(st.st_mode)) code = err_set(e, ERR_REQUEST, "%s: is a directory; a file was wanted", path);
    else if (!S_ISREG(st.st_mode)) code = err_set(e, ERR_REQUEST, "%s: is not a regular file", path);
    if (code) {
        close(fd);
        return code;
    }
    *f = (struct fs_file){.fd = fd, .path = xstrdup(path), .bytes = (int64_t)st.st_size};
    f->identity[0] = (uint64_t)st.st_dev;
    f->identity[1] = (uint64_t)st.st_ino;
    f->identity[2] = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    return OK;
}

int fs_stream_open(FILE **out, const char *path, int64_t most, struct err *e)
{
    struct fs_file f;
    int code = fs_file_open(&f, path, e);
    *out = NULL;
    if (code) return code;
    if (f.bytes > most)
        code = err_set(e, ERR_REQUEST, "%s: has %lld bytes; at most %lld are read here", path, (long long)f.bytes,
                       (long long)most);
    else if (!(*out = fdopen(f.fd, "rb"))) code = fs_read_failed(e, errno, path);
    else f.fd = -1; /* the stream's */
    fs_file_close(&f);
    return code;
}

int fs_file_reopen(struct fs_file *f, struct err *e)
{
    if (f->fd >= 0 || f->elsewhere) return OK;
    struct fs_file again;
    int code = fs_file_open(&again, f->path, e);
    if (code) return code;
    if (again.bytes != f->bytes || memcmp(again.identity, f->identity, sizeof f->identity)) {
        code = err_set(e, ERR_IO,
                       "%s: is not the file it was when its reading began (%lld bytes then, %lld now): it was "
                       "replaced or changed meanwhile; start again",
                       f->path, (long long)f->bytes, (long long)again.bytes);
        fs_file_close(&again);
        return code;
    }
    f->fd = again.fd;
    xfree(again.path);
    return OK;
}

void fs_file_rest(struct fs_file *f)
{
    if (f->path && f->fd >= 0) close(f->fd);
    f->fd = -1;
}

void fs_file_close(struct fs_file *f)
{
    fs_file_rest(f);
    if (f->elsewhere) f->elsewhere->close(f->of);
    xfree(f->path);
    *f = (struct fs_file){.fd = -1};
}

void fs_file_ahead(const struct fs_file *f, int64_t at, int64_t n)
{
    if (f->fd >= 0) posix_fadvise(f->fd, at, n, POSIX_FADV_WILLNEED);
}

int fs_file_read(const struct fs_file *f, int64_t at, size_t n, void *out, struct err *e)
{
    CHECK((f->fd >= 0 || f->elsewhere) && at >= 0, "%s: reading at %lld of a file that is not open",
          f->path ? f->path : "(none)", (long long)at);
    size_t got = 0;
    if (f->elsewhere && at <= f->bytes && (int64_t)n <= f->bytes - at) return f->elsewhere->read(f->of, at, n, out, e);
    if (f->elsewhere)
        return err_set(e, ERR_IO, "%s: has %lld bytes; wanted %zu at offset %lld", f->path, (long long)f->bytes, n,
                       (long long)at);
    while (got < n) {
        size_t step = n - got < CALL_BYTES ? n - got : CALL_BYTES;
        ssize_t k = pread(f->fd, (char *)out + got, step, (off_t)at + (off_t)got);
        if (k > 0) got += (size_t)k;
        else if (k == 0)
            return err_set(e, ERR_IO,
                           "%s: ends at or before byte %lld: wanted %zu bytes at offset %lld, got %zu; it had %lld "
                           "bytes when it was opened, so something cut it short meanwhile",
                           f->path, (long long)at + (long long)got, n, (long long)at, got, (long long)f->bytes);
        else if (errno != EINTR)
            return err_errno(e, ERR_IO, errno, "%s: cannot be read at offset %lld (wanted %zu bytes at %lld, got %zu)",
                             f->path, (long long)at + (long long)got, n, (long long)at, got);
    }
    return OK;
}

int fs_read_all(const char *path, size_t limit, char **out, size_t *n, struct err *e)
{
    *out = NULL;
    *n = 0;
    struct fs_file f;
    int code = fs_file_open(&f, path, e);
    if (code) return code;
    size_t bytes = (size_t)f.bytes;
    char *p = NULL;
    if (bytes > limit) {
        code = err_set(e, ERR_REQUEST, "%s: has %zu bytes; at most %zu are read here", path, bytes, limit);
    } else {
        p = xmalloc_large(bytes + 1);
        code = fs_file_read(&f, 0, bytes, p, e);
    }
    fs_file_close(&f);
    if (code) {
        xfree(p);
        return code;
    }
    p[bytes] = 0;
    *out = p;
    *n = bytes;
    return OK;
}
