/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h: the table of optimizers, and one step on this rank's shard: norm, clip, update, each group of parameters by
 * its optimizer. Reads gradients (fp32, or bf16 widened a stretch at a time), writes master, moments and the compute
 * copy.
 *
 * Invariants
 *   1. The gradient norm is the square root of a sum in fp64 over parameters in the table's order, then over ranks of
 *      dp_shard in rank order: the same for any number of threads and at every zero level.
 *   2. Weight decay is decoupled (AdamW) and applies to parameters of two and more dims.
 *   3. Parameters that are not stepped (param.h) keep their values.
 * Floors 0-3. Order: Local; the caller sums over ranks (state/exchange.h).
 */
#ifndef TUTTI_OPTIM_OPTIM_H
#define TUTTI_OPTIM_OPTIM_H

#include "kernel/update.h"
#include "state/store.h"

/* Rows of optim_row, in its order. */
enum optim_kind { OPTIM_ADAMW, OPTIM_SGD, OPTIM_LION, OPTIM_MUON, OPTIM_ADAFACTOR, OPTIM_KINDS };
#define OPTIM_NAMES "adamw|sgd|lion|muon|adafactor"
enum { OPTIM_MAX_ARRAYS = 4, OPTIM_MAX_ROWS = 12 };

/* In which AdamW keeps moments. The last two by blocks (kernel/moments.h), of vectors in fp32. */
enum optim_moments { MOMENTS_FP32, MOMENTS_BF16, MOMENTS_FP8, MOMENTS_8BIT };
#define OPTIM_MOMENTS "fp32|bf16|fp8|8bit"

/* What a group of parameters (state/param.h) has otherwise; all zeros: nothing. */
struct optim_group {
    bool own, scaled; /* whether kind, and lr_factor, are this group's */
    enum optim_kind kind;
    double lr_factor; /* times the learning rate */
};
struct optim_config {
    enum optim_kind kind; /* of all groups without one of their own */
    struct optim_group group[PARAM_GROUPS];
    double beta1, beta2, eps, weight_decay;
    enum optim_moments moments; /* AdamW's */
    int64_t block;              /* of fp8 and 8 bits: elements of a row that share a scale */
    double momentum;
    bool nesterov;
    double muon_momentum;
    bool muon_nesterov;
    double decay_rate, update_clip; /* adafactor.h */
    bool relative;
    double clip;   /* global norm over all groups; 0: off */
    double ema;    /* decay of the average of weights; 0: none is kept */
    bool nearest;  /* weights without a master are rounded to nearest, not by chance */
    uint64_t seed; /* of that chance */
};

/* An array of an optimizer. */
struct optim_array {
    const char *name, *title;
    enum dtype dtype;
    int64_t each; /* 0: a value per element; else one per so many of a row (ARRAY_ROW_BLOCK) */
    bool factors; /* ARRAY_FACTORS */
};

/* Whether a group's moments are in blocks. */
static inline bool optim_blocks(const struct optim_config *c, enum param_group group)
{
    return c->moments >= MOMENTS_FP8 && group != PARAM_VECTORS;
}

/* Parameters, or pieces of them, that lie one after the other in all their arrays and share group and decay. */
struct optim_stretch {
    float *master;
    char *array[OPTIM_MAX_ARRAYS]; /* in the order of the row; NULL beyond its number */
    const char *grad;
    char *copy; /* the compute copy; NULL: the parameters are the master */
    int64_t n;
    bool decay;
    enum param_group group;
    int width[OPTIM_MAX_ARRAYS];    /* bytes of a value of each array */
    int64_t each[OPTIM_MAX_ARRAYS]; /* elements of a row per value; 0: a value each */
    /* Where the weights are the master and not fp32 (store_rounds): */
    char *weights;       /* they; master is an fp32 copy of a stretch of them; else NULL */
    int param;           /* which */
    int64_t at;          /* first element, among those held of the parameter */
    int64_t cols, block; /* rows of what is held, and their blocks; 0: there are none */
};
struct optim_call { /* what all stretches of a step share */
    const struct store *s;
    struct stream *stream;
    const struct optim_config *c;
    /* Takes what would be enqueued; NULL: it is (update_program.h). */
    void (*emit)(void *ctx, const struct param *p, struct kernel_call *c);
    void *emit_ctx;
    const double *words; /* the step's, on the device (kernel/words.h); NULL: these, the caller's */
    double own[STEP_WORDS];
    int n_arrays[PARAM_GROUPS];
    int which[PARAM_GROUPS][OPTIM_MAX_ARRAYS]; /* where the arrays of a group's optimizer are in the store's table */
};

/* An optimizer. Its arrays have a value per element and begin as zeros; their names are groups of checkpoints, so
 * optimizers that use one name for one meaning share an array. */
