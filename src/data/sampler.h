/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h: which sample comes when, as a pure function. No state, no index files.
 *
 * The k-th sample of training, k = 0, 1, 2, ..., is found in two steps:
 *
 *   blend   k → (source, r): the r-th sample taken from that source. Sources stand at the leaves of a balanced binary
 *           tree; of the first m samples that pass a node, round(m * p) go left, where p is the left side's share of
 *           the weight. So every prefix holds each source in proportion, to within the depth of the tree, and r is
 *           known by arithmetic: O(log sources), exact.
 *   order   (source, r) → sample: epoch r / n, and within it r % n sent through a permutation that depends on
 *           (seed, source, epoch), or left alone.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_DATA_SAMPLER_H
#define TUTTI_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct blend {
    double *below; /* below[i]: sum of the weights of sources 0 .. i - 1; n + 1 of them */
    int n;
};
/* Weights are >= 0, finite, and at least one is > 0. */
void blend_init(struct blend *b, const double *weights, int n);
void blend_fini(struct blend *b);
int blend_pick(const struct blend *b, int64_t k, int64_t *r);

/* The sample of 0 .. n - 1 that is the r-th taken from a source; *epoch may be NULL. */
int64_t order_pick(uint64_t seed, int source, bool shuffled, int64_t n, int64_t r, int64_t *epoch);

#endif
