/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h: inputs as numbered documents, in units that are dealt to ranks.
 *
 * A document's number is (part << CORPUS_BITS) | (place in its part); parts are the units of source/source.h (files, or
 * parts of large ones), in their order: so numbers order documents, and depend on the inputs alone. A unit here is some
 * parts one after the other, together of about CORPUS_UNIT bytes: neither how many ranks there are nor their memory
 * changes it.
 * Includes: base, data. Order: Local; every rank opens all inputs, which lie where all ranks see them.
 */
#ifndef TUTTI_CURATE_CORPUS_H
#define TUTTI_CURATE_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { CORPUS_BITS = 36 };
#define CORPUS_UNIT ((int64_t)256 << 20)

struct corpus;
/* unit_bytes: CORPUS_UNIT usually. text_most: a document of more bytes is refused. skip_bad: as source/source.h. */
int corpus_open(struct corpus **out, const char *const *paths, int n_paths, const char *column, bool skip_bad,
                int64_t unit_bytes, size_t text_most, struct err *e);
void corpus_close(struct corpus *c); /* NULL is fine */

uint64_t corpus_key(const struct corpus *c);  /* source_key, and how parts make units */
int64_t corpus_n_bad(const struct corpus *c); /* bad records skipped so far */
/* From now on they are added to this list; NULL: to none, as at first: a corpus is read several times. */
struct bad_list;
void corpus_list_bad(struct corpus *c, struct bad_list *l);
/* Where a document lies: its file, the part of it that begins at `from` (0: the whole file, or its beginning), and its
 * place there, from 0. */
struct corpus_place {
    const char *path;
    int64_t from, number;
};
struct corpus_place corpus_where(const struct corpus *c, uint64_t document);
int64_t corpus_n_files(const struct corpus *c);
int64_t corpus_bytes(const struct corpus *c);
int64_t corpus_n_units(const struct corpus *c);
int64_t corpus_unit_bytes(const struct corpus *c, int64_t unit);
int64_t corpus_unit_of(const struct corpus *c, uint64_t document);
/* rank[unit]: the largest unit first, each to the rank that has least. */
void corpus_deal(const struct corpus *c, int n_ranks, int *rank);

struct corpus_document {
    uint64_t id;
    const char *path;
    const char *text; /* until the next call, like record */
    size_t n;
    const char *record; /* a .jsonl's line, without its end; NULL where the document was none */
    size_t record_n;
};
/* Goes to the beginning of a unit; then its documents one by one: 1, 0 after the last. */
void corpus_begin(struct corpus *c, int64_t unit);
int corpus_next(struct corpus *c, struct corpus_document *d, struct err *e);
const char *corpus_column(const struct corpus *c);

#endif
