/* SPDX-License-Identifier: Apache-2.0 */
/* epochs.h: run.elastic: a run that goes on without ranks that die, from world to world (docs/resilience.md).
 *
 *   epoch    the members that are alive choose a layout, those at work open all of a run again and train; the others
 *            are spares and wait
 *   a death  everybody comes back with ERR_LOST, closes what is open without talking to anyone, and meets the others
 *            that are left (comm/crew.h); the next epoch resumes from the newest checkpoint
 *
 * The batch, the model and the order of the data stay as they are: of the layout, dp_replicate and dp_shard follow the
 * number of ranks. Floor 10. Order: Collective(all processes).
 */
#ifndef TUTTI_TRAIN_EPOCHS_H
#define TUTTI_TRAIN_EPOCHS_H

#include <stdbool.h>

#include "base/err.h"

struct job;

/* What a start's line says of how it came about. */
struct epoch {
    int number;        /* from 1 */
    int alive, spares; /* members; of them, waiting */
    const int *lost;   /* [n_lost] members that died in the epoch before, by number at the start of the job */
    int n_lost;
    const char *why; /* what the others noticed; "" in the first */
    double since_s;  /* clock_now_s() when they did */
};

/* The config, as far as it can be read, says run.elastic. Local. */
bool epochs_wanted(const struct job *j);
/* The run, of the launcher's processes or of n_ranks threads (0: nobody said, one). */
int epochs_run(struct job *j, int n_ranks, struct err *e);

#endif
