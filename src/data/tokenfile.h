/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile.h: tokens on disk, PREFIX.tok: one file, written front to back, read in places.
 *
 *   offset 0        head, 4096 bytes: magic "tuttitok", version, bytes per token (2 or 4), vocabulary, end-of-text id,
 *                   fingerprint of the tokenizer, key of the inputs, zeros, checksum of all that
 *   offset 4096     the tables, each followed by zeros up to 8 bytes; all numbers are little-endian:
 *       tokens      2 or 4 bytes each; every document ends with the end-of-text id
 *       mask        a bit per token, the lowest of a byte first: 1 when a loss is taken of it; no bytes: of all
 *       ends        8 bytes per document: the token after its last
 *       origins     8 bytes per document: byte of its input at which its text, or the record that holds it, begins, as
 *                   the input is when it is unpacked; -1: not known; -2: nor the input; no bytes: of none
 *       inputs      16 bytes each: the first document that came from it, and where its name begins in the names
 *       names       of the inputs, each ended by a NUL
 *   then            one XXH64 per chunk of 16 KiB of each table (version 1: 1 MiB)
 *   at the end      tail, 144 bytes: counts of tokens, documents and inputs, bytes of each table, a checksum of each
 *                   table's checksums, the head's, its own, magic "tuttiend"
 *
 * Versions 1 and 2 held tokens only. They are read; whoever asks for their documents has the tokens read once, in which
 * an end-of-text id ends a document (tokenfile_find_ends).
 *
 * Invariants
 *   1. A file under its final name is whole: it is written under another name, synced and renamed.
 *   2. Opening checks head, tail, checksums and size against each other before anything is believed; a truncated,
 *      foreign or damaged file is an error that says which.
 *   3. Every byte is compared with its checksum when it is first read: whatever is handed out from a chunk of which
 *      nothing was handed out before comes from the very bytes that were compared. A token outside the vocabulary is
 *      never handed out, nor a document that ends before it begins.
 *   4. A file that shrinks or fails while it is open is an error with file and offset.
 * Cost of a first touch: reading and hashing 16 KiB, some 3 us from the page cache; later reads take their own bytes
 * only. Includes: base. Order: Local; an open file may be shared by threads, a writer may not.
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

enum tokenfile_table {
    TABLE_TOKENS,
    TABLE_MASK,
    TABLE_ENDS,
    TABLE_ORIGINS,
    TABLE_INPUTS,
    TABLE_NAMES,
    TOKENFILE_TABLES
};

/* -- read --------------------------------------------------------------------------------------------------- */

struct tokenfile {
    char *path;
    struct tokenfile_head head;
    int64_t n_tokens, n_documents, n_inputs;
    int version;
    int width;     /* bytes per token */
    int64_t chunk; /* bytes under one checksum */
    struct {
        int64_t at, bytes;
        int64_t sums_at, first_chunk; /* its checksums: where they begin, and how many are before them */
        uint64_t sums_sum;            /* of the checksums: of every byte */
    } table[TOKENFILE_TABLES];
    char *made_from; /* the text that this file is a cache of, for the remedy in errors; NULL: none */
    struct fs_file file;
    int64_t *ends;            /* of an older version: what tokenfile_find_ends found */
    _Atomic uint64_t *seen;   /* a bit per chunk: was compared */
    _Atomic int64_t *checked; /* [2]: bytes compared, nanoseconds it took, reading of those bytes included */
};

/* The file that `path` means: itself when it ends in .tok, path.tok when that exists and `path` itself does not.
 * NULL when it is neither; xfree it. */
char *tokenfile_find(const char *path);
int tokenfile_open(struct tokenfile *f, const char *path, struct err *e);
/* The same of an open file, which becomes the token file's, also where this fails. */
int tokenfile_open_file(struct tokenfile *f, const struct fs_file *file, struct err *e);
void tokenfile_close(struct tokenfile *f);
/* tokens [at, at + n) of the file, which must exist, as int32.
 *   fails   ERR_CORRUPT: a checksum is wrong, or a token is not below the vocabulary; ERR_IO: cut short or
 *           unreadable */
