/* SPDX-License-Identifier: Apache-2.0 */
/* blob.c: local files, by pread. The kernel is told that they are read from front to back: that is all the overlap
 * that is needed, since the tokenizer, not the disk, sets the pace. */
#include "source/blob.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

struct file_blob {
    struct blob blob;
    int fd;
};

static int file_read(struct blob *b, int64_t at, size_t n, void *out, size_t *got, struct err *e)
{
    const struct file_blob *f = (const struct file_blob *)b;
    ssize_t done;
    do done = pread(f->fd, out, n, (off_t)at);
    while (done < 0 && errno == EINTR);
    if (done < 0) return err_errno(e, ERR_IO, errno, "%s: cannot be read at offset %lld", b->path, (long long)at);
    *got = (size_t)done;
    return OK;
}

static void file_close(struct blob *b)
{
    struct file_blob *f = (struct file_blob *)b;
    close(f->fd);
    xfree(f);
}

static const struct blob_ops file_ops = {"file", file_read, file_close};

int blob_of_descriptor(struct blob **b, const char *name, int fd, struct err *e)
{
    struct stat st;
    *b = NULL;
    if (fstat(fd, &st)) {
        int why = errno;
        close(fd);
        return err_errno(e, ERR_REQUEST, why, "%s: cannot be read", name);
    }
    struct file_blob *f = xcalloc(1, sizeof *f);
    *f = (struct file_blob){{&file_ops, xstrdup(name), (int64_t)st.st_size}, fd};
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *b = &f->blob;
    return OK;
}

int blob_open(struct blob **b, const char *path, struct err *e)
{
    *b = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_errno(e, ERR_REQUEST, errno, "%s: cannot be read", path);
    return blob_of_descriptor(b, path, fd, e);
}

void blob_close(struct blob *b)
{
    if (!b) return;
    xfree(b->path);
    b->ops->close(b);
}

int blob_some(struct blob *b, int64_t at, size_t n, void *out, size_t *got, struct err *e)
{
    *got = 0;
    return n ? b->ops->read(b, at, n, out, got, e) : OK;
}

int blob_read(struct blob *b, int64_t at, size_t n, void *out, struct err *e)
{
    for (size_t done = 0, got = 0; done < n; done += got) {
        int code = blob_some(b, at + (int64_t)done, n - done, (char *)out + done, &got, e);
        if (code) return code;
        if (!got)
            return err_set(e, ERR_IO,
                           "%s: ends at byte %lld, bytes %lld to %lld were wanted; it had %lld when it was opened, so "
                           "something cut it short meanwhile",
                           b->path, (long long)at + (long long)done, (long long)at, (long long)at + (long long)n,
                           (long long)b->bytes);
    }
    return OK;
}
