/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h: a run from its config to its last checkpoint.
 *
 *   open     lock the run directory, tokenizer and data, engine, weights (fresh, model.from, or resumed)
 *   loop     batch -> engine_step -> metrics -> validation -> checkpoint, until run.steps or a signal
 *   close    last checkpoint, progress kept
 *
 * Invariants
 *   1. The state after step s is a function of (config, data, s): stopping and resuming gives the same bits.
 *   2. The last published checkpoint survives every failure here.
 * Floor 10. Order: Collective over all processes.
 */
#ifndef TUTTI_TRAIN_TRAINER_H
#define TUTTI_TRAIN_TRAINER_H

#include "config/config.h"

struct trainer_result {
    int64_t first_step, steps; /* done before this call; done now in all */
    int64_t tokens;
    int64_t wanted;          /* run.steps */
    double loss, valid_loss; /* of the last step; NaN when there was none */
    int64_t places;          /* of a picture: tokens_per_s counts them; 0: texts are read */
    double tokens_per_s;     /* over the time of this call's steps; 0: none */
    double seconds;          /* from the first step to the end, saving and validation included */
    bool stopped;            /* by a signal */
    bool early;              /* by evaluations (run.stop_early) */
    int signal;              /* which one; 0 none, or another process got it */
    int rank;                /* of this process, when a launcher started it */
    char checkpoint[4096];   /* the newest published one, "" when none */
    bool told;               /* what was wrong is on stderr already */
};
/* n_ranks: as threads of this process; 0: nobody said, so one, or the processes that a launcher (mpirun, srun) started.
 * Another number than the launcher's is refused. config_path (may be NULL) and overrides as in config_load. */
/* ERR_SIGNAL: a signal came while the run was set up; no step was done, nothing half done is left. */
int trainer_run(const char *config_path, char *const *overrides, int n_overrides, int n_ranks, struct trainer_result *r,
                struct err *e);

#endif
