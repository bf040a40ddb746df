/* SPDX-License-Identifier: Apache-2.0 */
/* piece_cache.h: pieces of objects, kept in a folder of a bounded size, for any number of processes at once.
 *
 *   DIR/ab/cdef....piece        one piece: head, a checksum per 64 KiB, the bytes
 *   DIR/ab/....tmp-PID-THREAD   one that is being written
 *   DIR/lock, DIR/used          who adds and evicts holds the first; the second has the bytes of all pieces
 *
 * Invariants
 *   1. A piece under its name is whole: it is written under another and renamed. What a crash or a disk damaged all the
 *      same is seen by the checksums when it is read, removed, and as if it had not been there.
 *   2. After an addition the pieces' bytes are at most `limit`; what was used longest ago (within 10 s) goes first.
 *      Files that are being written come to that: a piece for each thread that adds one.
 *   3. Nothing but what carries such a name is ever removed.
 *   4. A cache that cannot be written is said once, and reading goes on without.
 * Includes: base. Order: Local; threads may share one.
 */
#ifndef TUTTI_REMOTE_PIECE_CACHE_H
#define TUTTI_REMOTE_PIECE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { PIECE_BLOCK = 64 << 10 };

struct piece_key { /* of object, version and place: whoever has another of these has another key */
    unsigned char id[16];
};

struct piece_cache;
/* Makes the folder. ERR_REQUEST: it cannot be a cache. limit > 0, in bytes. */
int piece_cache_open(struct piece_cache **c, const char *dir, int64_t limit, struct err *e);
void piece_cache_close(struct piece_cache *c); /* NULL is fine */

/* Bytes [at, at + n) of a piece of piece_n bytes; only the blocks that hold them are read and compared. False: it is
 * not there. */
bool piece_cache_read(struct piece_cache *c, const struct piece_key *k, size_t piece_n, size_t at, size_t n, void *out);
void piece_cache_put(struct piece_cache *c, const struct piece_key *k, const void *p, size_t n);
void piece_cache_drop(struct piece_cache *c, const struct piece_key *k); /* one that is wrong, or not there */
int64_t piece_cache_limit(const struct piece_cache *c);

#endif
