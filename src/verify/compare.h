/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h: two runs of a few steps beside each other, number by number.
 *
 * Per parameter and in the Euclidean norm:
 * - gradient: of the first step, relative to the larger of its own norm and a hundredth of the global norm (a gradient
 *   that is 0 by symmetry is rounding only).
 * - lean: of the same error the part along the gradient itself, which is by how much it is too large; of a step's, that
 *   along the step, and along the weights, which decay multiplies (below).
 * - value: the master after the last step, relative to its norm.
 * - step: how far the steps moved it, relative to how far they moved it in the oracle, or to a hundredth of how far
 *   they moved as many numbers on average: a value hardly differs when its update is another one altogether. In the
 *   same way an optimizer's arrays of fp32 and bf16, and the average of weights by its own change. What storing a value
 *   rounds off is not counted.
 *
 * Values and steps are not compared where the gradient was such rounding (Adam makes full steps of it), nor, where
 * partial sums are rounded to bf16, of parameters that began at 0 and are all steps.
 *
 * Lean. What is rounded to nearest is too large as often as too small. So of an error of a part r, along the gradient
 * itself is what chance leaves: r over the root of how many numbers count, n = (sum of d^2)^2 / sum of d^4 or
 * bounds.chances, of which no honest run meets LEAN_MOST times as much, and r^2, for products of two things that were
 * rounded, and numbers that are rarer the larger they are, err to one side by the second order. What is left out, taken
 * twice, cut off or divided by another number leans with nearly all of its error. r is at least a quarter of its bound,
 * whose measure it is. Where nothing is rounded there is no chance either, and it is not asked.
 *
 * Of the run: losses and norms of every step, the evaluation, which steps fp16 left out, that every step was made, and
 * that ranks which must hold the same numbers do. A number that is none (NaN) differs from all others.
 * Floor 11. Order: Local.
 */
#ifndef TUTTI_VERIFY_COMPARE_H
#define TUTTI_VERIFY_COMPARE_H

#include "verify/bounds.h"
#include "verify/trial.h"

enum { LEAN_MOST = 5 };
/* What differs most in its own bound's measure. */
struct difference {
    double error, bound;
    char what[96]; /* "gradient of wq" */
};
struct differences {
    struct difference gradient, value, step;
    struct difference lean;  /* in parts of what may be */
    double loss, norm, eval; /* relative */
    bool same_bits;          /* gradients, values, losses */
    uint64_t bits;           /* hash of these */
    char missing[160];       /* "", or what the run has not done, or not as the oracle has */
};
void outcomes_compare(struct differences *d, const struct param_table *p, const struct outcome *want,
                      const struct outcome *got, const struct bounds *b, int n_steps);
/* Of values and losses one step after going on from a checkpoint. */
double outcomes_compare_next(const struct param_table *p, const struct outcome *want, const struct outcome *got,
                             const struct bounds *b, int n_steps);
/* Of gradients and values, the one that is nearer to its bound; the errors are within their bounds. */
const struct difference *differences_worst(const struct differences *d);
bool differences_within(const struct differences *d, const struct bounds *b);
/* Which is NaN when one of them is: fmax(NaN, 1) is 1, and that is how a loss that is none would pass. */
static inline double larger(double a, double b) { return a > b || a != a ? a : b; }

#endif
