/* SPDX-License-Identifier: Apache-2.0 */
/* update_factors.h: the kinds of updates (update.h), where their operands and factors are, and what a step's words make
 * of the factors: in numbers alone, for the host and for a GPU. Order: Local. */
#ifndef TUTTI_KERNEL_UPDATE_FACTORS_H
#define TUTTI_KERNEL_UPDATE_FACTORS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fn.h"
#include "kernel/squares.h"

enum { UPDATE_OPERANDS = 7 };
enum update_kind {
    UPDATE_ADAMW,    /* master, m, v, grad, param */
    UPDATE_SGD,      /* master, m (none without momentum), grad, param */
    UPDATE_LION,     /* master, m, grad, param */
    UPDATE_MOMENTUM, /* m, grad -> u: what momentum makes of a gradient */
    UPDATE_UNIT,     /* to = from / (root of *sum + eps) */
    UPDATE_BLEND,    /* to = a * x + b * y */
    UPDATE_ADAMW16,  /* master, m, v, grad, param: AdamW with moments in bf16 */
    UPDATE_ADAMW8,   /* master, m, v, their scales, grad, param: AdamW with moments in blocks (kernel/moments.h) */
    UPDATE_APPLY,    /* master, o, param: master += step * o, decayed */
    UPDATE_AVERAGE,  /* average, of: average = keep * average + (1 - keep) * of */
    UPDATE_ROUND,    /* to, from: rounded up or down by chance (update_args.chance), to bf16 */
    /* Adafactor's (kernel/factored.h): a matrix's rows, in a whole number of them */
    UPDATE_FACTOR_SUMS,  /* squares of a gradient, added up by row and by column */
    UPDATE_FACTOR_KEEP,  /* running means from the sums */
    UPDATE_FACTOR_MEAN,  /* of the rows' */
    UPDATE_FACTOR_SIZE,  /* squares of what is stepped along and of the weights, added up */
    UPDATE_FACTOR_APPLY, /* the step */
    UPDATE_KINDS
};

/* Where a kind's operands and factors are in update_args. */
enum { ADAMW_MASTER, ADAMW_M, ADAMW_V, ADAMW_GRAD, ADAMW_PARAM };
/* SCALE: clipping and the loss scale, multiplies the gradient; BIAS: 1 - beta^t. */
enum { ADAMW_LR, ADAMW_BETA1, ADAMW_BETA2, ADAMW_EPS, ADAMW_DECAY, ADAMW_SCALE, ADAMW_BIAS1, ADAMW_BIAS2 };
enum { SGD_MASTER, SGD_M, SGD_GRAD, SGD_PARAM };
enum { SGD_LR, SGD_MOMENTUM, SGD_DECAY, SGD_SCALE }; /* flag: Nesterov's */
enum { LION_MASTER, LION_M, LION_GRAD, LION_PARAM };
enum { LION_LR, LION_BETA1, LION_BETA2, LION_DECAY, LION_SCALE };
enum { MOMENTUM_M, MOMENTUM_GRAD, MOMENTUM_U };
enum { MOMENTUM_MU, MOMENTUM_AHEAD, MOMENTUM_SCALE }; /* AHEAD: mu with Nesterov's momentum, else u is m */
enum { UNIT_TO, UNIT_FROM, UNIT_SUM };                /* SUM: one f64, on the device */
enum { UNIT_EPS };
enum { BLEND_TO, BLEND_X, BLEND_Y };
enum { BLEND_A, BLEND_B };
enum { ADAMW16_MASTER, ADAMW16_M, ADAMW16_V, ADAMW16_GRAD, ADAMW16_PARAM };
enum {
    ADAMW16_BETA1,
    ADAMW16_BETA2,
    ADAMW16_EPS,
    ADAMW16_DECAY,
    ADAMW16_ROOT,
    ADAMW16_STEP,
    ADAMW16_SCALE
}; /* flat_ops.h */
/* Its factors are ADAMW16's; flag: fp8, not the map. */
enum { ADAMW8_MASTER, ADAMW8_M, ADAMW8_V, ADAMW8_M_SCALE, ADAMW8_V_SCALE, ADAMW8_GRAD, ADAMW8_PARAM };
enum { APPLY_MASTER, APPLY_O, APPLY_PARAM };
enum { APPLY_STEP, APPLY_DECAY };
enum { AVERAGE_TO, AVERAGE_OF };
enum { AVERAGE_KEEP };
enum { ROUND_TO, ROUND_FROM };

