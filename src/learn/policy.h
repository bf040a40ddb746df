/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h: group relative policy optimisation (Shao et al. 2024, "DeepSeekMath", equations 3 and 4), as numbers. G
 * answers o_1 .. o_G to a prompt have rewards r_i, and each answer's advantage is
 *
 *   A_i = (r_i - mean r) / (std r + 1e-4)      std over G - 1; or without the quotient (Liu et al. 2025, "Dr. GRPO")
 *
 * of a group whose rewards are all one number it is 0. With nats -log p of a token under the model (now), when the
 * answer was written (old) and under the reference (ref):
 *
 *   ratio = exp(old - now)
 *   loss of a token = -min(ratio A, clamp(ratio, 1 - low, 1 + high) A) + beta (exp(now - ref) - (now - ref) - 1)
 *
 * A step's loss is the mean over answers of the mean over an answer's tokens, or (by token: Yu et al. 2025, "DAPO") the
 * mean over all tokens of the step, or (constant: "Dr. GRPO") their sum over the answers' number times the longest an
 * answer may be, so that no token weighs more because its answer is short. A token's gradient is a factor times that of
 * its nats:
 *
 *   ratio A, or 0 where the clamp decides, + beta (exp(now - ref) - 1)
 *
 * Floor 8. Order: Local.
 */
#ifndef TUTTI_LEARN_POLICY_H
#define TUTTI_LEARN_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct policy_rules {
    double low, high, beta;
    bool plain_advantage; /* not divided by the standard deviation */
    bool by_token;
    int64_t constant; /* > 0: the sum over all tokens, over answers times this */
};

/* advantage[n] of n / group groups, one after the other. */
void policy_advantages(const struct policy_rules *r, const double *reward, int64_t n, int64_t group, double *advantage);

struct policy_sums { /* over a step */
    double loss, kl; /* the step's loss; sum of the tokens' distance to the reference */
    int64_t tokens, clipped;
    /* Of the answers: */
    int64_t answers, ended, length; /* those that ended by themselves; tokens */
    double reward, reward_std;      /* mean; mean over groups of the standard deviation */
    int64_t unlike;                 /* tokens whose nats differ from those they were written with, when the weights
                                       were the same; -1: they were not, nobody compared */
    double unlike_most;             /* by how much at most */
    const struct policy_rules *rules;
    int64_t updates; /* steps that learn from these answers */
};
struct policy_token {
    double now, old, ref, advantage;
    double weight; /* of the token in the step's loss */
};
/* Adds to *s; returns d(loss) / d(now). */
double policy_token(const struct policy_rules *r, const struct policy_token *t, struct policy_sums *s);

#endif