struct optim_row {
    const char *name; /* in configs */
    int (*arrays)(const struct optim_config *c, enum param_group group, struct optim_array out[OPTIM_MAX_ARRAYS]);
    const char *keys[4]; /* keys of `optimizer` that not every optimizer reads; ends with NULL */
    /* NULL, or what is wrong with the numbers that it reads; *key: whose fault it is. */
    const char *(*check)(const struct optim_config *c, const char **key);
    /* It steps whole matrices and nothing else (muon.h): those are owned (state/own.h). */
    bool whole;
    /* One stretch, gradients in fp32. Elementwise: cutting a stretch changes no bits. NULL: a tool of its own steps. */
    void (*step)(const struct optim_call *x, const struct optim_stretch *r, const float *grad);
};
extern const struct optim_row optim_rows[OPTIM_KINDS];

bool optim_steps(const struct optim_config *c, enum optim_kind kind); /* some group */
const struct optim_row *optim_of(const struct optim_config *c, enum param_group group);
/* Whether some group's optimizer reads this key ("betas"); a key that no row names is read by all. */
bool optim_reads(const struct optim_config *c, const char *key);
/* What is wrong with the config, and the key; NULL: nothing. */
const char *optim_check(const struct optim_config *c, const char **key);
/* Rows for the store: every name once, for the groups that have it, and the average of weights. Returns how many. */
int optim_arrays(const struct optim_config *c, struct array_row out[OPTIM_MAX_ROWS]);
/* Gives the matrices owners that an optimizer needs whole. After parameters are declared, before anything is made of
 * their table. */
void optim_own(const struct optim_config *c, struct param_table *t);
/* Around what changes r->master, of at most STORE_WIDEN elements: without a master of its own (store.h) the weights are
 * widened to fp32 first, and rounded again after. */
void optim_master_begin(const struct optim_call *x, struct optim_stretch *r);
void optim_master_end(const struct optim_call *x, const struct optim_stretch *r);
/* r begins m elements later. */
void optim_advance(const struct optim_call *x, struct optim_stretch *r, int64_t m);
/* Enqueues (emits) a call that is about parameter `param`; an update that goes by the step's words. */
void optim_emit(const struct optim_call *x, int param, struct kernel_call c);
void optim_update(const struct optim_call *x, int param, struct update_args a);
/* A group's part of the learning rate; what this rank steps of a parameter. */
double optim_rate(const struct optim_call *x, enum param_group group);
struct optim_stretch optim_stretch_of(const struct optim_call *x, int param);
/* Bytes of arrays per parameter of a group. */
int64_t optim_bytes(const struct optim_config *c, enum param_group group);

enum lr_kind { LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_WSD };
struct lr_config {
    enum lr_kind kind;
    double lr, min_lr;
    int64_t warmup_steps;
    int64_t decay_steps; /* WSD: length of the final decay */
    int64_t steps;       /* of the whole run */
};
/* Learning rate of step `step` (from 0): linear warm-up lr*(step+1)/warmup, then the schedule down to min_lr at the
 * last step. */
double lr_at(const struct lr_config *c, int64_t step);

/* Enqueues: adds to *sum, on the device, the squares of the gradients in this rank's pieces; over all ranks of dp_shard
 * it is the squared norm. */
void optim_sum_squares(const struct store *s, struct stream *st, double *sum);
/* The same without any rounding, to FLAT_SQUARES_WORDS words on the device (kernel/flat.h); gradients in fp32. */
void optim_exact_squares(const struct store *s, struct stream *st, int64_t *word);
/* The first elements of gradients `grad`, at most n, in fp32; *m: how many. Overwritten by the next call. */
const float *optim_widen(const struct optim_call *x, int param, const void *grad, int64_t n, int64_t *m);
/* What some optimizers have beside arrays, of this store and config; NULL where they are nobody's. */
struct optim_tools {
    struct muon *muon;           /* muon.h */
    struct adafactor *adafactor; /* adafactor.h */
    struct staging *staging;     /* staging.h */
};
/* Of an update of parameters [first, first + n), whole units, by a step's words on the device: what tools step; all.
 * tools NULL: none. Local, but Collective over the groups of the tools. */
void optim_step_tools(struct store *s, struct stream *st, const struct optim_config *c, const struct optim_tools *tools,
                      const double *words, int first, int n);
void optim_step_some(struct store *s, struct stream *st, const struct optim_config *c, const struct optim_tools *tools,
                     const double *words, int first, int n);
/* The rest of an update: what is stepped element by element, through staging where that is given, then averages. */
void optim_step_elements(struct optim_call *x, struct staging *staging, int first, int n);
/* Of all, by words of the caller's; step from 0; grad_norm, the global L2 norm of the gradients, decides clipping. */
void optim_step(struct store *s, struct stream *st, const struct optim_config *c, const struct optim_tools *tools,
                double lr, int64_t step, double grad_norm);

#endif
