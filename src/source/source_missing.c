/* SPDX-License-Identifier: Apache-2.0 */
/* source_missing.c: a path that names nothing was mostly meant for a shell, or for a browser. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/source.h"

int source_missing(const char *path, const char *plain, struct err *e)
{
    struct stat st;
    char target[200];
    if (stat(path, &st) == 0)
        return err_set(e, ERR_IO, "%s: is there, and could not be looked at a moment ago; start again", path);
    int why = errno;
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n > 0 && why == ENOENT)
        return err_set(e, ERR_REQUEST, "%s: is a link to %.*s, which is not there", path, (int)n, target);
    if (why != ENOENT && why != ENOTDIR) return err_errno(e, ERR_REQUEST, why, "%s: cannot be read", path);
    if (strstr(path, "://"))
        return err_set(e, ERR_REQUEST, "%s: is an address of a kind that is not read; http://, https:// and s3:// are",
                       path);
    if (*path == '~')
        return err_set(e, ERR_REQUEST,
                       "%s: no such file or folder: in a key's value ~ stays ~; write $HOME%s in a shell, or the whole "
                       "path",
                       path, path + 1);
    if (strpbrk(path, "*?"))
        return err_set(e, ERR_REQUEST,
                       "%s: no such file: patterns are not expanded; name the folder, which is read with all that is "
                       "in it, or a list: [a.txt, b.txt]",
                       path);
    if (strchr(path, ','))
        return err_set(e, ERR_REQUEST, "%s: no such file or folder; several are a list in brackets: [a.txt, b.txt]",
                       path);
    return err_set(e, ERR_REQUEST, "%s: %s", path, plain);
}
