/* SPDX-License-Identifier: Apache-2.0 */
/* source_list.h: the files behind inputs; for source.c only. Order: Local. */
#ifndef TUTTI_DATA_SOURCE_LIST_H
#define TUTTI_DATA_SOURCE_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct source_file {
    char *path;
    int64_t bytes, changed_ns;
    bool named; /* by the user, rather than found in a folder */
};
struct source_list {
    struct source_file *files;
    int64_t n, room;
    int64_t bytes;
};

/* Adds the file, or what the folder holds. */
int source_list_add(struct source_list *l, const char *path, struct err *e);
void source_list_fini(struct source_list *l);

#endif
