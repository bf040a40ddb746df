/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_work.h: what was tokenized so far, beside the token file that is being made: PATH.work. Whoever is killed
 * goes on from it.
 *
 *   head       magic, version, key of inputs, tokenizer and way of cutting, bytes per token, checksum
 *   records    one per part (text_parts.h): a head with the place in the inputs to go on from, and its checksum, in
 *              which the record before is named; documents that begin; ids; where documents end among them; bad records
 *
 * Inputs are read in lots (source/source.h), several at once. The records of a lot are in order and numbered; those of
 * several lie between each other as they came. The last of a lot has no ids and says that it is done.
 *
 * Invariants
 *   1. The file is only ever appended to; what a kill or a full disk leaves is a beginning of it, and perhaps a piece
 *      of a record, which the checksums tell.
 *   2. Nothing is believed but records whose checksums, and those of all records before them, are right: of another
 *      tokenizer, other inputs or another version nothing is.
 *   3. A lot is gone on with behind its last record that ends with a stretch. A record of a number that was there
 *      already takes its place, and of what came behind it nothing is left.
 * Includes: base, text_parts.h. Order: Local, one thread at a time. Called by tokenize_run.c and chat_tokenize.c under
 * the lock of the token file.
 */
#ifndef TUTTI_DATA_TOKENIZE_WORK_H
#define TUTTI_DATA_TOKENIZE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "token/text_parts.h"

/* One record. */
struct work_piece {
    int64_t lot, seq;
    struct parts_place after; /* counted in its lot; of a part that ends in the middle of a stretch: see `open` */
    bool open, done;          /* done: the lot is at its end */
    int64_t skipped;          /* files of the lot passed over so far; skipped_text: the first, or "" */
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

/* What there is of a lot, up to the record that it is gone on behind. */
struct work_lot {
    int64_t n;                /* records */
    struct parts_place after; /* file -1: nothing */
    int64_t skipped;
    char *skipped_text; /* owned; NULL: none */
    bool done;
    int64_t *at;       /* where in the file they are */
    int64_t all, room; /* records that are there, also those behind the last to go on from */
};

struct work;
/* Opens path, or begins it. Says on stderr what is gone on with, and what is not believed. */
int work_open(struct work **w, const char *path, uint64_t key, int width, int64_t n_lots, struct err *e);
const struct work_lot *work_lot(const struct work *w, int64_t lot);
/* A record's number is work_lot's n, or one more than that of the record added last. */
int work_add(struct work *w, const struct work_piece *p, struct err *e);
/* Hands out all records, lot by lot, compared with their checksums again; ends with what fn fails with. */
typedef int work_piece_fn(void *arg, const struct work_piece *p, struct err *e);
int work_replay(struct work *w, work_piece_fn *fn, void *arg, struct err *e);
/* Closes the file; gone: removes it. */
void work_close(struct work *w, bool gone);

#endif
