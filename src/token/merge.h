/* SPDX-License-Identifier: Apache-2.0 */
/* merge.h: pairs of neighbouring symbols merged by rules, whatever the symbols came from (bytes: bpe.c; characters:
 * char_bpe.c).
 *
 * A linked list with a heap ordered by (rank, position): of all pairs that have a rule the one of the lowest rank,
 * leftmost on a tie, becomes its product, until none has one. n log n. Includes: base, bpe.h. Order: Local; a merger
 * belongs to one thread.
 */
#ifndef TUTTI_TOKEN_MERGE_H
#define TUTTI_TOKEN_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "token/bpe.h"

struct merge_symbol {
    int32_t id, prev, next; /* id < 0: swallowed by its left neighbour; prev, next < 0: none */
};
struct merger { /* zero-initialised is empty */
    struct merge_symbol *s;
    size_t n, room;
    struct merge_pending *heap;
    size_t heap_n, heap_room;
};
void merger_fini(struct merger *m);

static inline void merger_clear(struct merger *m) { m->n = 0; }
/* At the end of the list; at most INT32_MAX of them. */
void merger_add(struct merger *m, int32_t id);
/* Merges all; then the list is what is left: from symbol 0 on by `next`. */
void merger_run(struct merger *m, const struct bpe *rules);
/* The ids of the list, added to out. */
void merger_put(const struct merger *m, struct tokens *out);

/* Merges the symbols id[0..n) and adds what is left to out: few of them in place (id is changed), by looking through an
 * array of ranks for the lowest, some vectors each time; more by the list and the heap of m. */
enum { MERGE_FEW = 112 };
void merge_symbols(const struct bpe *rules, struct merger *m, int32_t *id, size_t n, struct tokens *out);

#endif
