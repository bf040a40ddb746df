/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_policy_impl.h: what the parts of learning by rewards share: trainer_policy.c writes answers and asks what
 * they are worth, trainer_policy_step.c learns from them, trainer_policy_words.c puts them in words for hooks and for
 * people. Floor 10. Order: as stated.
 */
#ifndef TUTTI_TRAIN_TRAINER_POLICY_IMPL_H
#define TUTTI_TRAIN_TRAINER_POLICY_IMPL_H

#include "learn/policy_prompts.h"
#include "decode/rollout.h"
#include "train/trainer_impl.h"

struct policy {
    struct policy_prompts *prompts;
    struct policy_rules rules;
    int64_t n, group, most, seq;       /* answers of a batch, of a prompt; tokens of an answer, places of a sequence */
    struct rollout_answer *answer;     /* [n] */
    int32_t *ids;                      /* [n][most], theirs */
    double *old, *reference;           /* [n][most], nats: when written; of what the run began with */
    double *now;                       /* [sequences of all parts][seq], by place */
    double *reward, *advantage;        /* [n] */
    int32_t *tokens, *targets, *place; /* [n][seq] */
    float *factor;
    int64_t updates;
    int64_t batch; /* which batch of answers this is; -1: there is none yet */
    bool fresh;    /* the weights are those that wrote it */
    struct policy_sums sums;
    int64_t alike; /* batches in a row in which every group's rewards are the same */
    bool warned;
};

/* What is written and what is learned have the same order of sums. */
static inline bool policy_same_sums(const struct trainer *t)
{
    return t->cfg.parallel.tp == 1 && t->cfg.parallel.cp == 1;
}
/* Sequences of a data-parallel rank at most. */
static inline int64_t policy_room(const struct trainer *t)
{
    const struct engine_config *g = &t->site.engine->cfg;
    return g->n_microbatches * g->micro;
}

/* ---- trainer_policy.c ---- */
struct policy_prompt policy_prompt_of(const struct trainer *t, int64_t answer);

/* ---- trainer_policy_step.c ---- */
/* Where the nats of an answer's first token lie in now. */
const double *policy_now(const struct trainer *t, int64_t answer);

/* ---- trainer_policy_words.c ---- */
/* Appends the line that a hook gets of an answer; text is room for its words. Local. */
void policy_put_question(struct trainer *t, int64_t answer, struct str *text, struct str *out);

#endif
