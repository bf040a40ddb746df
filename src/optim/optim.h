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

#include "state/store.h"

/* Rows of optim_row, in its order. */
enum optim_kind { OPTIM_ADAMW, OPTIM_SGD, OPTIM_LION, OPTIM_MUON, OPTIM_KINDS };
#define OPTIM_NAMES "adamw|sgd|lion|muon"
enum { OPTIM_MAX_ARRAYS = 2 };

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
    bool moments16; /* AdamW's moments are kept in bf16 */
    double momentum;
    bool nesterov;
    double muon_momentum;
    bool muon_nesterov;
    double clip; /* global norm over all groups; 0: off */
};

/* Parameters, or pieces of them, that lie one after the other in all their arrays and share group and decay. */
struct optim_stretch {
    float *master;
    char *array[OPTIM_MAX_ARRAYS]; /* in the order of the row, of optim_dtype; NULL beyond its number */
    const char *grad;
    char *param; /* the compute copy; NULL: the parameters are the master */
    int64_t n;
    bool decay;
    enum param_group group;
};
struct optim_call { /* what all stretches of a step share */
    const struct store *s;
    struct stream *stream;
    const struct optim_config *c;
    double lr;
    int64_t step; /* from 0 */
    float scale;  /* of gradients: clipping, and that they are a multiple (store.grad_times) */
    int which[PARAM_GROUPS][OPTIM_MAX_ARRAYS]; /* where the arrays of a group's optimizer are in the store's table */
};

/* An optimizer. Its arrays have a value per element, of optim_dtype, and begin as zeros; their names are groups of
 * checkpoints, so optimizers that use one name for one meaning share an array. */
struct optim_row {
    const char *name; /* in configs */
    struct {
        const char *name, *title;
    } array[OPTIM_MAX_ARRAYS];
    int (*n_arrays)(const struct optim_config *c); /* of these so many */
    const char *keys[4]; /* keys of `optimizer` that not every optimizer reads; ends with NULL */
    /* NULL, or what is wrong with the numbers that it reads; *key: whose fault it is. */
    const char *(*check)(const struct optim_config *c, const char **key);
    /* It steps whole matrices and nothing else (muon.h): those are owned (state/own.h), and `step` is NULL. */
    bool whole;
    /* One stretch, gradients in fp32. Elementwise: cutting a stretch changes no bits. */
    void (*step)(const struct optim_call *x, const struct optim_stretch *r, const float *grad);
};
extern const struct optim_row optim_rows[OPTIM_KINDS];

const struct optim_row *optim_of(const struct optim_config *c, enum param_group group);
enum dtype optim_dtype(const struct optim_config *c); /* of all optimizers' arrays */
/* Whether some group's optimizer reads this key ("betas"); a key that no row names is read by all. */
bool optim_reads(const struct optim_config *c, const char *key);
/* What is wrong with the config, and the key; NULL: nothing. */
const char *optim_check(const struct optim_config *c, const char **key);
/* Rows for the store: every name once, for the groups that have it. Returns how many. */
int optim_arrays(const struct optim_config *c, struct array_row out[OPTIM_KINDS * OPTIM_MAX_ARRAYS]);
/* Gives the matrices owners that an optimizer needs whole. After parameters are declared, before anything is made of
 * their table. */
void optim_own(const struct optim_config *c, struct param_table *t);
/* The learning rate of a group; what this rank steps of a parameter. */
float optim_rate(const struct optim_call *x, enum param_group group);
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
/* The same without any rounding, to FLAT_SQUARES_WORDS words on the device (squares.h); gradients in fp32. */
void optim_exact_squares(const struct store *s, struct stream *st, int64_t *word);
/* The first elements of gradients `grad`, at most n, in fp32; *m: how many. Overwritten by the next call. */
const float *optim_widen(const struct store *s, struct stream *st, const void *grad, int64_t n, int64_t *m);
struct muon; /* muon.h: of this store and config; NULL where it is nobody's optimizer */
/* One update of parameters [first, first + n), whole units; step from 0; grad_norm, the global L2 norm of the
 * gradients, decides clipping. Local, but with muon Collective(tp). */
void optim_step_some(struct store *s, struct stream *st, const struct optim_config *c, struct muon *muon, double lr,
                     int64_t step, double grad_norm, int first, int n);
/* Of all. */
void optim_step(struct store *s, struct stream *st, const struct optim_config *c, struct muon *muon, double lr,
                int64_t step, double grad_norm);

#endif
