/* SPDX-License-Identifier: Apache-2.0 */
/* piece_counts.h: how often every piece of a text occurs, in memory that does not grow with the text.
 *
 * A table counts until it is full; then its pieces, in the order of their bytes, become a run on disk, and it begins
 * anew. At the end all tables and runs are merged: every piece comes once, in the order of its bytes, with its exact
 * count, however large the tables were and whoever counted what.
 * Includes: base. Order: Local; a table belongs to one thread, merging to one.
 */
#ifndef TUTTI_TOKEN_PIECE_COUNTS_H
#define TUTTI_TOKEN_PIECE_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct piece_counts;
/* A table of about `bytes` at most, whose runs are files scratch.0, scratch.1, ...; one piece may be larger than that.
 */
struct piece_counts *piece_counts_new(int64_t bytes, const char *scratch);
void piece_counts_free(struct piece_counts *c); /* removes the runs; NULL is fine */
int piece_counts_add(struct piece_counts *c, const unsigned char *p, size_t n, int64_t count, struct err *e);
int64_t piece_counts_runs(const struct piece_counts *c); /* runs that were written so far, for tests and reports */

/* Hands every piece out once, in the order of bytes. May be called again. Ends with what fn fails with.
 *   fails   ERR_IO, ERR_CORRUPT: a run cannot be read, or its checksum is wrong */
typedef int piece_counts_fn(void *arg, const unsigned char *p, size_t n, int64_t count, struct err *e);
int piece_counts_merge(struct piece_counts *const *all, int n_all, piece_counts_fn *fn, void *arg, struct err *e);

#endif
