/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_record.h: rows of a Parquet table as JSON objects, for what wants whole records: lists of structs of texts
 * ("messages") with them, as deep as they go.
 *
 *   a member that is null is left out; an item of a list that is null is null
 *   a column without a text in it (numbers, times, embeddings) is passed over; where a list has texts and something
 *   else side by side, a map, or a list whose schema is none, the table is refused by that column's name
 *
 * Rows are put together by Dremel's levels (Melnik et al., 2010): of each column of texts the values come in turn, and
 * how deep the next one lies says where it belongs. Memory is a page and a dictionary of each column of texts, of which
 * there may be LEAVES_MOST. Includes: base, blob.h, parquet_meta.h. Order: Local.
 */
#ifndef TUTTI_SOURCE_PARQUET_RECORD_H
#define TUTTI_SOURCE_PARQUET_RECORD_H

#include "base/err.h"
#include "base/str.h"
#include "source/blob.h"
#include "source/parquet_meta.h"

struct parquet_record;
/* *r is NULL where the table has no column of texts. ERR_REQUEST: it has one that cannot be taken as it is; ERR_CORRUPT
 * as parquet_meta_read. */
int parquet_record_open(struct parquet_record **r, struct blob *b, struct err *e);
void parquet_record_close(struct parquet_record *r); /* NULL is fine */
/* Row groups and rows, by its first column of texts. */
const struct parquet_meta *parquet_record_meta(const struct parquet_record *r);
/* Goes to the beginning of a row group. */
int parquet_record_go(struct parquet_record *r, int64_t chunk, struct err *e);
/* The next row, in *out: 1; 0: the row group is at its end; < 0: an error of the row group, others can be gone to. */
int parquet_record_next(struct parquet_record *r, struct str *out, struct err *e);

#endif
