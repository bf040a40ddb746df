/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h: which sample comes when, as a pure function. No state, no index files.
 *
 * The k-th sample of training, k = 0, 1, 2, ..., is found in two steps:
 *
 *   blend   k → (source, r): the r-th sample taken from that source. Sources stand at the leaves of a balanced binary
 *           tree; of the first m samples that pass a node, round(m * p) go left, where p is the left side's share of
 *           the weight. So every prefix holds each source in proportion, to within the depth of the tree, and r is
 *           known by arithmetic: O(log sources), exact.
 *           Weights may change while training goes on, in phases of samples: then that p is another one from each
 *           phase on, and what a node has sent left is the exact sum over the phases, rounded once.
 *   order   (source, r) → sample: epoch r / n, and within it r % n sent through a permutation that depends on
 *           (seed, source, epoch), or left alone.
 *
 * Samples may be dealt out in groups, or be joined of parts: then k counts those, and so does r.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_DATA_SAMPLER_H
#define TUTTI_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct blend_node;
struct blend {
    int n, n_phases;
    int64_t *from;            /* [n_phases] the k with which each begins; the first with 0 */
    struct blend_node *nodes; /* [n_phases][n]: of sources lo .. hi - 1 at its middle */
};
/* Shares are in units of 2^-62; what is lighter than this share of all has too few of them to be drawn exactly. */
#define BLEND_LEAST 0x1p-52
/* weights[phase * n + source] are 0 or at least BLEND_LEAST of their phase's sum, which is finite. */
void blend_init(struct blend *b, const double *weights, int n, const int64_t *from, int n_phases);
void blend_fini(struct blend *b);
int blend_pick(const struct blend *b, int64_t k, int64_t *r);
/* How many of the first k are of this source. */
int64_t blend_count(const struct blend *b, int64_t k, int source);

/* The sample of 0 .. n - 1 that is the r-th taken from a source; *epoch may be NULL. */
int64_t order_pick(uint64_t seed, int source, bool shuffled, int64_t n, int64_t r, int64_t *epoch);

#endif
