/* SPDX-License-Identifier: Apache-2.0 */
/* evals.h: what a run's evaluations have come to: which was the best (checkpoint.best), and how many in a row were not
 * better than the best before them (run.stop_early). It is in every checkpoint, so a run that goes on decides what it
 * would have decided.
 *
 * The two count apart: an evaluation is the best where its loss is lower than that of every one before, by however
 * little; for stopping it has to be lower by more than run.stop_early_delta. A loss that is not finite is never better.
 * Floor 8. Order: Local, the same on all ranks.
 */
#ifndef TUTTI_KEEP_EVALS_H
#define TUTTI_KEEP_EVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

struct evals_rules {
    bool best;        /* the best one is kept */
    int64_t patience; /* evaluations without a better one that end the run; 0: none do */
    double delta;
};
struct evals_best {
    double loss;  /* nats */
    int64_t step; /* whose checkpoint it is; -1: none */
};
struct evals {
    struct evals_rules rules;
    int64_t step;                   /* of the last evaluation; -1: none */
    struct evals_best best, before; /* before: what best was until this one */
    double least;                   /* for stopping; INFINITY: none */
    int64_t since;                  /* evaluations that were not better */
};

void evals_init(struct evals *x, const struct evals_rules *rules);
/* Whether there is anything to decide. */
bool evals_count(const struct evals *x);
/* An evaluation after `step`; true: it is the best so far. */
bool evals_learn(struct evals *x, int64_t step, double loss);
bool evals_over(const struct evals *x);
/* The checkpoint of that step could not be written: if it was to be the best, the one before is it again. */
void evals_unsaved(struct evals *x, int64_t step);
/* There is no best one (any more); how long none was better stays. */
void evals_forget_best(struct evals *x);

/* Members "best" and "evaluations" of what o is printing, where there is something to say; and back. What is not there
 * is left as evals_init has it.
 *   fails   ERR_CORRUPT: not what evals_put writes; what: where from */
void evals_put(const struct evals *x, struct json_out *o);
int evals_take(struct evals *x, const struct json *extra, const char *what, struct err *e);

#endif
