/* SPDX-License-Identifier: Apache-2.0 */
/* squares.h: in which pieces and lanes squares are summed, what a square is as an integer (flat_ops.h), and what a norm
 * makes of a step's words (words.h): in numbers alone, for the host and for a GPU. Order: Local. */
#ifndef TUTTI_KERNEL_SQUARES_H
#define TUTTI_KERNEL_SQUARES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/fn.h"

enum { FLAT_BLOCK = 4096, FLAT_LANES = 16 };
enum { FLAT_SQUARES_BINS = 256, FLAT_SQUARES_WORDS = 2 * FLAT_SQUARES_BINS };

/* The square of x as exponent bits and an integer: x * x = *m times 4^(max(bits, 1) - 150). */
TUTTI_FN uint32_t flat_square(float x, uint64_t *m)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t e = u >> 23 & 255;
    uint64_t mantissa = (u & 0x7fffff) | (e ? 0x800000u : 0);
    *m = mantissa * mantissa;
    return e;
}

/* What the two words of exponent e < 255 are, and whether one of 255 says that something was not finite. */
TUTTI_FN double squares_term(const int64_t *word, int e)
{
    int64_t low = word[2 * e] & 0xffffffff, high = word[2 * e + 1] + (word[2 * e] >> 32);
    return ldexp((double)high * 4294967296.0 + (double)low, 2 * ((e ? e : 1) - 150));
}
TUTTI_FN bool squares_infinite(const int64_t *word) { return word[2 * 255] || word[2 * 255 + 1]; }

enum step_word {
    WORD_TIMES, /* gradients are those of the loss times this: 1, but for a loss scale */
    WORD_LR,    /* before a group's factor */
    WORD_MADE,  /* updates before this one; those behind it are written where gradients are */
    WORD_NORM,  /* of the gradient, over all ranks, of the loss itself */
    WORD_SCALE, /* an fp32: what updates multiply gradients by: clipping, and 1 / WORD_TIMES */
    WORD_GOES,  /* 1: norm and losses are finite; 0: no update changes anything */
    STEP_WORDS
};

/* From a norm: clipped to `most` (0: not), with the 1e-6 that the field adds (Pascanu et al. 2013). */
TUTTI_FN float step_scale_of(double norm, double most, double times)
{
    double scale = most > 0 ? fmin(1.0, most / (norm + 1e-6)) : 1.0;
    return (float)(scale / times);
}
/* From the sum of squares; losses: all of them are finite. */
TUTTI_FN void step_words_clip(double *w, double most, double squares, bool losses)
{
    w[WORD_NORM] = sqrt(squares) / w[WORD_TIMES];
    w[WORD_SCALE] = (double)step_scale_of(w[WORD_NORM], most, w[WORD_TIMES]);
    w[WORD_GOES] = losses && isfinite(w[WORD_NORM]) ? 1 : 0;
}

#endif
