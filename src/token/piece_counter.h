/* SPDX-License-Identifier: Apache-2.0 */
/* piece_counter.h: the pieces of a source, counted on all threads: what vocabularies are learnt from.
 *
 * The counts are those of cutting each document by the rules, for any number of threads and any size of tables. A text
 * without a seam (seam.h) for 4 MiB is cut there.
 * Includes: base, tokenizer_impl.h, source.h. Order: Local.
 */
#ifndef TUTTI_TOKEN_PIECE_COUNTER_H
#define TUTTI_TOKEN_PIECE_COUNTER_H

#include "source/source.h"
#include "token/piece_counts.h"
#include "token/tokenizer_impl.h"

struct piece_counter;
/* memory: of all tables together; what does not fit goes to files in the folder `scratch`, made when it is needed and
 * removed with the counter, with all that a killed process left there. */
struct piece_counter *piece_counter_new(const struct cut_rules *rules, int n_threads, int64_t memory,
                                        const char *scratch);
void piece_counter_free(struct piece_counter *c); /* NULL is fine */
/* Counts all of the source, with a line on stderr that tells how far it is. */
int piece_counter_read(struct piece_counter *c, struct source *s, struct err *e);
/* Every piece once, in the order of bytes; may be called again. */
int piece_counter_each(struct piece_counter *c, piece_counts_fn *fn, void *arg, struct err *e);
int64_t piece_counter_total(const struct piece_counter *c); /* pieces of the text, repeats counted */
int64_t piece_counter_runs(const struct piece_counter *c);  /* files that were needed */

#endif
