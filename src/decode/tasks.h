/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.h: what a model is asked in an evaluation: records of a .jsonl file, each of one kind by the members it has.
 *
 *   {"text": T}                                              how likely T is: perplexity
 *   {"prompt": P, "choices": [C, ...], "answer": i}          which continuation is likeliest: is it the i-th (from 0)?
 *   {"prompt": P, "target": T [, "stop": [S, ...]]
 *    [, "max_tokens": N]}                                    does the model write exactly T after P?
 *
 * "task": NAME puts a record with others of that name; without it records of a kind are one task.
 * Includes: base, source, token. Order: Local.
 */
#ifndef TUTTI_DECODE_TASKS_H
#define TUTTI_DECODE_TASKS_H

#include "base/err.h"
#include "token/tokenizer.h"

enum task_kind { TASK_TEXT, TASK_CHOICE, TASK_MATCH, TASK_KINDS };
const char *task_kind_name(enum task_kind k); /* "perplexity", "choice", "match": the names of tasks without one */

enum { TASK_CHOICES = 64, TASK_STOPS = 16, TASK_TOKENS = 256 };
struct task_record {
    enum task_kind kind;
    char *name, *prompt; /* prompt: the text of TASK_TEXT; freed by task_record_fini */
    char *choice[TASK_CHOICES], *stop[TASK_STOPS];
    int n_choices, answer, n_stop;
    char *target;
    int64_t max_tokens;
};
void task_record_fini(struct task_record *r);

struct tasks;
int tasks_open(struct tasks **out, const char *path, struct err *e);
void tasks_close(struct tasks *t); /* NULL is fine */
/* 1: the next record, which the caller frees; 0: the end; < 0: an error with file and line. */
int tasks_next(struct tasks *t, struct task_record *r, struct err *e);

/* As lm-eval cuts a prompt from its continuation: spaces at the prompt's end belong to the continuation, both are
 * tokenized together behind what the tokenizer puts before a text, and as many tokens as the prompt alone has are the
 * prompt's. *from: the first token of the continuation. A continuation that has none of its own then, since its text
 * merges with the prompt's end, is tokenized by itself behind the prompt (*apart), as lm-eval does with models that
 * read prompts apart. Before an empty prompt's continuation stands what the tokenizer puts there, or `start` (-1: then
 * the first token is not scored).
 *   fails   ERR_REQUEST: the tokenizer makes nothing of the continuation */
int task_pair(const struct tokenizer *t, const char *prompt, const char *more, int32_t start, struct tokens *ids,
              int64_t *from, bool *apart, struct err *e);

#endif
