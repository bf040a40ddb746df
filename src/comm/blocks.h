/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h: memory of one process that the other processes of its host map and use in place.
 *
 * A block is an anonymous file (memfd) that its owner maps; a peer maps it too when an operation first names it, by
 * opening the owner's descriptor (/proc/PID/fd/N). Nobody has to allocate together, nothing has a name in the file
 * system, so nothing is left behind by a rank that is killed, and no limit of /dev/shm applies. What an owner has to
 * tell is one table per process in memory that all of the host see.
 *
 * A name says where a buffer lies, in 64 bits: slot + 1 in the upper 16, offset in the others; 0: in no block. Ids in
 * the table say which block a slot holds now: they are never used again, so a mapping of an earlier block is noticed.
 *
 * Invariants
 *   1. Bytes behind a name are touched only while the owner's operation is open, so the block is there (comm.h, 2). A
 *      rank that looks at a name later, when others have done all there was to do, finds nothing or another block, and
 *      touches neither.
 *   2. Releasing a block gives its pages back to the system at once, whoever maps it. What a peer still maps of it is
 *      address space without memory, and valid: a late reader sees zeros, not a signal. It goes when the slot is named
 *      again, or with the world. (A rank that is killed releases nothing: its pages go when its peers end, which they
 *      do.)
 *   3. A child process of fork shares the bytes of blocks with its parent: it gets no copy of its own.
 * Includes: rooms below, board.h. Order: Local. blocks_alloc, _release, _name: any thread; the others: one at a time.
 */
#ifndef TUTTI_COMM_BLOCKS_H
#define TUTTI_COMM_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/board.h"

#define BLOCK_LEAST ((size_t)64 << 10) /* smaller memory comes from ordinary pages */

/* Memory for the ranks of a host that one of them makes and the others see: an anonymous file, too. NULL: the system
 * has none, or does not let them. The owner keeps *fd until all have seen it. */
void *blocks_memory_new(size_t bytes, int *fd);
void *blocks_memory_see(int64_t pid, int64_t fd, size_t bytes);
void blocks_memory_free(void *p, size_t bytes, int fd); /* fd -1: none. NULL is fine */

struct blocks;

/* tables: memory that the n ranks of the host see, blocks_table_bytes(n); me: this rank's row on their board. Makes a
 * block to try things with. Then a barrier of the host, blocks_try, and blocks_use with what all of them say. */
size_t blocks_table_bytes(int n);
struct blocks *blocks_new(void *tables, int n, int me, struct board *board);
void blocks_free(struct blocks *b); /* NULL is fine */
/* 0, or ERR_IO saying why the blocks of a rank of the host cannot be seen from here. */
int blocks_try(struct blocks *b, struct err *e);
void blocks_use(struct blocks *b, bool works);
bool blocks_work(const struct blocks *b); /* NULL is fine */

/* Zeroed pages in a block; NULL: not here, take ordinary ones. */
void *blocks_alloc(struct blocks *b, size_t bytes);
bool blocks_release(struct blocks *b, void *p); /* false: no block begins there */

#define BLOCK_NOTHING ((uint64_t)0xffff << 48) /* the name of no bytes at all */
uint64_t blocks_name(struct blocks *b, const void *p, size_t bytes);
/* 0 and where this process sees what rank `row` named (NULL: nothing, or released already); ERR_IO: the system does not
 * let it. */
int blocks_see(struct blocks *b, int row, uint64_t name, char **p, struct err *e);

#endif
