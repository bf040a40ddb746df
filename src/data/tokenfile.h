/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile.h: tokens on disk, PREFIX.tok: one file, written front to back, read in places.
 *
 *   offset 0        head, 4096 bytes: magic "tuttitok", version, bytes per token (2 or 4), vocabulary, end-of-text id,
 *                   fingerprint of the tokenizer, key of the inputs, zeros, checksum of all that
 *   offset 4096     the tokens, little-endian, each document followed by the end-of-text id; zeros up to 8 bytes
 *   then            one XXH64 per chunk of 16 KiB of tokens (version 1: 1 MiB)
 *   at the end      tail, 64 bytes: counts of tokens, documents and checksums, their checksum, magic "tuttiend"
 *
 * Invariants
 *   1. A file under its final name is whole: it is written under another name, synced and renamed.
 *   2. Opening checks head, tail, checksums and size against each other before anything is believed; a truncated,
 *   foreign or
 *      damaged file is an error that says which.
 *   3. Every byte is compared with its checksum when it is first read: whatever is handed out from a chunk of which
 *   nothing was
 *      handed out before comes from the very bytes that were compared. A token outside the vocabulary is never handed
 *      out.
 *   4. A file that shrinks or fails while it is open is an error with file and offset.
 * Cost of a first touch: reading and hashing 16 KiB, some 3 us from the page cache; later reads take their own bytes
 * only. Includes: base. Order: Local; an open file may be shared by threads.
 */
#ifndef TUTTI_DATA_TOKENFILE_H
#define TUTTI_DATA_TOKENFILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"

struct tokenfile_head {
    int32_t vocab, eos;   /* eos: the id after each document */
    uint64_t fingerprint; /* tokenizer_fingerprint */
    uint64_t key;         /* source_key of what was tokenized */
};

/* -- read --------------------------------------------------------------------------------------------------- */

struct tokenfile {
    char *path;
    struct tokenfile_head head;
    int64_t n_tokens, n_documents;
    int width;         /* bytes per token */
    int64_t chunk;     /* bytes under one checksum */
    int64_t sums_at;   /* where the checksums begin */
    uint64_t sums_sum; /* of the checksums: of every token */
    char *made_from;   /* the text that this file is a cache of, for the remedy in errors; NULL: none */
    struct fs_file file;
    _Atomic uint64_t *seen;   /* a bit per chunk: was compared */
    _Atomic int64_t *checked; /* [2]: bytes compared, nanoseconds it took, reading of those bytes included */
};

/* The file that `path` means: itself when it ends in .tok, path.tok when that exists and `path` itself does not.
 * NULL when it is neither; xfree it. */
char *tokenfile_find(const char *path);
int tokenfile_open(struct tokenfile *f, const char *path, struct err *e);
void tokenfile_close(struct tokenfile *f);
/* tokens [at, at + n) of the file, which must exist, as int32.
 *   fails   ERR_CORRUPT: a checksum is wrong, or a token is not below the vocabulary; ERR_IO: cut short or
 *           unreadable */
int tokenfile_read(const struct tokenfile *f, int64_t at, int64_t n, int32_t *out, struct err *e);
/* Reads everything and compares the checksums, again where they were compared before. */
int tokenfile_verify(const struct tokenfile *f, struct err *e);
/* What comparing has cost since the file was opened. */
void tokenfile_cost(const struct tokenfile *f, int64_t *bytes, double *seconds);

/* -- write -------------------------------------------------------------------------------------------------- */

struct tokenfile_writer;
/* One writer per path: ERR_REQUEST while another process writes it, and *busy: that is the reason, and no other. */
int tokenfile_create(struct tokenfile_writer **w, bool *busy, const char *path, const struct tokenfile_head *head,
                     struct err *e);
int tokenfile_append(struct tokenfile_writer *w, const int32_t *ids, int64_t n, struct err *e);
int tokenfile_end_document(struct tokenfile_writer *w, struct err *e); /* appends eos */
/* Publishes the file, or on failure leaves what was there before; frees w in both cases. */
int tokenfile_publish(struct tokenfile_writer *w, struct err *e);
void tokenfile_abandon(struct tokenfile_writer *w);          /* removes what was written; NULL is fine */
int64_t tokenfile_written(const struct tokenfile_writer *w); /* tokens */
/* For tests: the n-th write to the disk fails. */
void tokenfile_fail_at(struct tokenfile_writer *w, int64_t n);

#endif
