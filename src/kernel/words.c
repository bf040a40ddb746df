/* SPDX-License-Identifier: Apache-2.0 */
/* The norm, and what gradients are multiplied by. Exact squares are added from the smallest power of two to the
 * largest, so that nothing small is lost beside something large. */
#include "kernel/words.h"

#include <math.h>

#include "kernel/flat.h"

float step_scale(double norm, double most, double times)
{
    double scale = most > 0 ? fmin(1.0, most / (norm + 1e-6)) : 1.0;
    return (float)(scale / times);
}

double squares_total(const int64_t word[FLAT_SQUARES_WORDS])
{
    double sum = 0;
    if (word[2 * 255] || word[2 * 255 + 1]) return INFINITY;
    for (int e = 0; e < 255; e++) {
        int64_t low = word[2 * e] & 0xffffffff, high = word[2 * e + 1] + (word[2 * e] >> 32);
        sum += ldexp((double)high * 4294967296.0 + (double)low, 2 * ((e ? e : 1) - 150));
    }
    return sum;
}

struct kernel_call clip_call(double *words, double most, const struct view *squares)
{
    struct kernel_call c = {.op = OP_CLIP,
                            .phase = KERNEL_FWD,
                            .n_in = 2,
                            .in = {flat_view(words, DT_F64, STEP_WORDS)}};
    c.at = ATTRS(clip, .most = most);
    c.in[1] = *squares;
    return c;
}

void clip_words(const struct kernel_call *c)
{
    double *w = c->in[0].p;
    double squares = c->in[1].dtype == DT_I64 ? squares_total(c->in[1].p) : *(const double *)c->in[1].p;
    w[WORD_NORM] = sqrt(squares) / w[WORD_TIMES];
    w[WORD_SCALE] = (double)step_scale(w[WORD_NORM], at_clip(&c->at)->most, w[WORD_TIMES]);
}
