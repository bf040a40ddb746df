/* SPDX-License-Identifier: Apache-2.0 */
/* append.h: a file that grows by whole records and outlives a full disk: what cannot be written waits in memory, is
 * said once, and follows in order when there is room again. A run is not worth less than its log.
 * Floor 0. Order: Local.
 */
#ifndef TUTTI_BASE_APPEND_H
#define TUTTI_BASE_APPEND_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct append {
    int fd;
    char *path;
    struct str waiting; /* not written yet: the rest of a record, and whole ones */
};

/* Opens path at its end, made where it is missing. */
int append_open(struct append *a, const char *path, struct err *e);
/* Fails only when more than 64 MiB wait. */
int append_add(struct append *a, const void *p, size_t n, struct err *e);
/* Fails when something could not be written to the end. */
int append_close(struct append *a, struct err *e);
/* One line to dir/name, with its end, which line gets too: for files that grow now and then. */
int append_line(const char *dir, const char *name, struct str *line, struct err *e);

#endif
