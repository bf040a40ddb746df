/* SPDX-License-Identifier: Apache-2.0 */
/* tar_members.h: the members of a tar archive one after the other, by libarchive; its bytes come through a
 * source_buffer, so that what packs the archive is unpacked, counted and bounded there. Nothing is written anywhere:
 * names are words in errors and keys of samples, no paths.
 *
 * An archive ends by a block of zeros: one that ends without was cut short. Includes: base, source_buffer.h.
 * Order: Local.
 */
#ifndef TUTTI_SOURCE_TAR_MEMBERS_H
#define TUTTI_SOURCE_TAR_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "source/source_buffer.h"

struct tar_member {
    const char *name; /* stays until the next call */
    int64_t bytes;    /* as its header says */
    int64_t offset;   /* of its header, in what the file holds unpacked */
    bool is_file;     /* a regular one; folders are passed over */
};

struct tar;
struct tar *tar_new(struct source_buffer *b); /* at the archive's first byte; the buffer stays the caller's */
/* The same of what is not packed, and whose members are mostly not read: it seeks over them. */
struct tar *tar_new_seeking(struct source_buffer *b);
void tar_free(struct tar *t); /* NULL is fine */
/* 1, 0 at the end, < 0: ERR_CORRUPT with the offset, or how reading fails. Behind an error nothing follows. */
int tar_next(struct tar *t, struct tar_member *m, struct err *e);
/* The bytes of the member that tar_next has found, m->bytes of them. */
int tar_read(struct tar *t, const struct tar_member *m, struct str *out, struct err *e);
/* Instead: where these bytes lie, one behind the other, in what the file holds unpacked. ERR_CORRUPT: they do not
 * (a sparse file), or as tar_read. */
int tar_data_offset(struct tar *t, const struct tar_member *m, int64_t *offset, struct err *e);

#endif
