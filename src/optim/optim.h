/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h: one optimizer step on this rank's shard: norm, clip, update. Reads gradients (fp32, or bf16 widened a stretch at a time), writes master, moments
 * and the compute copy.
 *
 * Invariants
 *   1. The gradient norm is the square root of a sum in fp64 over parameters in the table's order, then over ranks of
 *      dp_shard in rank order: the same for any number of threads and at every zero level.
 *   2. Weight decay is decoupled (AdamW) and applies to parameters of two and more dims.
 * Floors 0-3. Order: Local; the caller sums over ranks (state/exchange.h).
 */
#ifndef TUTTI_OPTIM_OPTIM_H
#define TUTTI_OPTIM_OPTIM_H

#include "state/store.h"

enum optim_kind { OPTIM_ADAMW, OPTIM_SGD };
struct optim_config {
    enum optim_kind kind;
    double beta1, beta2, eps, weight_decay;
    double momentum;
    bool nesterov;
    double clip; /* global norm; 0: off */
};
/* Moments of fp32 per parameter. */
int optim_n_moments(const struct optim_config *c);

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

/* Sum of squares of the gradients in this rank's pieces; over all ranks of dp_shard, the squared norm. */
double optim_sum_squares(const struct store *s, const struct kernel_table *k);
/* The first elements of gradients `grad`, at most n, in fp32; *m: how many. Overwritten by the next call. */
const float *optim_widen(const struct store *s, const struct kernel_table *k, const void *grad, int64_t n, int64_t *m);
/* Global L2 norm of the gradients of one rank alone. */
double optim_grad_norm(const struct store *s, const struct kernel_table *k);
/* One update; step from 0; grad_norm from optim_grad_norm decides clipping. */
void optim_step(struct store *s, const struct kernel_table *k, const struct optim_config *c, double lr, int64_t step,
                double grad_norm);

#endif
