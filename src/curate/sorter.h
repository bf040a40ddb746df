/* SPDX-License-Identifier: Apache-2.0 */
/* sorter.h: any number of records in order, within a memory that is given: sorted runs in a folder, merged.
 *
 *   sorter_add ... sorter_add, sorter_finish, sorter_next until 0, sorter_free
 *
 * Records are rows of `words` 64-bit words, ordered by their first key_words words as numbers, the first word most.
 * Records whose keys are equal come in no order of their own: whoever needs one makes the key longer. So the sequence
 * does not depend on the order in which records came.
 * Memory: `memory` bytes while records come, no more than that (at least SORTER_LEAST) while they are merged, however
 * many there are. Includes: base. Order: Local.
 */
#ifndef TUTTI_CURATE_SORTER_H
#define TUTTI_CURATE_SORTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SORTER_LEAST = 256 << 10 };
struct sorter_config {
    const char *dir, *name; /* runs are dir/name.0, ...: where nothing else is called so */
    int words, key_words;
    size_t memory;
    bool distinct; /* of records whose keys are equal one is kept */
};
struct sorter;
struct sorter *sorter_new(const struct sorter_config *c); /* copies it, and its texts */
int sorter_add(struct sorter *s, const uint64_t *records, int64_t n, struct err *e);
int sorter_finish(struct sorter *s, struct err *e);
/* 1 with a record that stays until the next call; 0: no more. */
int sorter_next(struct sorter *s, const uint64_t **record, struct err *e);
int64_t sorter_runs(const struct sorter *s); /* runs that were written so far */
void sorter_free(struct sorter *s);          /* and removes its runs; NULL is fine */

/* Sorts records in place, in memory. */
void records_sort(uint64_t *records, int64_t n, int words, int key_words);
int records_compare(const uint64_t *a, const uint64_t *b, int key_words);

#endif
