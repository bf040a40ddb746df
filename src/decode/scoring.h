/* SPDX-License-Identifier: Apache-2.0 */
/* scoring.h: what a reward model says of answers: a number for each line of JSON, which is one that rewards are asked
 * with (learn/reward.h):
 *
 *   {"answer": "15", "ended": true, "record": {"prompt": "7+8=", ...}, ...}
 *
 * The record's prompt is a text or a list of messages, or the record has messages; a line without a record is the
 * record itself. An answer reads as answers of preferences do in training (chat.h), or, with "ended": false, as far as
 * it was written. Its score is that of its last token: the end of text where that belongs to it, or, by
 * model.score_at, the token before that.
 *
 * Lines are scored in groups, each begun with an empty cache, so that a score is a function of its group: answers to
 * one prompt share its pages. Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_SCORING_H
#define TUTTI_DECODE_SCORING_H

#include "decode/decoding.h"

struct scoring {
    struct decoding *decoding;         /* of a reward model */
    const struct tokenizer *tokenizer; /* whose end of text is read */
    const char *template_name;         /* of messages (data/chat.h); NULL: prompts are texts */
    const char *tokenizer_path;        /* for the template "tokenizer" */
    const char *day;                   /* that the template tells (data/chat.h); NULL: none, as in training */
    const char *what;                  /* where lines come from, for errors */
};
typedef int scoring_put_fn(void *ctx, double score, struct err *e);
/* Each line's score to put, in order; empty lines are passed over. ERR_CORRUPT, ERR_REQUEST: a line is wrong, or does
 * not fit the model; it is named, and those before it were put. */
int scoring_lines(const struct scoring *s, const char *lines, size_t bytes, scoring_put_fn *put, void *ctx,
                  struct err *e);

/* The template that the run behind these weights had for its conversations (data.train: chat), where all its sources
 * have one, and the day that all of them tell; xfree both. NULL: none is known. */
int scoring_template(const struct weights *w, char **name, char **day, struct err *e);

#endif
