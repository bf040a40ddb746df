/* SPDX-License-Identifier: Apache-2.0 */
/* words.h: step words: a few numbers on the device by which updates go, so that none waits for the host. The host
 * writes the rate, how many updates were made and what gradients are a multiple of; the norm and what follows from it
 * are written where gradients are. Includes: kernel.h, squares.h, which has their
 * names. Order: Local. */
#ifndef TUTTI_KERNEL_WORDS_H
#define TUTTI_KERNEL_WORDS_H

#include "kernel/kernel.h"
#include "kernel/squares.h"

/* From a norm: clipped to `most` (0: not), with the 1e-6 that the field adds (Pascanu et al. 2013). */
float step_scale(double norm, double most, double times);
/* Adds to a count of type t (f64 or i64) how many of `rows` sums, `each` numbers apart, are not finite. */
struct kernel_call losses_call(void *count, enum dtype t, const double *sums, int64_t rows, int64_t each);
void losses_count(const struct kernel_call *c); /* carries it out */
/* squares: the sum over all ranks, f64[1] of SUM_SQUARES or i64[FLAT_SQUARES_WORDS] of EXACT_SQUARES; count: one of
 * their type, of all ranks' losses. Makes WORD_NORM, WORD_SCALE and WORD_GOES from them and WORD_TIMES. */
struct kernel_call clip_call(double *words, double most, const struct view *squares, const struct view *count);
void clip_words(const struct kernel_call *c); /* carries it out */

#endif
