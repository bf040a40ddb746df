/* SPDX-License-Identifier: Apache-2.0 */
/* The norm, what gradients are multiplied by, and whether weights follow from them. Exact squares are added from the
 * smallest power of two to the largest, so that nothing small is lost beside something large. */
#include "kernel/words.h"

#include <math.h>

#include "kernel/flat.h"

float step_scale(double norm, double most, double times) { return step_scale_of(norm, most, times); }

double squares_total(const int64_t word[FLAT_SQUARES_WORDS])
{
    double sum = 0;
    if (squares_infinite(word)) return INFINITY;
    for (int e = 0; e < 255; e++) sum += squares_term(word, e);
    return sum;
}

struct kernel_call losses_call(void *count, enum dtype t, const double *sums, int64_t rows, int64_t each)
{
    struct kernel_call c = {.op = OP_LOSSES, .phase = KERNEL_FWD, .n_in = 1, .n_out = 1};
    c.at = ATTRS(array, .to = t);
    c.in[0] = (struct view){.p = (void *)(uintptr_t)sums, .dtype = DT_F64, .nd = 2, .n = {rows, each}, .stride = each};
    c.out[0] = flat_view(count, t, 1);
    return c;
}

void losses_count(const struct kernel_call *c)
{
    const double *sums = c->in[0].p;
    int64_t n = 0;
    for (int64_t i = 0; i < c->in[0].n[0]; i++) n += !isfinite(sums[i * c->in[0].stride]);
    if (c->out[0].dtype == DT_I64) *(int64_t *)c->out[0].p += n;
    else *(double *)c->out[0].p += (double)n;
}

struct kernel_call clip_call(double *words, double most, const struct view *squares, const struct view *count)
{
    struct kernel_call c = {.op = OP_CLIP,
                            .phase = KERNEL_FWD,
                            .n_in = 3,
                            .in = {flat_view(words, DT_F64, STEP_WORDS)}};
    c.at = ATTRS(clip, .most = most);
    c.in[1] = *squares;
    c.in[2] = *count;
    return c;
}

void clip_words(const struct kernel_call *c)
{
    double *w = c->in[0].p;
    bool exact = c->in[1].dtype == DT_I64;
    double squares = exact ? squares_total(c->in[1].p) : *(const double *)c->in[1].p;
    bool losses = exact ? *(const int64_t *)c->in[2].p == 0 : *(const double *)c->in[2].p == 0;
    step_words_clip(w, at_clip(&c->at)->most, squares, losses);
}
