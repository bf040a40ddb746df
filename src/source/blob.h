/* SPDX-License-Identifier: Apache-2.0 */
/* blob.h: the bytes of an input, wherever they lie, read in places.
 *
 * A local file is one kind; what is reached over a network is another behind the same two calls. Who reads a blob from
 * its first byte to its last asks for offsets that rise, and a kind may read ahead. Names and sizes are for errors and
 * progress.
 *
 * Invariants: 1. reading has no position: the same call gives the same bytes; 2. a read of fewer bytes than there were
 * when the blob was opened is an error of whoever needs them (blob_read), never silent.
 * Includes: base. Order: Local; one thread at a time uses a blob.
 */
#ifndef TUTTI_SOURCE_BLOB_H
#define TUTTI_SOURCE_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct blob;
struct blob_ops {
    const char *name; /* "file" */
    /* Up to n > 0 bytes that lie at offset `at` into out; *got = 0 only where `at` is the end or beyond.
     *   fails   ERR_IO, with the blob's path and the offset */
    int (*read)(struct blob *b, int64_t at, size_t n, void *out, size_t *got, struct err *e);
    void (*close)(struct blob *b); /* frees b, and what ops->read needs; not path */
};
struct blob { /* the beginning of a kind's own struct */
    const struct blob_ops *ops;
    char *path;    /* from xstrdup */
    int64_t bytes; /* when it was opened */
};

/* Opens what the path names for reading. ERR_REQUEST where it cannot be: the text says why. */
int blob_open(struct blob **b, const char *path, struct err *e);
/* The same of an open descriptor, which becomes the blob's to close; name is for errors. */
int blob_of_descriptor(struct blob **b, const char *name, int fd, struct err *e);
void blob_close(struct blob *b); /* NULL is fine */

/* Up to n bytes; *got = 0 at the end. */
int blob_some(struct blob *b, int64_t at, size_t n, void *out, size_t *got, struct err *e);
/* All n bytes. fails: as above, and ERR_IO where the blob ends before. */
int blob_read(struct blob *b, int64_t at, size_t n, void *out, struct err *e);

#endif
