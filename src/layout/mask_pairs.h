/* SPDX-License-Identifier: Apache-2.0 */
/* mask_pairs.h: how many pairs (query, key) of one sequence attention's masks show. Floor 1. Order: Local. */
#ifndef TUTTI_LAYOUT_MASK_PAIRS_H
#define TUTTI_LAYOUT_MASK_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

struct mask {
    bool causal;
    bool marked;    /* ids are marked with prefixes (document_ids.h) */
    int64_t window; /* > 0: of the keys up to the query the last so many */
};
/* ids [seq] of documents, each a run of one, which do not see each other; NULL: all is one. Cost: O(seq). */
int64_t mask_pairs(const int32_t *ids, int64_t seq, struct mask m);

#endif
