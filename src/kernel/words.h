/* SPDX-License-Identifier: Apache-2.0 */
/* words.h: step words: a few numbers on the device by which updates go, so that none waits for the host. The host
 * writes the rate, how many updates were made and what gradients are a multiple of; the norm and what follows from it
 * are written where gradients are. Includes: kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_WORDS_H
#define TUTTI_KERNEL_WORDS_H

#include "kernel/kernel.h"

enum step_word {
    WORD_TIMES, /* gradients are those of the loss times this: 1, but for a loss scale */
    WORD_LR,    /* before a group's factor */
    WORD_MADE,  /* updates before this one */
    WORD_NORM,  /* of the gradient, over all ranks, of the loss itself */
    WORD_SCALE, /* an fp32: what updates multiply gradients by: clipping, and 1 / WORD_TIMES */
    STEP_WORDS
};

/* From a norm: clipped to `most` (0: not), with the 1e-6 that the field adds (Pascanu et al. 2013). */
float step_scale(double norm, double most, double times);
/* squares: the sum over all ranks, f64[1] of SUM_SQUARES or i64[FLAT_SQUARES_WORDS] of EXACT_SQUARES. Makes WORD_NORM
 * and WORD_SCALE from it and WORD_TIMES. */
struct kernel_call clip_call(double *words, double most, const struct view *squares);
void clip_words(const struct kernel_call *c); /* carries it out */

#endif
