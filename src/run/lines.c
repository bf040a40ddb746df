#include "run/lines.h"

#include <errno.h>
#include <stdio.h>

#include "base/fs.h"
#include "base/mem.h"

int lines_append(const char *dir, const char *name, const struct str *line, struct err *e)
{
    char *path = fs_join(dir, name);
    FILE *f = fopen(path, "a");
    int rc = OK;
    errno = 0;
    if (!f || fprintf(f, "%s\n", str_text(line)) < 0) rc = err_errno(e, ERR_IO, errno, "cannot write %s", path);
    if (f && fclose(f) && !rc) rc = err_errno(e, ERR_IO, errno, "cannot write %s", path);
    xfree(path);
    return rc;
}
