/* SPDX-License-Identifier: Apache-2.0 */
/* squares.h: a sum of squares of floats without any rounding, so that no partition of the elements over threads or
 * ranks changes it (numerics.exact_order): what the flat operation `squares` (kernel/flat.h) added up in integers.
 * Floors 0-2. Order: Local; between ranks the integers are summed, element by element; 4 KiB to send.
 */
#ifndef TUTTI_OPTIM_SQUARES_H
#define TUTTI_OPTIM_SQUARES_H

#include "kernel/flat.h"

/* The sum, from the totals of all ranks; infinite when an element was not finite. The same double for the same set of
 * elements. */
double squares_total(const int64_t word[FLAT_SQUARES_WORDS]);

#endif
