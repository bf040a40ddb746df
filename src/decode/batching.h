/* SPDX-License-Identifier: Apache-2.0 */
/* batching.h: many prompts to many texts at once, each coming and going when it likes (continuous batching, Yu et al.
 * 2022, "Orca").
 *
 * An answer is a prompt, how its tokens are chosen, and where it ends. Every step feeds one token of each answer that
 * is being written and, with the rows that are left, pieces of prompts in the order in which they came (Agrawal et al.
 * 2023, "Sarathi"). An answer is begun when the pages for its longest length are there, so that none is ever taken
 * back. Which tokens an answer gets is a function of its logits, its spec and the place: what else is answered beside
 * it changes them by no more than the rounding of products with more rows. Floor 8. Order: Local; one thread at a time.
 */
#ifndef TUTTI_DECODE_BATCHING_H
#define TUTTI_DECODE_BATCHING_H

#include "decode/decoding.h"
#include "decode/sampling.h"

enum answer_end { ANSWER_STOP, ANSWER_END_OF_TEXT, ANSWER_LENGTH, ANSWER_CACHE_FULL, ANSWER_FAILED, ANSWER_N };
const char *answer_end_name(enum answer_end why); /* "stop string", "end of text", "length", "cache full", "failed" */

/* One token of an answer, of its prompt where that is told too. */
struct answer_token {
    int32_t id;
    bool prompt;
    const char *text; /* what is certain now: characters that are whole and cannot begin a stop string; n may be 0 */
    size_t n;
    double logprob; /* natural; NaN: the first token of a prompt, or not asked for */
    int n_top;
    const int32_t *top; /* likeliest first */
    const double *top_logprob;
    const float *logits_V; /* that it was chosen from, or told by; NULL: none */
};
struct answer_counts {
    int64_t prompt, reused, written; /* tokens; of the prompt those that were in the cache already */
};
struct answer_bias {
    int32_t id;
    float by;
};
struct answer_spec {
    const int32_t *ids; /* of the prompt, at least one; copied */
    int64_t n, max_tokens;
    struct sample_spec sample;
    struct sample_before before;
    const char *const *stop; /* texts that end it, which it does not contain; copied */
    int n_stop;
    const int32_t *stop_id; /* tokens that end it, past_end or not, and are not told; copied */
    int n_stop_ids;
    int64_t min_tokens;             /* before so many are written nothing but max_tokens ends it: ends are not drawn */
    const struct answer_bias *bias; /* added to logits before they are sampled from; copied */
    int n_bias;
    int top;           /* log-probabilities, and those of so many likeliest tokens, 0 to ANSWER_TOP; -1: none */
    bool tell_prompt;  /* its tokens are told first, with log-probabilities if asked */
    int64_t tell_from; /* from this one on */
    bool past_end;     /* the end of a text does not end it */
    int64_t after;     /* an answer with the same prompt: this one waits until that is in the cache; 0: none */
    /* Both from batching_step. false: nobody wants it any longer. */
    bool (*token)(void *ctx, const struct answer_token *t);
    /* The last call. rest: text that was held back. why FAILED: e says. */
    void (*end)(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *c,
                const struct err *e);
    void *ctx;
};
enum { ANSWER_TOP = 20, ANSWER_STOPS = 16, ANSWER_STOP_IDS = 1024, ANSWER_BIASES = 1024 };

struct batching;
struct batching *batching_new(struct decoding *d, const struct tokenizer *t);
void batching_free(struct batching *a); /* whoever is left is not told */

/* ERR_REQUEST: what is wrong with it, nothing was added; else *id > 0. */
int batching_add(struct batching *a, const struct answer_spec *s, int64_t *id, struct err *e);
void batching_cancel(struct batching *a, int64_t id); /* its end is not told; an id that is gone is fine */
/* Feeds one step. Answers that fail do so alone; an error is that of the machine. */
int batching_step(struct batching *a, struct err *e);
int64_t batching_writing(const struct batching *a); /* begun and not at an end */
int64_t batching_waiting(const struct batching *a);

#endif
