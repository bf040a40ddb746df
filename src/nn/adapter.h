/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.h: LoRA (Hu et al. 2021): beside a matrix W [N, K] that keeps its values two small ones are trained, A [r, K]
 * and B [N, r], and the product becomes
 *
 *   y = x W^T + s (x A^T) B^T        s = alpha / r, or alpha / sqrt(r) (rsLoRA, Kalajdzievski 2023)
 *
 * They are rows of the table of parameters like all others, NAME.lora_a and NAME.lora_b behind the model's own, a unit
 * (of experts: two) for each layer: so they are shared out, reduced, stepped and saved by the same code. A begins with
 * normal values, B with zeros: at first nothing is added.
 *
 *   W along tp   A    B    x A^T       what follows
 *   S0           R    S0   R           A's gradient is a sum over tp, made at the end of the step (state/reduce.c)
 *   S1           S1   R    P           no message of its own: the sum that y owes has it in; B's gradient is a sum over
 * tp I, R         as W
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
/* What adapters of the matrices that w is made of add to y, just made of h and w. rows_E, expected: of a grouped
 * product; else TID_NONE. */
void adapter_record(struct layer_ctx *x, tid h, tid w, tid y, tid rows_E, int64_t expected);
/* Every target fits a matrix, and this mesh can have it. */
int adapter_check(const struct adapter *a, const struct param_table *t, struct err *e);

#endif
