/* SPDX-License-Identifier: Apache-2.0 */
/* stored_box.h: a box whose elements lie row-major in a safetensors file, read in parts and compared with its
 * checksums. Includes: safetensors.h, layout. Order: Local.
 */
#ifndef TUTTI_CHECKPOINT_STORED_BOX_H
#define TUTTI_CHECKPOINT_STORED_BOX_H

#include "checkpoint/safetensors.h"
#include "layout/region.h"

struct stored_box {
    struct safetensors *file;
    const struct safetensors_entry *t;
    struct region box;    /* what of the tensor its bytes are */
    size_t width;         /* bytes of an element */
    int64_t chunk;        /* bytes under one checksum; of no meaning when there are none */
    const uint64_t *sums; /* XXH64 of each chunk; NULL: there are none, as in files that others wrote */
    bool *seen;           /* per chunk: was compared; set here */
};

/* A part of the box that lies in one stretch of the file: `slab`, its elements row-major at p. */
typedef void stored_fn(void *ctx, const struct region *slab, const void *p);
/* Calls fn with slabs of a few MiB (one row of the innermost dim at least) that together hold `part`, and more of their
 * rows than that where part is not as wide. A chunk that is touched first is read whole and compared before fn sees any
 * of it.
 *   fails   ERR_CORRUPT: a checksum is wrong; ERR_IO as safetensors_read */
int stored_each(struct stored_box *f, const struct region *part, stored_fn *fn, void *ctx, struct err *e);
/* Bytes [lo, lo + n) of the tensor to dst. Where there are checksums the stretch begins and ends where a chunk does; it
 * is read once, and compared. Fails as stored_each. */
int stored_stretch(struct stored_box *f, int64_t lo, int64_t n, void *dst, struct err *e);
/* Reads all of it: compares the sums of the chunks where there are any, whatever was seen before, and, where hash is
 * not NULL, the sum of all bytes. */
int stored_verify(struct stored_box *f, const uint64_t *hash, struct err *e);

#endif
