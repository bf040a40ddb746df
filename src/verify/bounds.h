/* SPDX-License-Identifier: Apache-2.0 */
/* bounds.h: how far a layout may be from a plain one rank, and why: what is known of how its sums round. Each number
 * that is compared (compare.h) has the bound of its kind. Floor 11. Order: Same(config).
 */
#ifndef TUTTI_VERIFY_BOUNDS_H
#define TUTTI_VERIFY_BOUNDS_H

#include "config/config.h"

struct bounds {
    double gradient; /* of the first step, of a parameter, in the Euclidean norm */
    double value;    /* of a parameter after the last step, relative to itself */
    double step;     /* of what the steps made of it: its change, an optimizer's arrays, the average's change */
    double totals;   /* of losses and norms */
    double chances;  /* of a tensor's errors so many are made apart from each other, at most */
};
struct bounds bounds_of(const struct config *c);
/* One rank with plain loops beside one rank with training's kernels: in fewer bits than 32 they round in other
 * places. */
struct bounds bounds_of_loops(const struct config *c);
/* The larger ones of both: of a step after a checkpoint that another layout saved. */
struct bounds bounds_most(struct bounds a, struct bounds b);
/* Above this sums of model axes were rounded, or codes: what is small in a gradient may be anything. */
static inline bool bounds_rough(const struct bounds *b) { return b->value > 1e-3; }

#endif
