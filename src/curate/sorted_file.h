/* SPDX-License-Identifier: Apache-2.0 */
/* sorted_file.h: a work file of fixed-size records, each some 64-bit words of this machine's byte order.
 *
 *   head      16 bytes "tutti records 1\n", then words per record (u64) and a key (u64) of what they belong to
 *   blocks    up to SORTED_BLOCK bytes of whole records, behind each the checksum of the block (hash64)
 *   tail      how many records (u64), the checksum of head and count (u64)
 *
 * Invariants
 *   1. The name is there when the file is whole: it is written as NAME.part and renamed.
 *   2. A reader takes nothing on trust: the size must follow from the count, each block is compared with its checksum
 *      before a record of it is handed out.
 * Who writes keeps an order, which the file does not know. Includes: base. Order: Local.
 */
#ifndef TUTTI_CURATE_SORTED_FILE_H
#define TUTTI_CURATE_SORTED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SORTED_BLOCK = 64 << 10, SORTED_WORDS_MAX = 1024 };

struct sorted_writer;
/* words: 1 to SORTED_WORDS_MAX. */
int sorted_create(struct sorted_writer **out, const char *path, int words, uint64_t key, struct err *e);
int sorted_put(struct sorted_writer *w, const uint64_t *record, struct err *e);
/* Ends the file and gives it its name; frees w also on failure. sync: it outlives the machine's crash. */
int sorted_publish(struct sorted_writer *w, bool sync, struct err *e);
void sorted_abandon(struct sorted_writer *w); /* removes what was written; NULL is fine */
/* For tests: as fs_writer_fail_at. */
void sorted_fail_at(struct sorted_writer *w, int64_t n);

struct sorted_reader;
/* ERR_CORRUPT where the file is not one of records of `words` words with this key. */
int sorted_open(struct sorted_reader **out, const char *path, int words, uint64_t key, struct err *e);
int64_t sorted_count(const struct sorted_reader *r);
/* 1 with a record that stays until the next call, 0 at the end, < 0: damaged or unreadable. */
int sorted_next(struct sorted_reader *r, const uint64_t **record, struct err *e);
void sorted_close(struct sorted_reader *r); /* NULL is fine */

#endif
