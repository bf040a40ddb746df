/* SPDX-License-Identifier: Apache-2.0 */
/* file_tail.h: cutting a file of lines from its end, however large it is.
 * Floor 8. Order: Local.
 */
#ifndef TUTTI_KEEP_FILE_TAIL_H
#define TUTTI_KEEP_FILE_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Whether a line (n bytes, without its end) stays. */
typedef bool file_tail_keep_fn(void *ctx, const char *line, size_t n);

/* Cuts lines off the end of a file until one stays; what follows the last end of line goes too. Lines before that one
 * are not read: the cost is that of what is cut. *cut: how many bytes went. A file that is not there has none.
 *   fails   ERR_IO; ERR_CORRUPT: a line of more than 64 MiB, so not a file of lines: nothing is cut */
int file_tail_cut(const char *path, file_tail_keep_fn *keep, void *ctx, int64_t *cut, struct err *e);

#endif
