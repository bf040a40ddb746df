/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.h: LoRA (Hu et al. 2021): beside a matrix W [N, K] that keeps its values two small ones are trained, A [r, K]
 * and B [N, r], and the product becomes
 *
 *   y = x W^T + s (x A^T) B^T        s = alpha / r, or alpha / sqrt(r) (rsLoRA, Kalajdzievski 2023)
 *
 * or with `lengths` (DoRA: Liu et al. 2024, equation 5) a direction, which that moves, and a length of each row, which
 * is trained by itself: what is added to |W_n| is m [N],
 *
 *   y_n = (x W^T + s (x A^T) B^T)_n (|W_n| + m_n) / |(W + s B A)_n|
 *
 * with the lengths |.| taken as constants in backward (section 4.3). peft and the paper train |W_n| + m_n: the same
 * numbers and steps (AdamW's do not depend on where a parameter begins; it does not decay), and m begins with zeros in
 * every layout, without asking W.
 *
 * They are rows of the table of parameters like all others, NAME.lora_a, .lora_b and .lora_m behind the model's own, a
 * unit (of experts: two) for each layer: so they are shared out, reduced, stepped and saved by the same code. A begins
 * with normal values, B with zeros: at first nothing is added.
 *
 *   W along tp   A    B    m    x A^T       what follows
 *   S0           R    S0   S0   R           A's gradient is a sum over tp, made at the end of the step (state/reduce.c)
 *   S1           S1   R    R    P           no message of its own: the sum that y owes has it in; B's and m's gradients
 *                                           are sums over tp; squares of rows of W are summed over tp, N x 2 numbers
 *   I, R         as W
 *
 * Of matrices that are made by one product (q, k, v; gate, up; all experts) any may have adapters: their A are one
 * matrix, each B adds to its columns where they lie. Floors 0-4. Order: Same(mesh).
 */
#ifndef TUTTI_NN_ADAPTER_H
#define TUTTI_NN_ADAPTER_H

#include "nn/layers.h"

/* Whether a matrix has one; patterns fit names without .weight, or their last word (q, gate, down). */
bool adapter_targets(const struct adapter *a, const struct param *p);
/* Rows behind those of the model, which are all there. */
void adapter_declare(struct declare_ctx *x);
/* The bias that w's product itself adds: TID_NONE where adapter_record does, behind the lengths. */
tid adapter_bias(const struct layer_ctx *x, tid w, tid bias);
struct adapter_how {
    tid rows_E; /* of a grouped product; else TID_NONE */
    int64_t expected;
    tid bias; /* that the product did not add; TID_NONE: none is left */
    bool bias_off;
};
/* y, just made of h and w, with what the adapters of the matrices that w is made of make of it: y itself, or a new
 * one. */
tid adapter_record(struct layer_ctx *x, tid h, tid w, tid y, const struct adapter_how *how);
/* Every target fits a matrix, and this mesh can have it. */
int adapter_check(const struct adapter *a, const struct param_table *t, struct err *e);

#endif
