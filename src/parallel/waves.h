/* SPDX-License-Identifier: Apache-2.0 */
/* waves.h: in which rounds the rows of all ranks come to the ranks of their experts, where there is room for some of
 * them at a time.
 *
 * A rank's rows lie by expert, and inside one by the rank that they come from, or (attrs.h, source_order) as the tokens
 * of a microbatch follow each other on one rank. A round takes as many of them, in this order, as there is room for.
 * Where that would cut an expert's rows in two, the cut is moved back to a slice of the depth of that expert's weight
 * gradient (kernel.h, depth_rule), so that the sum goes on in the next round as if there had been no cut; only where
 * the room is smaller than a slice does the cut stay where it is. Where scales follow from all rows that an expert has
 * of one microbatch (attrs.h, parts_attrs) these are a piece that no round cuts: rounds end between them, and there is
 * room for any one.
 *
 * Every rank knows how many rows every rank has for every expert, and by which rule it cuts, so all find the same
 * rounds without asking: there are as many as the rank with the most takes. Cost: O(sources x experts) per question.
 * Pure arithmetic. Floors 0-2. Order: Local, and Same where the numbers are.
 */
#ifndef TUTTI_PARALLEL_WAVES_H
#define TUTTI_PARALLEL_WAVES_H

#include "kernel/kernel.h"

/* What the ranks of ep told each other: of each rank a row of numbers, of every expert one for each stretch, and then
 * the depth_rule's two. */
struct wave_numbers {
    const int32_t *of; /* [parts * copies][experts * stretches + 2]; NULL: nobody was asked (the null device), the
                          choice is even */
    int64_t even;      /* then: rows of each rank */
    int parts, copies; /* ranks that share the experts out; that each get the rows of one, next to each other */
    int experts;
    int together; /* rows of so many ranks, next to each other, for one expert are a piece; 0: there are none */
    struct depth_rule rule; /* of this rank, where nobody was asked */
    struct source_order order;
};

/* The k-th source of an expert's rows: rows of one stretch of one rank lie together. Inside a rank stretches follow
 * each other by number. */
struct source_at {
    int rank, stretch;
};
struct source_at source_at(const struct source_order *o, int64_t k);

/* Rows that rank r has for expert e; those of one stretch of it. */
int64_t wave_rows(const struct wave_numbers *x, int r, int64_t e);
int64_t wave_rows_at(const struct wave_numbers *x, struct source_at s, int64_t e);
/* Rows [*lo, *hi) of those of part `part` come in round `round`; none after the last. */
void wave_window(const struct wave_numbers *x, int part, int64_t room, int64_t round, int64_t *lo, int64_t *hi);
/* Rounds until all ranks have had all their rows; at least 1. */
int64_t wave_rounds(const struct wave_numbers *x, int64_t room);

#endif
