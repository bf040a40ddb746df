/* SPDX-License-Identifier: Apache-2.0 */
/* preference.h: learning from pairs of answers, as numbers. Direct preference optimisation (Rafailov et al. 2023,
 * equation 7): of a pair of answers y_w, preferred, and y_l, and with log p(y) the sum over an answer's tokens,
 *
 *   loss = -log sigmoid(h),   h = beta (log p(y_w) - log ref(y_w)) - beta (log p(y_l) - log ref(y_l))
 *
 * whose two halves are the rewards of the answers. The gradient with respect to log p(y_w) is -beta sigmoid(-h), that
 * with respect to log p(y_l) the same with the other sign: a factor of each sequence's own gradient.
 *
 * The reference is what the run began with: its log-probabilities of all answers are taken once, before the first step,
 * and kept in run.dir/reference.bin, 8 bytes an answer. So there is no second set of weights in memory, in any layout.
 *
 * A reward model (Ouyang et al. 2022, equation 1) has numbers r(y) of its own: the same with them in the place of
 * log p, a beta of 1 and no reference, and, since only differences count in that, perhaps what keeps r around 0,
 * centre (r(y_w) + r(y_l))^2 more (Eisenstein et al. 2023). Its scores come as nats, -r.
 *
 * Floor 8. Order: Local.
 */
#ifndef TUTTI_LEARN_PREFERENCE_H
#define TUTTI_LEARN_PREFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct preference_sums {     /* over pairs */
    double loss;             /* nats */
    double chosen, rejected; /* rewards */
    int64_t right, pairs;    /* right: whose chosen answer has the larger reward */
    bool scored;             /* rewards are a reward model's */
};

/* nats and reference: -log p of the chosen and of the rejected answer. Adds to *s; factor: d(loss) / d(nats). */
void preference_pair(double beta, const double nats[2], const double reference[2], struct preference_sums *s,
                     double factor[2]);
/* The same of a reward model; nats: -r of both. */
void preference_rewards(double centre, const double nats[2], struct preference_sums *s, double factor[2]);

/* The reference's nats of a run's answers: those trained on, and those of evaluations. */
struct reference {
    double *train, *valid; /* [n_train], [n_valid], in the order of the data's list of evaluation; xfree them */
    int64_t n_train, n_valid;
    uint64_t of_train, of_valid; /* fingerprints of the data */
};
int reference_write(const char *dir, const struct reference *r, struct err *e);
/* Into the arrays, which have room. ERR_REQUEST: there is none, or it is of other data; ERR_CORRUPT: damaged. */
int reference_read(const char *dir, struct reference *r, struct err *e);

#endif
