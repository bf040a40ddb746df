/* SPDX-License-Identifier: Apache-2.0 */
/* api_request.h: what a client asks for: the JSON of OpenAI's completions and chat completions, read and checked.
 *
 * Which members there are and what becomes of each is the table of api_members.h. Nothing here knows a connection.
 * Order: Local.
 */
#ifndef TUTTI_SERVE_API_REQUEST_H
#define TUTTI_SERVE_API_REQUEST_H

#include "base/err.h"
#include "base/json.h"
#include "data/chat.h"
#include "decode/batching.h"

enum { API_CHOICES = 16, API_PROMPTS = 32 };

struct api_limits {
    int64_t max_tokens;  /* of an answer at most; also where a request does not say, with 16 for completions */
    int64_t room, vocab; /* of the model */
    const char *model;   /* the name it has here */
};
struct api_request {
    bool chat, stream, usage, echo, seeded; /* seeded: a seed was given */
    int n, n_prompts;                       /* choices of each prompt */
    struct tokens prompt[API_PROMPTS];
    char *echoed[API_PROMPTS]; /* a prompt's text; NULL: it was given as tokens */
    char *stop[ANSWER_STOPS];
    int n_stop;
    int32_t *stop_id;
    int n_stop_ids;
    struct answer_bias *bias;
    int n_bias;
    int64_t max_tokens, min_tokens;
    int logprobs; /* -1: none; else the likeliest tokens to tell */
    bool past_end;
    struct sample_spec sample;
    struct sample_before before;
};
/* chat: NULL where the model has no template. ERR_REQUEST with what is wrong, naming the member; *status is what HTTP
 * calls that. */
int api_request_read(struct api_request *r, bool is_chat, const char *body, size_t n, const struct tokenizer *t,
                     const struct chat *chat, const struct api_limits *limits, int *status, struct err *e);
void api_request_fini(struct api_request *r);

#endif