enum { FACTOR_SUMS_ROWS, FACTOR_SUMS_COLS, FACTOR_SUMS_GRAD };
enum { FACTOR_KEEP_TO, FACTOR_KEEP_SUMS };
enum { FACTOR_KEEP_KEEP, FACTOR_KEEP_SCALE, FACTOR_KEEP_EPS };
enum { FACTOR_MEAN_TO, FACTOR_MEAN_ROWS };
enum { /* TO: two f64; EACH: room for two of a row */
       FACTOR_SIZE_TO,
       FACTOR_SIZE_EACH,
       FACTOR_SIZE_ROWS,
       FACTOR_SIZE_COLS,
       FACTOR_SIZE_MEAN,
       FACTOR_SIZE_GRAD,
       FACTOR_SIZE_MASTER
};
enum { FACTOR_SIZE_SCALE };
enum {
    FACTOR_APPLY_MASTER,
    FACTOR_APPLY_ROWS,
    FACTOR_APPLY_COLS,
    FACTOR_APPLY_MEAN,
    FACTOR_APPLY_SIZE,
    FACTOR_APPLY_GRAD,
    FACTOR_APPLY_PARAM
};
/* flag: the rate is times the size of the weights, LEAST at least. */
enum { FACTOR_APPLY_SCALE, FACTOR_APPLY_LR, FACTOR_APPLY_DECAY, FACTOR_APPLY_CLIP, FACTOR_APPLY_LEAST };

/* What makes a factor of words: */
enum { BY_RATE };                /* all: the group's part of WORD_LR */
enum { BY_BETA1 = 1, BY_BETA2 }; /* ADAMW, ADAMW16, ADAMW8 */
enum { BY_SIZE = 1, BY_DECAY };  /* APPLY: of an update beside the rate; decay */
enum { BY_DECAY_RATE = 1 };      /* FACTOR_KEEP; blocks.whole: how many numbers a sum is of */

/* AdamW (Loshchilov and Hutter 2019) as PyTorch orders it: p -= lr wd p, then
 * p -= lr/bias1 * m / (sqrt(v) / sqrt(bias2) + eps). */
struct adamw_step {
    float decay;      /* -lr * weight_decay */
    float root_scale; /* 1 / sqrt(bias2) */
    float step;       /* -lr / bias1 */
};
TUTTI_FN struct adamw_step adamw_step_of(float lr, float weight_decay, float bias1, float bias2)
{
    struct adamw_step s = {-lr * weight_decay, (float)(1.0 / sqrt((double)bias2)), -lr / bias1};
    return s;
}

/* What update_by (update.h) makes of f. scale_at: the factor that is WORD_SCALE, or -1; whole: blocks.whole. */
TUTTI_FN void update_factors_by(int kind, bool flag, int scale_at, int64_t whole, float *f, const double *g,
                                const double *words)
{
    const float lr = (float)(words[WORD_LR] * g[BY_RATE]), scale = (float)words[WORD_SCALE];
    const double made = words[WORD_MADE];
    if (scale_at >= 0) f[scale_at] = scale;
    switch (kind) {
    case UPDATE_ADAMW:
        f[ADAMW_LR] = lr;
        f[ADAMW_BIAS1] = (float)(1 - pow(g[BY_BETA1], made + 1));
        f[ADAMW_BIAS2] = (float)(1 - pow(g[BY_BETA2], made + 1));
        return;
    case UPDATE_ADAMW16:
    case UPDATE_ADAMW8: {
        struct adamw_step s = adamw_step_of(lr, f[ADAMW16_DECAY], (float)(1 - pow(g[BY_BETA1], made + 1)),
                                            (float)(1 - pow(g[BY_BETA2], made + 1)));
        f[ADAMW16_DECAY] = s.decay;
        f[ADAMW16_ROOT] = s.root_scale;
        f[ADAMW16_STEP] = s.step;
        return;
    }
    case UPDATE_SGD: f[SGD_LR] = lr; return;
    case UPDATE_LION:
        f[LION_LR] = lr;
        f[LION_DECAY] = flag ? -lr * f[LION_DECAY] : 0;
        return;
    case UPDATE_APPLY:
        f[APPLY_STEP] = (float)(-(double)lr * g[BY_SIZE]);
        f[APPLY_DECAY] = flag ? (float)(-(double)lr * g[BY_DECAY]) : 0;
        return;
    case UPDATE_FACTOR_KEEP:
        f[FACTOR_KEEP_KEEP] = (float)(1 - pow(made + 1, -g[BY_DECAY_RATE]));
        f[FACTOR_KEEP_SCALE] = (float)((double)scale * (double)scale / (double)whole);
        return;
    case UPDATE_FACTOR_APPLY: f[FACTOR_APPLY_LR] = lr; return;
    default: return;
    }
}

/* Of UPDATE_ROUND: how many elements from i on have words in a row, at most n; *word: of the first. Element 0 is number
 * `at` of a box of rows of `cols`, which begins at element `first` of the whole, whose rows have `wide`. */
TUTTI_FN int64_t chance_words(int64_t at, int64_t cols, int64_t first, int64_t wide, int64_t i, int64_t n,
                              uint64_t *word)
{
    int64_t here = at + i, row = here / cols, col = here % cols, left = cols - col;
    *word = (uint64_t)(first + row * wide + col);
    return cols == wide || left > n ? n : left;
}

#endif
