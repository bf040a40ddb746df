/* SPDX-License-Identifier: Apache-2.0 */
/* squares.h: a sum of squares of floats without any rounding, so that no partition of the elements over threads or ranks
 * changes it (numerics.exact_order). The square of a float is an integer below 2^48 times a power of 4: squares are added
 * up per power of two of the float, in integers.
 *
 * Cost: about 1 ns per element and core, where the plain sum runs at memory speed; 4 KiB to send.
 * Like a kernel, it takes addresses of a cpu device, untouchable or not.
 * Floors 0-1 and device. Order: Local; between ranks the integers are summed, element by element.
 */
#ifndef TUTTI_OPTIM_SQUARES_H
#define TUTTI_OPTIM_SQUARES_H

#include <stdint.h>

#include "base/thread.h"

enum { SQUARES_BINS = 256, SQUARES_WORDS = 2 * SQUARES_BINS };

/* Adds n floats' squares: word 2e holds the low 32 bits (and what carried out of them), word 2e + 1 the rest, of the sum
 * over floats with exponent bits e. Starts from zeros. */
void squares_add(struct team *team, const float *x, int64_t n, int64_t word[SQUARES_WORDS]);
/* The sum, from the totals of all ranks; infinite when an element was not finite. The same double for the same set of
 * elements. */
double squares_total(const int64_t word[SQUARES_WORDS]);

#endif
