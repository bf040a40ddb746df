/* SPDX-License-Identifier: Apache-2.0 */
/* trained.h: the trainer itself (train/trainer.h) in a layout, for a few steps of its config from its beginning to its
 * last checkpoint, on texts that are made here; and what its metrics then say. So what is the trainer's alone is held
 * against one rank too: validation's mean over ranks and batches, the references and factors of preferences
 * (train.objective: dpo, reward), answers, rewards and advantages (grpo).
 *
 * Of rewards only the steps that learn from the first batch of answers are compared: later weights differ by rounding,
 * and an answer that is drawn a hair otherwise is another answer.
 * Floor 11; may use run/. Order: Local: starts its ranks itself.
 */
#ifndef TUTTI_VERIFY_TRAINED_H
#define TUTTI_VERIFY_TRAINED_H

#include "verify/compare.h"

struct trained_asked { /* as config_load takes it; borrowed */
    const char *path;
    char *const *keys;
    int n_keys;
};

enum { TRAINED_FIGURES = 17, TRAINED_LINES = 64 };
struct trained {
    double of[TRAINED_LINES][TRAINED_FIGURES]; /* by line of metrics and figure; NAN: it has none */
    int n;
};

/* Why a config's runs cannot be tried in this way, in words; NULL: they can. */
const char *trained_why_not(const struct config *c);
/* c: a layout, resolved; everything else is q's. In dir, which is emptied. eps as in struct verify. ERR_*: the run was
 * refused or ended. */
int trained_run(struct trained *out, const struct trained_asked *q, const struct config *c, const char *dir, double eps,
                struct err *e);
/* The difference that is largest beside its bound: of losses and norms b->totals, of what else there is b->step; its
 * place ("grad_norm of line 2") in where. What only one of them has is INFINITY. */
struct difference trained_compare(const struct trained *want, const struct trained *got, const struct bounds *b);

#endif
