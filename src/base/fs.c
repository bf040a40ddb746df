/* SPDX-License-Identifier: Apache-2.0 */
/* fs.c: writing whole files, directories, locks, and a writer that notices a full disk. Reading is in fs_read.c.
 *
 * A file that others may read is never written in place: its bytes go to a temporary name beside it, are synced,
 * and one rename publishes them, so that a crash leaves the old file or the new one and nothing between. The
 * directory is synced too, because on Linux that is what makes the rename itself last.
 *
 * Something wrong with a path that the user named for reading (missing, a directory, forbidden) is ERR_REQUEST;
 * whatever a disk does later is ERR_IO.
 */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/address.h"
#include "base/held.h"
#include "base/mem.h"
#include "base/str.h"

#define TEMPORARY ".tmp-" /* then process-thread */

#define HERE "a path of this host"

static int write_failed(struct err *e, int why, const char *path, const char *what)
{
    if (why == ENOSPC || why == EDQUOT)
        return err_set(e, ERR_IO, "%s: %s: %s; free some space or choose another directory", path, what, strerror(why));
    if (why == ENOENT && address_is(path)) return address_refuse(path, HERE, e);
    if (why == ENOENT) return err_set(e, ERR_IO, "%s: %s: there is no such folder for it", path, what);
    return err_errno(e, ERR_IO, why, "%s: %s", path, what);
}

/* Of what a failed look says: that nothing is there, and not that it cannot be told. */
static bool says_none(int why) { return why == ENOENT || why == ENOTDIR || why == ENAMETOOLONG; }

bool fs_exists(const char *path) { return access(path, F_OK) == 0 || !says_none(errno); }

enum held held_path(const char *path, struct err *why)
{
    struct stat st;
    if (stat(path, &st) == 0) return HELD_KNOWN;
    if (says_none(errno)) return HELD_NONE;
    err_errno(why, ERR_IO, errno, "%s: cannot be looked at", path);
    return HELD_UNKNOWN;
}

bool fs_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int64_t fs_size(const char *path)
{
    struct stat st;
    return stat(path, &st) ? -1 : (int64_t)st.st_size;
}

int fs_look(const char *path, int64_t *bytes, struct err *e)
{
    struct stat st;
    *bytes = -1;
    if (stat(path, &st) == 0) {
        *bytes = (int64_t)st.st_size;
        return OK;
    }
    return says_none(errno) ? OK : err_errno(e, ERR_IO, errno, "%s: cannot be read", path);
}

int fs_what(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) == 0) return S_ISREG(st.st_mode) ? FS_FILE : S_ISDIR(st.st_mode) ? FS_FOLDER : FS_OTHER;
    if (errno == ENOENT || errno == ENOTDIR) return FS_NOTHING;
    return err_errno(e, ERR_IO, errno, "%s: cannot be looked at", path);
}

bool fs_absent(const char *path)
{
    struct stat st;
    return stat(path, &st) && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG);
}

int fs_mkdirs(const char *path, struct err *e)
{
    char *partial = xstrdup(path);
    int code = address_refuse(path, "a folder of this host", e);
    for (char *p = partial + (*partial == '/'); !code; p++) {
        char c = *p;
        if (c && c != '/') continue;
        *p = 0;
        if (*partial && mkdir(partial, 0777)) {
            int why = errno;
            bool other = (why == EEXIST || why == ENOTDIR) && !fs_is_dir(partial);
            if (other) code = err_set(e, ERR_IO, "%s: is there and is no directory; choose another name", partial);
            else if (!fs_is_dir(partial)) code = write_failed(e, why, partial, "the directory cannot be created");
        }
        *p = c;
        if (!c) break;
    }
    xfree(partial);
    return code;
}

int fs_remove_tree(const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT ? OK : write_failed(e, errno, path, "cannot be removed");
    if (!S_ISDIR(st.st_mode)) { /* a link is removed, not what it points to */
        return unlink(path) && errno != ENOENT ? write_failed(e, errno, path, "cannot be removed") : OK;
    }
    char **names;
    int n;
    int code = fs_list(path, &names, &n, e);
    if (code) return code;
    for (int i = 0; i < n && !code; i++) {
        char *child = fs_join(path, names[i]);
        code = fs_remove_tree(child, e);
        xfree(child);
    }
    fs_list_free(names, n);
    if (!code && rmdir(path) && errno != ENOENT) code = write_failed(e, errno, path, "cannot be removed");
    return code;
}

char *fs_join(const char *dir, const char *name)
{
    size_t n = strlen(dir), k = strlen(name) + 1;
    bool slash = n && dir[n - 1] != '/';
    char *path = xmalloc(n + slash + k);
    memcpy(path, dir, n);
    if (slash) path[n] = '/';
    memcpy(path + n + slash, name, k);
    return path;
}

/* The directory part of a path: "a/b" gives "a", "b" gives ".", "/b" gives "/". */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return xstrdup(".");
    return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

