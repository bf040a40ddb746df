/* SPDX-License-Identifier: Apache-2.0 */
/* A write may take a part of a record: the rest waits, so that the file has every record whole and once, as soon as it
 * has it. */
#include "base/append.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

#define WAITING_LIMIT ((size_t)64 << 20)

int append_open(struct append *a, const char *path, struct err *e)
{
    *a = (struct append){.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)};
    if (a->fd < 0) return err_errno(e, ERR_IO, errno, "cannot write %s", path);
    a->path = xstrdup(path);
    return OK;
}

/* Writes what waits, as far as it goes: 0, or why it does not go on. */
static int push(struct append *a)
{
    size_t done = 0;
    int why = 0;
    while (!why && done < a->waiting.n) {
        ssize_t k = write(a->fd, a->waiting.p + done, a->waiting.n - done);
        if (k >= 0) done += (size_t)k;
        else if (errno != EINTR) why = errno;
    }
    if (done) memmove(a->waiting.p, a->waiting.p + done, a->waiting.n - done);
    a->waiting.n -= done;
    return why;
}

int append_add(struct append *a, const void *p, size_t n, struct err *e)
{
    bool late = a->waiting.n > 0;
    str_add(&a->waiting, p, n);
    int why = push(a);
    if (why && a->waiting.n > WAITING_LIMIT) return err_errno(e, ERR_IO, why, "cannot write %s", a->path);
    if (why && !late)
        log_warn("cannot write %s: %s; its lines wait in memory until there is room", a->path, strerror(why));
    if (!why && late) log_info("%s is complete again", a->path);
    return OK;
}

int append_close(struct append *a, struct err *e)
{
    if (!a->path) return OK;
    int why = push(a);
    if (close(a->fd) && !why) why = errno;
    int rc = why ? err_errno(e, ERR_IO, why, "cannot write %s", a->path) : OK;
    str_free(&a->waiting);
    xfree(a->path);
    a->path = NULL;
    return rc;
}

int append_line(const char *dir, const char *name, struct str *line, struct err *e)
{
    char *path = fs_join(dir, name);
    struct append a;
    int rc = append_open(&a, path, e);
    if (!rc) {
        str_putc(line, '\n');
        rc = append_add(&a, line->p, line->n, e);
        int closed = append_close(&a, rc ? NULL : e);
        if (!rc) rc = closed;
    }
    xfree(path);
    return rc;
}
