/* SPDX-License-Identifier: Apache-2.0 */
/* rerun.h: steps of a run once more, alone, for debugging (tutti replay): from the newest checkpoint before the step,
 * or the first weights where there is none, to the step, in the run's own layout or another. Nothing in the run's
 * directory is written; tokens are read from its cache, and what is missing there is made in a folder that is removed
 * again.
 *
 * Which steps: every one whose inputs are still there. A step's state is a checkpoint before it and the steps between,
 * so what a run may do once it may do again; without checkpoints that takes as long as the run did.
 * Floor 10. Order: Local; starts its ranks as threads itself.
 */
#ifndef TUTTI_TRAIN_RERUN_H
#define TUTTI_TRAIN_RERUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct rerun_request {
    const char *dir;       /* of the run */
    int64_t step;          /* from 1; 0: only say which can be run */
    int ranks;             /* 0: as many as the config was resolved for */
    bool one_rank;         /* in one, whatever the config says */
    bool crowd;            /* more ranks than crowd_check has for this host */
    char *const *override; /* key=value: another layout, other kernels */
    int n_override;
};

struct rerun_param {
    char name[96];
    double grad_norm;
};
struct rerun_span { /* steps first to last begin from this checkpoint */
    int64_t first, last;
    char from[512]; /* its path, or "" for the first weights */
};

struct rerun_result {
    int64_t recorded; /* the last step that metrics.jsonl has */
    struct rerun_span *span;
    int n_spans;
    /* of a step that was run */
    int64_t step, tokens;
    char from[512];
    int ranks;
    bool same_layout; /* no key was given and the ranks are the run's */
    double loss, grad_norm, lr;
    const char *skip; /* why the step was left out; NULL: it was not */
    struct rerun_param *param;
    int n_params;
    /* beside metrics.jsonl, in the 9 digits that it has */
    bool is_recorded;
    double recorded_loss, recorded_grad_norm;
    bool same;
    int64_t compared, first_other; /* steps on the way that were compared; the first that is other, 0: none */
};

/* ERR_REQUEST: no such run, no such step, servers that go alone; else what loading and training return. */
int rerun(const struct rerun_request *q, struct rerun_result *r, struct err *e);
void rerun_free(struct rerun_result *r);

#endif