int fs_sync_dir(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return write_failed(e, errno, path, "the directory cannot be opened");
    /* EINVAL: a file system that has no notion of syncing directories */
    int code = fsync(fd) && errno != EINVAL ? write_failed(e, errno, path, "the directory cannot be synced") : OK;
    close(fd);
    return code;
}

int fs_link(const char *from, const char *to, struct err *e)
{
    return link(from, to) ? err_errno(e, ERR_IO, errno, "%s: cannot be linked to %s", from, to) : OK;
}

int fs_rename(const char *from, const char *to, struct err *e)
{
    if (rename(from, to)) return err_errno(e, ERR_IO, errno, "%s: cannot be renamed to %s", from, to);
    char *dir = parent_of(to);
    int code = fs_sync_dir(dir, e);
    xfree(dir);
    return code;
}

int fs_set_aside(const char *path, char **to, struct err *e)
{
    struct stat st;
    struct str name = {0};
    int code = OK, i = 0;
    *to = NULL;
    do {
        name.n = 0;
        str_printf(&name, "%s.aside-%d", path, ++i);
    } while (lstat(str_text(&name), &st) == 0);
    if (errno != ENOENT) code = err_errno(e, ERR_IO, errno, "%s: cannot be looked at", str_text(&name));
    if (!code) code = fs_rename(path, str_text(&name), e);
    if (!code) *to = xstrdup(str_text(&name));
    str_free(&name);
    return code;
}

static int write_atomic(const char *path, const void *p, size_t n, bool private, struct err *e)
{
    size_t room = strlen(path) + 40;
    char *temporary = xmalloc(room);
    snprintf(temporary, room, "%s" TEMPORARY "%d-%d", path, (int)getpid(), (int)gettid());
    struct fs_writer *w;
    int code = fs_writer_open(&w, temporary, e);
    if (!code) {
        int wrote = private ? fs_writer_private(w, e) : OK;
        if (!wrote) wrote = fs_writer_write(w, p, n, e);
        code = fs_writer_close(w, true, wrote ? NULL : e);
        if (wrote) code = wrote;
        if (!code) code = fs_rename(temporary, path, e);
        if (code) unlink(temporary);
    }
    xfree(temporary);
    return code;
}

int fs_write_atomic(const char *path, const void *p, size_t n, struct err *e)
{
    return write_atomic(path, p, n, false, e);
}

int fs_write_private(const char *path, const void *p, size_t n, struct err *e)
{
    return write_atomic(path, p, n, true, e);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int fs_list(const char *path, char ***names, int *n, struct err *e)
{
    *names = NULL;
    *n = 0;
    DIR *d = opendir(path);
    if (!d) return fs_read_failed(e, errno, path);
    int room = 0, why;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(d);
        why = errno;
        if (!entry) break;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        GROW(*names, *n, room, 1);
        (*names)[(*n)++] = xstrdup(entry->d_name);
    }
    closedir(d);
    if (why) {
        fs_list_free(*names, *n);
        *names = NULL;
        *n = 0;
        return fs_read_failed(e, why, path);
    }
    if (*n) qsort(*names, (size_t)*n, sizeof **names, by_name);
    return OK;
}

void fs_list_free(char **names, int n)
{
    for (int i = 0; i < n; i++) xfree(names[i]);
    xfree(names);
}

int fs_sweep_temporaries(const char *folder, const char *name, struct err *e)
{
    char **names;
    size_t length = strlen(name);
    int n, code = fs_list(folder, &names, &n, e);
    if (code) return code;
    for (int i = 0; i < n && !code; i++) {
        if (strncmp(names[i], name, length) || strncmp(names[i] + length, TEMPORARY, strlen(TEMPORARY))) continue;
        char *path = fs_join(folder, names[i]);
        if (unlink(path) && errno != ENOENT) code = err_errno(e, ERR_IO, errno, "%s: cannot be removed", path);
        xfree(path);
    }
    fs_list_free(names, n);
    return code;
}

