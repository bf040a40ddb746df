/* SPDX-License-Identifier: Apache-2.0 */
/* blob_remote.h: an object behind an address as a blob (blob.h), or as a file that is read in places (base/fs.h).
 * Includes: base, remote. Order: Local. */
#ifndef TUTTI_SOURCE_BLOB_REMOTE_H
#define TUTTI_SOURCE_BLOB_REMOTE_H

#include "base/fs.h"
#include "remote/remote.h"
#include "source/blob.h"

/* r is borrowed until the blob is closed. */
int blob_of_object(struct blob **b, struct remote *r, const char *url, const struct remote_about *about, struct err *e);
/* Threads may read it at once; resting and reopening do nothing to it. */
int file_of_object(struct fs_file *f, struct remote *r, const char *url, const struct remote_about *about,
                   struct err *e);

#endif
