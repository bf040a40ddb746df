/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lines.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"

enum { BLOCK_BYTES = 1 << 16 };

int lines_each(const char *path, size_t longest, lines_fn *each, void *ctx, struct err *e)
{
    FILE *f;
    int rc = fs_stream_open(&f, path, FS_LINES_MOST, e);
    if (rc) return rc;
    char *block = xmalloc(BLOCK_BYTES);
    struct str line = {0};
    bool too_long = false;
    for (size_t n; (n = fread(block, 1, BLOCK_BYTES, f)) > 0;)
        for (char *p = block, *end; p < block + n; p = end) {
            char *newline = memchr(p, '\n', (size_t)(block + n - p));
            end = newline ? newline + 1 : block + n;
            size_t more = (size_t)((newline ? newline : end) - p);
            too_long = too_long || line.n + more > longest;
            if (!too_long) str_add(&line, p, more);
            if (!newline) continue;
            each(ctx, too_long ? NULL : str_text(&line), too_long ? 0 : line.n);
            str_clear(&line);
            too_long = false;
        }
    if (line.n || too_long) each(ctx, NULL, 0);
    if (ferror(f)) rc = err_errno(e, ERR_IO, errno, "cannot read %s", path);
    fclose(f);
    str_free(&line);
    xfree(block);
    return rc;
}