int tokenfile_read(const struct tokenfile *f, int64_t at, int64_t n, int32_t *out, struct err *e);
/* Of the same tokens: 1 where a loss is taken, else 0. */
int tokenfile_mask(const struct tokenfile *f, int64_t at, int64_t n, unsigned char *out, struct err *e);
bool tokenfile_masked(const struct tokenfile *f); /* there is a table of it: not all tokens are trained on */
/* Reads everything and compares the checksums, again where they were compared before. */
int tokenfile_verify(const struct tokenfile *f, struct err *e);
/* What comparing has cost since the file was opened. */
void tokenfile_cost(const struct tokenfile *f, int64_t *bytes, double *seconds);

/* Is path a token file of these inputs (tokenfile_head.key)? 1; 0: it is not there, of others, or damaged, which is
 * said on stderr: it is to be made again; < 0 an error. */
int tokenfile_is_cached(const char *path, uint64_t key, struct err *e);
/* Documents are asked for after this: it does nothing to a file that has their ends, and reads all tokens of an older
 * one, whose ends it keeps (8 bytes each). Before threads share the file. ERR_SIGNAL when *give_up (NULL: never)
 * becomes other than 0. */
int tokenfile_find_ends(struct tokenfile *f, const atomic_int *give_up, struct err *e);
bool tokenfile_has_ends(const struct tokenfile *f);
/* The ends of documents [first, first + n), which must exist. Cost: one read. */
int tokenfile_ends(const struct tokenfile *f, int64_t first, int64_t n, int64_t *out, struct err *e);
/* Document i is tokens [*begin, *end), its end of text included. */
int tokenfile_document(const struct tokenfile *f, int64_t i, int64_t *begin, int64_t *end, struct err *e);
/* The document that holds the token. Cost: log2 of the documents reads. */
int tokenfile_document_of(const struct tokenfile *f, int64_t token, int64_t *document, struct err *e);
/* Where document i came from: *input NULL (else to be xfreed) and *byte -1 where the file does not say. */
int tokenfile_origin(const struct tokenfile *f, int64_t i, char **input, int64_t *byte, struct err *e);

/* -- write -------------------------------------------------------------------------------------------------- */

/*   tokenfile_create → (tokenfile_origin_next) tokenfile_append* tokenfile_end_document, ... → tokenfile_publish
 * Documents come in their order, from one thread at a time; memory is constant but for 8 bytes per 16 KiB of tokens.
 * While it writes, tables that grow beside the tokens are files PATH.tmp.*, which are gone when it ends. */
struct tokenfile_writer;
/* One writer per path: ERR_REQUEST while another process writes it, and *busy: that is the reason, and no other. */
int tokenfile_create(struct tokenfile_writer **w, bool *busy, const char *path, const struct tokenfile_head *head,
                     struct err *e);
/* Says of the document that begins now that it came from this input at this byte; -1: not known there. Documents of
 * which nothing is said have no origin. */
int tokenfile_origin_next(struct tokenfile_writer *w, const char *input, int64_t byte, struct err *e);
int tokenfile_append(struct tokenfile_writer *w, const int32_t *ids, int64_t n, struct err *e);
/* trained[i]: whether a loss is taken of ids[i]. */
int tokenfile_append_masked(struct tokenfile_writer *w, const int32_t *ids, const unsigned char *trained, int64_t n,
                            struct err *e);
int tokenfile_end_document(struct tokenfile_writer *w, struct err *e); /* appends eos, of which a loss is taken */
int tokenfile_end_document_masked(struct tokenfile_writer *w, bool trained, struct err *e);
/* Publishes the file, or on failure leaves what was there before; frees w in both cases. Tokens after the last end are
 * one more document, without an end of text. */
int tokenfile_publish(struct tokenfile_writer *w, struct err *e);
void tokenfile_abandon(struct tokenfile_writer *w);          /* removes what was written; NULL is fine */
int64_t tokenfile_written(const struct tokenfile_writer *w); /* tokens */
/* For tests: the n-th write to the disk fails; side: of a table beside the tokens, each counted for itself. */
void tokenfile_fail_at(struct tokenfile_writer *w, int64_t n, bool side);

#endif
