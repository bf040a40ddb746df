/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h: the lines of a file, one after the other, with bounded memory. The file is a regular one, also where a
 * stranger's folder has something else under its name. Includes: base. Order: Local.
 */
#ifndef TUTTI_BASE_LINES_H
#define TUTTI_BASE_LINES_H

#include <stddef.h>

#include "base/err.h"

/* line: without its newline, n bytes and a NUL, of at most `longest`. NULL: one that is longer, or the last one where
 * no newline ends it. */
typedef void lines_fn(void *ctx, const char *line, size_t n);
/*   fails   as fs_stream_open with FS_LINES_MOST; ERR_IO */
int lines_each(const char *path, size_t longest, lines_fn *each, void *ctx, struct err *e);

#endif
