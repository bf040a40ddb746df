/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: text inputs as one sequence of documents.
 *
 *   a text file      one document
 *   a .jsonl file    one document per line: its member `text`; blank lines and empty texts are passed over
 *   a .csv, .tsv     one document per row after the first, which names the columns (csv_rows.h): its column `text`
 *   a folder         its text files, recursively, names in byte order. Passed over: names that begin with a dot,
 *                    empty and binary files, what is no regular file, folders seen before (so links may loop);
 *                    files that cannot be read, with one warning. A .jsonl or .csv file in it that has no `text`
 *                    in its first line (a log, say) is plain text.
 * Another name than `text` may be chosen for all.
 *
 * A file that is packed by gzip or zstd (by its bytes; t.jsonl.gz is a .jsonl file by its name) is what it holds; one
 * that is damaged or cut short is an error wherever it lies.
 *
 * A file is binary when its first 64 KiB hold a NUL, when more than a tenth of them are control characters or
 * bad UTF-8, or when it begins like one of the formats made of letters that are no text (base/magic.h). An input named
 * by the user that is missing, empty, binary or unreadable is an error.
 *
 * Invariants: 1. the order is a function of the names; 2. memory is one buffer, and for .jsonl and .csv one record.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_DATA_SOURCE_H
#define TUTTI_DATA_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct source;
/* Lists the inputs; reads nothing yet. column: the member or column that is the text; NULL: "text". With a column
 * chosen an input that is a plain text is an error. */
int source_open(struct source **s, const char *const *paths, int n_paths, const char *column, struct err *e);
void source_close(struct source *s);
/* Says why a path that is not there is not: what was meant by it, as far as its letters show, else `plain`.
 * ERR_REQUEST. */
int source_missing(const char *path, const char *plain, struct err *e);

/* 1: a document begins; 0: there are no more; < 0: an error. */
int source_next(struct source *s, struct err *e);
/* The next part of the document: 1 with bytes that stay until the next call, 0 at its end, < 0 an error. */
int source_read(struct source *s, const char **p, size_t *n, struct err *e);

/* A number that changes when a file is added, removed, resized or written to, or another column chosen. */
uint64_t source_key(const struct source *s);
int64_t source_bytes(const struct source *s); /* of all files, as they lie there: packed ones count so */
int64_t source_bytes_done(const struct source *s);
int64_t source_n_files(const struct source *s);
int64_t source_n_skipped(const struct source *s); /* binary or unreadable, so far */
const char *source_skipped(
    const struct source *s); /* the first of them, and why: "a.xz is compressed by xz"; "": none */

#endif
