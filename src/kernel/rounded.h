/* SPDX-License-Identifier: Apache-2.0 */
/* rounded.h: what a QUANTISE did to its operand: how large the numbers were, how many were cut off or became 0, how
 * far they moved. Counted from what it read and put out, and from the scales of quantise.h.
 *
 *   saturated  larger, times the scale, than the format's largest value and half of its last step: without the cut
 *              they would have been rounded to something larger
 *   flushed    not 0, and became 0
 *   moved      sum of squares of what an element became, scaled back, less what it was; of what was rotated first, in
 *              the rotated numbers
 *
 * What is not finite, or has no scale, is in none of them. The same call gives the same bits whatever the team.
 * Includes: attrs.h, kernel.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_ROUNDED_H
#define TUTTI_KERNEL_ROUNDED_H

#include "kernel/kernel.h"

struct rounded_counts { /* on the device, so nothing but f64 */
    double elements, saturated, flushed;
    double moved, squares; /* squares: of what was there */
    double amax;
};
enum { ROUNDED_NUMBERS = sizeof(struct rounded_counts) / sizeof(double) };
static inline void rounded_add(struct rounded_counts *to, const struct rounded_counts *x)
{
    to->elements += x->elements;
    to->saturated += x->saturated;
    to->flushed += x->flushed;
    to->moved += x->moved;
    to->squares += x->squares;
    if (x->amax > to->amax) to->amax = x->amax;
}
/* The call that counts a QUANTISE or QUANTISE_PARTS which has run, with addresses of a device: adds its numbers to
 * *out; of parts those of expert e here, of `experts`, to out[e * apart]. */
struct kernel_call rounded_call(const struct kernel_call *c, struct rounded_counts *out, int64_t experts,
                                int64_t apart);
/* Carries it out. */
void rounded_count(const struct kernel_call *c);

#endif
