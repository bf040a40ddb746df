/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h: two runs of a few steps beside each other, number by number.
 *
 * Per parameter and in the Euclidean norm:
 *   gradient   of the first step, relative to the larger of its own norm and a hundredth of the global norm (a gradient
 *              that is 0 by symmetry is rounding only)
 *   value      the master after the last step, relative to its norm
 *   step       how far the steps moved it, relative to how far they moved it in the oracle, or to a hundredth of how
 *              far they moved as many numbers on average: a value hardly differs when its update is another one
 *              altogether. In the same way an optimizer's arrays of fp32 and bf16, and the average of weights by its
 *              own change. What storing a value rounds off is not counted.
 * Values and steps are not compared where the gradient was such rounding (Adam makes full steps of it), nor, where
 * partial sums are rounded to bf16, of parameters that began at 0 and are all steps.
 *
 * Of the run: losses and norms of every step, the evaluation, which steps fp16 left out, that every step was made, and
 * that ranks which must hold the same numbers do. A number that is none (NaN) differs from all others.
 * Floor 9. Order: Local.
 */
#ifndef TUTTI_VERIFY_COMPARE_H
#define TUTTI_VERIFY_COMPARE_H

#include "verify/bounds.h"
#include "verify/trial.h"

/* What differs most in its own bound's measure. */
struct difference {
    double error, bound;
    char what[96]; /* "gradient of wq" */
};
struct differences {
    struct difference gradient, value, step;
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
