/* SPDX-License-Identifier: Apache-2.0 */
/* update.h: the table of elementwise updates: a row is a name and its operands, and a row of the operation table too
 * (OP_FIRST_UPDATE and on, in this order). A new optimizer that works element by element is a row here and one of enum
 * op, its arithmetic in ref/update.c (the specification) and in cpu/vec/update_body.h.
 *
 * Operands have n elements, or one, or one per block, and lie apart or are the same address. The compute copy is f32,
 * bf16 or f16; where it is NULL or equal to the master, nothing else is written.
 *
 * Invariants
 *   1. Elementwise in fp32, with the fused operations that ref/update.c spells out: neither a cut of the elements, nor
 *      the team, nor the family changes a bit.
 * Includes: words.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_UPDATE_H
#define TUTTI_KERNEL_UPDATE_H

#include "kernel/words.h"

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

struct update_operand {
    void *p;
    enum dtype t;
};
struct update_args {
    enum update_kind kind;
    int64_t n;
    struct update_operand at[UPDATE_OPERANDS];
    float f[UPDATE_FACTORS];
    double g[UPDATE_NUMBERS];
    bool by_words;       /* some of f, and chance.stream, are made of a step's words */
    const double *words; /* on the device; NULL: of nobody, f is as it will be */
    bool flag;
    struct update_blocks blocks;
    struct update_chance chance;
};

/* How many elements an operand has (update_elements). */
enum update_count { UPDATE_EACH, UPDATE_ONE, UPDATE_BLOCK, UPDATE_ROW, UPDATE_ROW_PAIR, UPDATE_COL, UPDATE_TWO };
enum update_use { UPDATE_READS, UPDATE_CHANGES, UPDATE_WRITES }; /* WRITES: what was there means nothing */
struct update_row {
    const char *name;
    int n; /* operands */
    struct {
        const char *name;
        enum update_use use;
        enum update_count count;
    } at[UPDATE_OPERANDS];
    int param; /* the operand that is a compute copy of operand 0, or -1 */
    int scale; /* the factor that is WORD_SCALE where words say it, or -1 */
};
extern const struct update_row update_rows[UPDATE_KINDS];

/* The compute copy that a call writes beside operand 0: its type, or DT_N where there is none to write. */
static inline enum dtype update_copy(const struct update_args *a)
{
    int k = update_rows[a->kind].param;
    return k >= 0 && a->at[k].p && a->at[k].p != a->at[0].p ? a->at[k].t : DT_N;
}

static inline int64_t update_row_blocks(const struct update_args *a)
{
    return (a->blocks.cols + a->blocks.block - 1) / a->blocks.block;
}
static inline int64_t update_n_blocks(const struct update_args *a)
{
    return a->n ? a->n / a->blocks.cols * update_row_blocks(a) : 0;
}
/* The elements of block b: the first, and *n of them. */
static inline int64_t update_block(const struct update_args *a, int64_t b, int64_t *n)
{
    int64_t each = update_row_blocks(a), col = b % each * a->blocks.block, left = a->blocks.cols - col;
    *n = left < a->blocks.block ? left : a->blocks.block;
    return b / each * a->blocks.cols + col;
}
/* Elements of operand k. */
static inline int64_t update_elements(const struct update_args *a, int k)
{
    enum update_count c = update_rows[a->kind].at[k].count;
    switch (c) {
    case UPDATE_ONE: return 1;
    case UPDATE_TWO: return 2;
    case UPDATE_BLOCK: return update_n_blocks(a);
    case UPDATE_ROW: return a->n ? a->n / a->blocks.cols : 0;
    case UPDATE_ROW_PAIR: return a->n ? 2 * (a->n / a->blocks.cols) : 0;
    case UPDATE_COL: return a->blocks.cols;
    case UPDATE_EACH: break;
    }
    return a->n;
}

/* How many elements from i on have words in a row, at most n; *word: of the first. */
static inline int64_t update_words(const struct update_chance *c, int64_t i, int64_t n, uint64_t *word)
{
    int64_t here = c->at + i, row = here / c->cols, col = here % c->cols, left = c->cols - col;
    *word = (uint64_t)(c->first + row * c->wide + col);
    return c->cols == c->wide || left > n ? n : left;
}

/* What makes a factor of words: */
enum { BY_RATE };                /* all: the group's part of WORD_LR */
enum { BY_BETA1 = 1, BY_BETA2 }; /* ADAMW, ADAMW16, ADAMW8 */
enum { BY_SIZE = 1, BY_DECAY };  /* APPLY: of an update beside the rate; decay */
enum { BY_DECAY_RATE = 1 };      /* FACTOR_KEEP; blocks.whole: how many numbers a sum is of */
/* Of update_args.by_words: f (and chance.stream, of UPDATE_ROUND the stream of all steps) as they are at a step with
 * such words. ADAMW16's and ADAMW8's factor of decay is the decay before. */
void update_by(struct update_args *a, const double words[]);
/* The call of an update, and the update of a call: with its words where it has some. */
struct kernel_call update_call(const struct update_args *a);
struct update_args update_of(const struct kernel_call *c);
/* What an operand of a row of updates is: its output, or input i. */
const char *update_part(enum op op, bool output, int i);
/* On a stream. */
void flat_update(struct stream *s, const struct update_args *a);

#endif
