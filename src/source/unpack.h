/* SPDX-License-Identifier: Apache-2.0 */
/* unpack.h: the bytes of a file as they were before gzip (RFC 1952) or zstd (RFC 8878) packed them; of any other file
 * as they are. What a file is shows in its first bytes, not in its name.
 *
 * Invariants
 *   1. Memory is one buffer of the file's bytes and what the format looks back on: 32 KiB for gzip, at most 128 MiB for
 *      zstd (what asks for more is refused).
 *   2. Several packed pieces one after the other are one file, as gzip and zstd have it; zeros after them count for
 *      nothing, anything else after them is an error. The checksums that the formats carry are compared.
 *   3. What unpacks to more than UNPACK_RATIO times its bytes, beyond UNPACK_FREE, is refused: a small file cannot fill
 *      a disk.
 * Includes: base, blob.h. Order: Local.
 */
#ifndef TUTTI_SOURCE_UNPACK_H
#define TUTTI_SOURCE_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "source/blob.h"

enum { UNPACK_RATIO = 500 };
#define UNPACK_FREE ((int64_t)64 << 20)

struct unpack;
/* Reads the blob, which stays the caller's, from its beginning. */
struct unpack *unpack_new(struct blob *blob);
/* What is not packed, from offset `at` on, as it lies there. */
struct unpack *unpack_plain(struct blob *blob, int64_t at);
void unpack_free(struct unpack *u); /* NULL is fine */

/* Up to `room` > 0 bytes into p; *got = 0: the end. ERR_IO: cannot be read; ERR_CORRUPT: damaged, or ends in the
 * middle, with the place; ERR_REQUEST: refused by 1 or 3. */
int unpack_read(struct unpack *u, void *p, size_t room, size_t *got, struct err *e);
int64_t unpack_taken(const struct unpack *u); /* bytes read from the blob so far, or the offset reading begins at */
const char *unpack_format(const struct unpack *u); /* "gzip", "zstd" or ""; "" before the first read */

/* -- pieces in memory ------------------------------------------------------------------------------------------ */

/* One packed piece, whole in memory, into exactly n_out bytes: NULL, or what is wrong with it. gzip: or zlib. */
const char *unpack_gzip_piece(const void *p, size_t n, void *out, size_t n_out);
const char *unpack_zstd_piece(const void *p, size_t n, void *out, size_t n_out);
uint32_t unpack_crc32(uint32_t before, const void *p, size_t n); /* of IEEE 802.3, as gzip has it; begins with 0 */

#endif
