/* SPDX-License-Identifier: Apache-2.0 */
/* document_ids.h: which document each token of a sequence is of, and which of its tokens are its prefix, in one number.
 *
 * A document's prefix is what is before its first trained token: a prompt. Where attention has prefixes
 * (attention_attrs.prefix) its tokens see each other in both directions and all later ones are causal:
 *
 *   token i sees token j of its document where j is in the prefix, or where neither is and j <= i
 *
 * So one bit of each token says all; nothing is asked about where the prefix ends, and its tokens may stand anywhere in
 * the sequence (document_order.h). The ids that attention gets then are marked: twice the document's, and one more in
 * its prefix. Raffel et al. 2020 ("Exploring the Limits of Transfer Learning"), section 3.2.1. Floor 1. Order: Local.
 */
#ifndef TUTTI_LAYOUT_DOCUMENT_IDS_H
#define TUTTI_LAYOUT_DOCUMENT_IDS_H

#include <stdbool.h>
#include <stdint.h>

static inline int32_t document_of_marked(int32_t marked) { return marked >> 1; }
static inline bool document_in_prefix(int32_t marked) { return marked & 1; }

/* Of one sequence: docs are ids below 2^30, a document a run of one; targets: the token after each, -1: not trained.
 * The row that says the first trained token is the prefix's last: it may look at all of it. docs NULL: one document. */
void document_mark(const int32_t *docs, const int32_t *targets, int64_t seq, int32_t *marked);

#endif
