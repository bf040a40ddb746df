/* SPDX-License-Identifier: Apache-2.0 */
/* source_list.h: the files behind inputs; for source.c and data/image_input.c. Order: Local. */
#ifndef TUTTI_SOURCE_SOURCE_LIST_H
#define TUTTI_SOURCE_SOURCE_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "remote/remote.h"

struct source_file {
    char *path;
    int64_t bytes, changed_ns;    /* of an object: its version, as a number */
    struct source_object *object; /* NULL: a file; else path is what may be said of its address */
    bool named;                   /* by the user, rather than found in a folder */
};
struct source_object {
    char *url;
    struct remote_about about;
};
struct source_list {
    const struct remote_options *options; /* how objects are read; NULL: by the defaults */
    struct remote *remote;                /* NULL while there are only files */
    struct source_file *files;
    int64_t n, room;
    int64_t bytes;
};

/* Adds the file or object, or what the folder or the prefix of a bucket holds. */
int source_list_add(struct source_list *l, const char *path, struct err *e);
void source_list_fini(struct source_list *l);

#endif
