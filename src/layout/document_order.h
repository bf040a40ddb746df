/* SPDX-License-Identifier: Apache-2.0 */
/* document_order.h: which tokens of a sequence of several documents stand where when it is shared out over ranks, so
 * that every rank has the same work in attention.
 *
 * Chunks of a head and a tail (sequence.h) are even where a token sees all before it. Where documents do not see each
 * other a token's work grows with its place in its document, and chunks are uneven. But then tokens of different
 * documents may stand in any order: attention, its masks and its gradients only ask which of two tokens of one document
 * comes first. So a sequence is put in another order, in which every document's tokens keep theirs:
 *
 *   long documents are cut into 2 n pieces, one for each chunk, as the whole sequence would be;
 *   short ones stay whole, the largest first, on the rank that has least;
 *   single tokens (padding) fill what is left.
 *
 * A document in pieces meets blocks of keys in every chunk, which costs more than its pairs; so the length from which
 * they are cut is tried out, from all to none, and what makes the busiest rank's work least is taken: the plain order,
 * where nothing is better. Tokens per rank are those of sequence.h. A pure function of (documents, n).
 *
 * With prefixes (document_ids.h; `marked`: docs are marked ids) tokens of a prefix may stand anywhere among those
 * behind it, too, and see all of it: a document is two to this file, whose second one sees the first. Floor 1. Order:
 * Local.
 */
#ifndef TUTTI_LAYOUT_DOCUMENT_ORDER_H
#define TUTTI_LAYOUT_DOCUMENT_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* order[s]: the token that stands at place s. docs: ids of the sequence's tokens, NULL: all are of one document; a
 * document is a run of one id, and no id comes back after another. Cost: O(seq) for each length tried, at most
 * log2(seq). */
void document_order(const int32_t *docs, bool marked, int64_t seq, int n, int64_t *order);
/* Pairs (query, key) of each part's queries, of all documents, in an order (NULL: the plain one): pairs[n]. */
void document_pairs(const int32_t *docs, bool marked, int64_t seq, int n, const int64_t *order, double *pairs);
/* Of one part alone; adds to *as_is those in the order, to *plain those in the plain one. Whole numbers. */
void document_pairs_of(const int32_t *docs, bool marked, int64_t seq, int n, int part, const int64_t *order,
                       int64_t *as_is, int64_t *plain);

#endif
