/* SPDX-License-Identifier: Apache-2.0 */
/* copy_place_impl.h: what the files of copy_place.h share: copy_place.c (what a place holds, whose it is), copy_put.c
 * (making a copy), copy_take.c (taking one back, and bytes of files here and there). Floor 8. */
#ifndef TUTTI_KEEP_COPY_PLACE_IMPL_H
#define TUTTI_KEEP_COPY_PLACE_IMPL_H

#include "base/fs.h"
#include "checkpoint/manifest.h"
#include "keep/copy_place.h"

/* ---- copy_place.c ---- */
/* Of a file of a copy there, or (step -1) of the place itself: its address or path; xfree it. */
char *copy_name(const struct copy_place *p, int64_t step, const char *name);
/* "s3://b/p/step-00000500/NAME": the step and the name; -1: something else. */
int64_t copy_step_in(const struct copy_place *p, const char *url, const char **name);
/* Bytes of an object that the list has; -1: it has none of that name. */
int64_t copy_bytes(const struct copy_place *p, const struct remote_list *l, int64_t step, const char *name);
/* Whose it is, into h->owner; of a store h->objects are known.
 *   fails   ERR_IO, ERR_CORRUPT: that is unknown */
int copy_read_owner(struct copy_place *p, struct copy_held *h, struct err *e);
/* The manifest of a copy there.
 *   fails   ERR_IO: it could not be read; ERR_CORRUPT, ERR_REQUEST as manifest_parse */
int copy_manifest(struct copy_place *p, int64_t step, struct manifest *m, struct err *e);

/* ---- copy_take.c ---- */
/* Bytes of a file of this host, or of an object. */
struct copy_reader {
    struct fs_file f;
    struct object *o;
    int64_t bytes;
};
/* path: what copy_name gives, or a path of this host. Close it in any case. */
int copy_reader_open(struct copy_reader *r, struct copy_place *p, const char *path, struct err *e);
void copy_reader_close(struct copy_reader *r);
int copy_read(void *reader, int64_t at, size_t n, void *out, struct err *e); /* as remote_source_fn */
/* A file of this host, synced. */
int copy_write(const char *path, struct copy_reader *from, struct err *e);

#endif
