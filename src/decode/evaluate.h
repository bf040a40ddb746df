/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.h: a model's answers to the records of tasks.h, as scores with their standard errors.
 *
 *   perplexity  nats per token over all texts. A text longer than the model's positions is cut into windows whose every
 *               token is predicted once, the first by the start of a text (where the tokenizer has one), as rolling
 *               log-likelihoods are commonly made. Error: of a mean whose records weigh as many tokens as they have.
 *               By position: tokens 0, 1, 2-3, 4-7, ... of a text.
 *   choice      the share of records whose likeliest choice is the answer: by log-probability, and per byte of the
 *               choice. Of equal ones the first counts.
 *   match       the share of records whose greedy text, up to a stop string or the end of the text, is the target.
 * Standard errors of shares are sqrt(p (1 - p) / (n - 1)); NaN of one record.
 * Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_EVALUATE_H
#define TUTTI_DECODE_EVALUATE_H

#include "decode/batching.h"
#include "decode/tasks.h"

enum { EVALUATE_POSITIONS = 32 };
struct comm;
struct score_sums { /* of the tokens at some positions */
    int64_t tokens;
    double nats;
};
struct task_score {
    char *name;
    enum task_kind kind;
    int64_t records;
    /* TASK_TEXT */
    int64_t tokens, bytes, words;
    double nats, nats_error; /* sum; standard error of nats per token */
    struct score_sums at[EVALUATE_POSITIONS];
    /* TASK_CHOICE, TASK_MATCH: right ones; by bytes */
    int64_t right, right_per_byte;
};
struct evaluation {
    struct task_score *task; /* in the order of their first records */
    int n_tasks;
    int64_t records, tokens; /* tokens that were scored or written */
};
double score_share(int64_t right, int64_t n, double *error); /* and its standard error */

/* ERR_REQUEST: a record is wrong, or does not fit the model; it is named. */
int evaluate(struct decoding *d, const struct tokenizer *t, const char *path, struct evaluation *out, struct err *e);
/* The same by several replicas of the model, which share out the records; out is on all of them what one has, to the
 * bit. NULL: one. Collective(replicas). */
int evaluate_shared(struct decoding *d, const struct tokenizer *t, const char *path, struct comm *replicas,
                    struct evaluation *out, struct err *e);
void evaluation_fini(struct evaluation *v);

#endif