/* Whether path still names the open file: a holder may have removed it between our open and our lock. */
static bool still_named(const char *path, int fd)
{
    struct stat mine, named;
    return !fstat(fd, &mine) && !stat(path, &named) && mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

static int lock_once(struct fs_lock *l, const char *path, struct err *e)
{
    l->busy = false;
    l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (l->fd < 0) return write_failed(e, errno, path, "the lock file cannot be opened");
    if (!flock(l->fd, LOCK_EX | LOCK_NB)) return OK;
    int why = errno;
    char text[32] = "";
    ssize_t n = pread(l->fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    l->busy = why == EWOULDBLOCK;
    if (!l->busy) return write_failed(e, why, path, "cannot be locked");
    return err_set(e, ERR_REQUEST, "%s: in use by process %s; wait for it, stop it, or choose another run.dir", path,
                   *text ? text : "(unknown)");
}

int fs_lock_take(struct fs_lock *l, const char *path, struct err *e)
{
    int code = lock_once(l, path, e);
    while (!code && !still_named(path, l->fd)) { /* what was locked is nobody's lock any more */
        fs_lock_release(l);
        code = lock_once(l, path, e);
    }
    if (!code) {
        char text[32];
        int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
        if (ftruncate(l->fd, 0) || pwrite(l->fd, text, (size_t)n, 0) != n)
            code = write_failed(e, errno, path, "cannot be written");
    }
    if (code) fs_lock_release(l);
    return code;
}

void fs_lock_release(struct fs_lock *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}

void fs_lock_remove(struct fs_lock *l, const char *path)
{
    if (l->fd >= 0) unlink(path);
    fs_lock_release(l);
}

#define WRITER_BYTES ((size_t)1 << 20)
#define CALL_BYTES ((size_t)8 << 20) /* calls end at multiples of it: at the borders of stripes and pages */
#define WRITEBACK_BYTES                                                                                                \
    ((int64_t)32 << 20) /* the disk works beside the writer, and a sync at the end finds little left */

struct fs_writer {
    int fd;
    char *path;
    unsigned char *buffer;
    size_t used;           /* bytes in the buffer */
    int64_t offset;        /* bytes accepted, buffer included */
    int64_t n_calls;       /* write(2) calls so far */
    int64_t fail_at;       /* the call that is made to fail; 0: none */
    int64_t pushed, begun; /* offset behind the last byte written; before it the disk was told to begin */
    int failed;            /* errno of the first failure: sticky, later calls change nothing */
};

static struct fs_writer *writer_new(int fd, const char *path, int64_t offset)
{
    struct fs_writer *w = xcalloc(1, sizeof *w);
    w->fd = fd;
    w->path = xstrdup(path);
    w->buffer = xmalloc(WRITER_BYTES);
    w->offset = w->pushed = w->begun = offset;
    return w;
}

int fs_writer_open(struct fs_writer **out, const char *path, struct err *e)
{
    *out = NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return write_failed(e, errno, path, "cannot be created");
    *out = writer_new(fd, path, 0);
    return OK;
}

int fs_writer_private(struct fs_writer *w, struct err *e)
{
    return fchmod(w->fd, 0600) ? write_failed(e, errno, w->path, "cannot be kept from others") : OK;
}

int fs_writer_go_on(struct fs_writer **out, const char *path, int64_t offset, struct err *e)
{
    *out = NULL;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return write_failed(e, errno, path, "cannot be written");
    struct stat st;
    int failed = fstat(fd, &st) ? errno : st.st_size < offset ? ESPIPE : 0;
    if (!failed && (ftruncate(fd, offset) || lseek(fd, offset, SEEK_SET) != offset)) failed = errno;
    if (failed) {
        close(fd);
        return write_failed(e, failed, path, "cannot be gone on with");
    }
    *out = writer_new(fd, path, offset);
    return OK;
}

void fs_writer_fail_at(struct fs_writer *w, int64_t n) { w->fail_at = n; }

static void push(struct fs_writer *w, const unsigned char *p, size_t n)
{
    while (n && !w->failed) {
        ssize_t k = -1;
        size_t room = CALL_BYTES - (size_t)(w->pushed % (int64_t)CALL_BYTES);
        if (++w->n_calls == w->fail_at) errno = ENOSPC;
        else k = write(w->fd, p, n < room ? n : room);
        if (k < 0) {
            if (errno != EINTR) w->failed = errno;
            continue;
        }
        p += k;
        n -= (size_t)k;
        w->pushed += k;
        if (w->pushed - w->begun < WRITEBACK_BYTES) continue;
        sync_file_range(w->fd, w->begun, w->pushed - w->begun, SYNC_FILE_RANGE_WRITE); /* a hint: nothing to fail */
        w->begun = w->pushed;
    }
}

static int status(const struct fs_writer *w, struct err *e)
{
    return w->failed ? write_failed(e, w->failed, w->path, "writing failed") : OK;
}

int fs_writer_write(struct fs_writer *w, const void *p, size_t n, struct err *e)
{
    if (w->used + n > WRITER_BYTES) {
        push(w, w->buffer, w->used);
        w->used = 0;
    }
    if (n > WRITER_BYTES) {
        push(w, p, n);
    } else if (n) {
        memcpy(w->buffer + w->used, p, n);
        w->used += n;
    }
    w->offset += (int64_t)n;
    return status(w, e);
}

int fs_writer_flush(struct fs_writer *w, struct err *e)
{
    push(w, w->buffer, w->used);
    w->used = 0;
    return status(w, e);
}

int64_t fs_writer_offset(const struct fs_writer *w) { return w->offset; }

int fs_writer_close(struct fs_writer *w, bool sync, struct err *e)
{
    push(w, w->buffer, w->used);
    if (sync && !w->failed && fsync(w->fd)) w->failed = errno;
    if (close(w->fd) && !w->failed) w->failed = errno; /* a network file system may report a full disk only now */
    int code = status(w, e);
    xfree(w->buffer);
    xfree(w->path);
    xfree(w);
    return code;
}
