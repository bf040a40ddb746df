/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_work.h: what was tokenized so far, beside the token file that is being made: PATH.work. Whoever is killed
 * goes on from it.
 *
 *   head       magic, version, key of inputs, tokenizer and way of cutting, bytes per token, checksum
 *   records    one per part (text_parts.h), in order: a head with the place in the inputs to go on from, and its
 * checksum, in which the record before is named; documents that begin; ids; where documents end among them; bad records
 * the last   a record without ids that says that the inputs are at their end
 *
 * Invariants
 *   1. The file is only ever appended to; what a kill or a full disk leaves is a beginning of it, and perhaps a piece
 * of a record, which the checksums tell.
 *   2. Nothing is believed but records whose checksums, and those of all records before them, are right: of another
 *      tokenizer, other inputs or another version nothing is.
 * Includes: base, text_parts.h. Order: Local. Called by tokenize_run.c under the lock of the token file.
 */
#ifndef TUTTI_DATA_TOKENIZE_WORK_H
#define TUTTI_DATA_TOKENIZE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "token/text_parts.h"

/* One record. */
struct work_piece {
    struct parts_place after; /* of a part that ends in the middle of a stretch: see `open` */
    bool open, whole;         /* whole: the inputs are at their end */
    int64_t skipped;          /* files passed over so far, the first: skipped_text */
    char skipped_text[240];
    const int32_t *ids;
    int64_t n_ids;
    const uint32_t *ends; /* document i ends before ids[ends[i]] */
    int64_t n_ends;
    const struct part_begin *begins; /* documents that begin */
    int64_t n_begins;
    const char *told; /* bad records that were passed over meanwhile, each with a NUL behind it */
    int64_t told_bytes;
};

struct work;
/* Opens path, or begins it. *last: the last record from whose place can be gone on (its ids not filled in; file -1:
 * there is none). Says on stderr what is gone on with, and what is not believed. */
int work_open(struct work **w, const char *path, uint64_t key, int width, struct work_piece *last, struct err *e);
int work_add(struct work *w, const struct work_piece *p, struct err *e);
/* Hands out all records in order, compared with their checksums again; ends with what fn fails with. */
typedef int work_piece_fn(void *arg, const struct work_piece *p, struct err *e);
int work_replay(struct work *w, work_piece_fn *fn, void *arg, struct err *e);
/* Closes the file; gone: removes it. */
void work_close(struct work *w, bool gone);

#endif
