/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.h: who holds which tokens of a sequence that is shared out over ranks (context parallelism).
 *
 * A sequence is cut into 2 n chunks by region_split, and part r of n holds chunk r (its head), then chunk 2n-1-r (its
 * tail). Under a causal mask a token's work grows with its position, so every part has the same work, up to a chunk's
 * remainder. Any length over any number of parts is legal; chunks may be empty.
 * Source: Llama 3 (Grattafiori et al. 2024, section 3.3.2). Floor 1. Order: Local.
 */
#ifndef TUTTI_LAYOUT_SEQUENCE_H
#define TUTTI_LAYOUT_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

/* Positions [*lo, *hi) of the head (tail false) or tail of part r. */
void context_chunk(int64_t seq, int n, int r, bool tail, int64_t *lo, int64_t *hi);
/* Tokens per sequence on parts [r, r + count): the rows of part r, then those of part r + 1, ... */
int64_t context_rows(int64_t seq, int n, int r, int count);
/* The position in the sequence of row i of part r. */
int64_t context_place(int64_t seq, int n, int r, int64_t i);
/* Pairs (query, key) that a mask lets through: queries at [q0, q1), keys at [k0, k1); causal: keys up to the query;
 * window > 0: only the last so many of them. */
double context_pairs(int64_t q0, int64_t q1, int64_t k0, int64_t k1, bool causal, int64_t window);

#endif
