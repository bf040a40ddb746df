/* SPDX-License-Identifier: Apache-2.0 */
/* region.h: boxes of a global tensor, and how a box lies in a row-major holder of a larger box.
 *
 * A shard, a message and a piece of a file are all boxes: per dim a half-open range [lo, hi) of global indices.
 * A holder of a box keeps its elements row-major and dense. Floor 1; includes base only. Order: Local.
 */
#ifndef TUTTI_LAYOUT_REGION_H
#define TUTTI_LAYOUT_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "layout/shape.h"

struct region {
    int nd;
    int64_t lo[SHAPE_MAX_DIMS], hi[SHAPE_MAX_DIMS]; /* lo <= hi */
};

struct region region_whole(const struct shape *s);
struct shape region_shape(const struct region *r);
int64_t region_volume(const struct region *r); /* elements; 0 where any range is empty; 1 for a scalar */
bool region_equal(const struct region *a, const struct region *b);
bool region_contains(const struct region *outer, const struct region *inner); /* an empty inner: always */
int region_compare(const struct region *a, const struct region *b);           /* row-major order of the corners */

/* The common part; false (and out empty) where there is none. */
bool region_intersect(const struct region *a, const struct region *b, struct region *out);
/* a without b as disjoint boxes in row-major order; returns how many, at most 2 * nd. */
int region_subtract(const struct region *a, const struct region *b, struct region out[2 * SHAPE_MAX_DIMS]);

/* [*lo, *hi) of piece i when n items are cut into k: contiguous, in order, the first n % k pieces one longer.
 * Pieces may be empty. The only rule by which anything is cut here: ranks, threads and files agree. */
void region_split(int64_t n, int i, int k, int64_t *lo, int64_t *hi);
/* The same twice: of holder i's share when n items are shared out over k, piece j of m. Piece j of all holders together
 * is what one of m messages brings when everybody's share is sent in m parts. */
void region_window(int64_t n, int i, int k, int j, int m, int64_t *lo, int64_t *hi);

/* Elements [lo, lo + n) of a box in its row-major order, as boxes: one behind the other they hold the same elements in
 * the same order. Returns how many. */
enum { REGION_STRETCH = 2 * SHAPE_MAX_DIMS };
int region_stretch(const struct region *r, int64_t lo, int64_t n, struct region out[REGION_STRETCH]);

/* "[0:10, 768:1536]"; out holds 256 chars. */
char *region_print(char out[256], const struct region *r);

/* Walks a box as runs of consecutive elements of two holders at once (a message's two ends):
 *
 *     struct region_run run;
 *     for (bool more = region_run_first(&run, &box, &a, &b); more; more = region_run_next(&run))
 *         memcpy(there + run.b, here + run.a, run.n);             (times the element's bytes)
 *
 * Runs are as long as both holders allow. For one holder pass it twice. CHECKs that both contain the box. */
struct region_run {
    int64_t a, b; /* offsets of the run in the two holders, elements */
    int64_t n;    /* its length, elements */
    int nd;       /* the rest is the walk's own: outer dims that are still counted */
    int64_t size[SHAPE_MAX_DIMS], at[SHAPE_MAX_DIMS], stride_a[SHAPE_MAX_DIMS], stride_b[SHAPE_MAX_DIMS];
};
bool region_run_first(struct region_run *run, const struct region *box, const struct region *a, const struct region *b);
bool region_run_next(struct region_run *run);

#endif
