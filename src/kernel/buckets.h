/* SPDX-License-Identifier: Apache-2.0 */
/* buckets.h: which bucket of a table of relative biases a distance falls into (Raffel et al. 2020, section 2.1).
 *
 * Near distances have a bucket each; far ones share buckets that grow by a constant factor, up to `most`, from where on
 * all share the last. Both ways, one half of the buckets is of keys behind the query and the other of the rest.
 *
 * The logarithm is taken in floats in the order of the published code, since a distance on the edge of two buckets
 * falls where rounding puts it. Floors 0-1 and attrs.h only. Order: Local.
 */
#ifndef TUTTI_KERNEL_BUCKETS_H
#define TUTTI_KERNEL_BUCKETS_H

#include <math.h>

#include "kernel/attrs.h"

/* The bucket, of n, of a key that stands `behind` places behind the query (before it: negative). */
static inline int64_t bucket_of(const struct distances_attrs *a, int64_t n, int64_t behind)
{
    int64_t first = 0, far = behind < 0 ? -behind : 0, near;
    if (a->both_ways) {
        n /= 2;
        first = behind > 0 ? n : 0;
        far = behind < 0 ? -behind : behind;
    }
    near = n / 2;
    if (far < near) return first + far;
    float steps = logf((float)far / (float)near) / (float)log((double)a->most / (double)near) * (float)(n - near);
    int64_t bucket = near + (int64_t)steps;
    return first + (bucket < n ? bucket : n - 1);
}

/* Columns of a row of distances, and the one of query i and key j. */
static inline int64_t distances_cols(int64_t q_seq, int64_t k_seq) { return q_seq + k_seq - 1; }
static inline int64_t distance_column(int64_t q_seq, int64_t i, int64_t j) { return j - i + q_seq - 1; }

#endif
