/* SPDX-License-Identifier: Apache-2.0 */
/* trial.h: one layout of a config, run: a few steps, an evaluation, a checkpoint, and a step more from the checkpoint
 * of another layout; and what that leaves behind, as arrays of the global shapes, so that comparing is the same loop
 * for every layout. Floor 11. Order: Local: starts its ranks itself.
 */
#ifndef TUTTI_VERIFY_TRIAL_H
#define TUTTI_VERIFY_TRIAL_H

#include "config/config.h"
#include "config/config_optim.h"
#include "state/array.h"
#include "state/param.h"
#include "verify/answers.h"
#include "verify/replay.h"

enum { VERIFY_MAX_STEPS = 100 };

struct outcome {
    int64_t numel;
    int moments;
    struct array_row row[OPTIM_MAX_ROWS]; /* [moments], what they are */
    double stored;                        /* half a unit in the last place of a value, relative to it */
    float *began;                         /* [numel], the values before the first step */
    float *grad;                          /* [numel], of the first step that was taken */
    float *value;                         /* [numel], after the last step; then [numel] for each moment */
    float *loaded;                        /* the same, as they were loaded from the other layout's checkpoint */
    float *next;                          /* [numel], the values one step later */
    double loss[VERIFY_MAX_STEPS + 1], norm[VERIFY_MAX_STEPS + 1]; /* the last of them of the step after loading */
    double eval_loss;
    int64_t eval_tokens;
    int rounds[VERIFY_MAX_STEPS + 1];   /* by step: the most in which rows came to their experts (engine_report) */
    int64_t comm_bytes, peak_bytes;     /* of rank 0: sent in the first step; of its ledger, before a checkpoint is read
                                           (engine/loading.h says what that takes) */
    bool skipped[VERIFY_MAX_STEPS + 1]; /* by step: fp16 left it out */
    int ran;                            /* steps that rank 0 came to the end of, that after loading among them */
    struct answers_found answers;       /* with train.objective: grpo */
    bool differ;                        /* ranks that must hold the same do not, at the end (engine/replicas.h): */
    char replicas[256];                 /* in words */
};
void outcome_init(struct outcome *o, const struct config *c, int64_t numel);
void outcome_fini(struct outcome *o);
uint64_t outcome_state(const struct outcome *o, const float *state); /* hash of value or of loaded */

struct trial {
    const struct config *c; /* with this layout's degrees */
    const int32_t *tokens;  /* trial_tokens: trained on */
    const int32_t *unseen;  /* evaluated */
    int steps;
    bool measure;                     /* the first step only, for settling the optimizer's eps */
    const struct param_table *global; /* as one rank holds it */
    struct replay *replay;
    const char *save_to;   /* a root for checkpoints; NULL: none is written and none read */
    const char *load_from; /* a checkpoint; NULL: the step after goes on from here */
    struct outcome *out;
    int64_t began; /* bytes that rank 0 had sent to servers before the first step */
};

/* [6][global][seq]: random tokens, targets, positions, documents, segments, patches; `which` batch. Of pictures they
 * are zeros, and behind them are labels, [global], pixels, f32, and what losses of tokens are weighed by, f32,
 * [global][seq]. xfree it. */
int32_t *trial_tokens(const struct config *c, int which);
int trial_run(struct trial *t, struct err *e);

#endif
