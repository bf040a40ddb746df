/* SPDX-License-Identifier: Apache-2.0 */
/* api_reply.h: answers in the words of OpenAI's completions: whole, or chunk by chunk as events of a stream.
 * Nothing here knows a connection or a model. Order: Local.
 */
#ifndef TUTTI_SERVE_API_REPLY_H
#define TUTTI_SERVE_API_REPLY_H

#include "base/str.h"
#include "serve/api_request.h"

/* A token that was told, as replies need it. */
struct api_token {
    int32_t id;
    double logprob; /* NaN: none */
    size_t offset;  /* of its text in the choice's, in bytes */
    int n_top;
    int64_t top; /* the first of its likeliest in the choice's */
};
struct api_likely {
    int32_t id;
    double logprob;
};
struct api_choice {
    int index;
    struct str text;         /* all so far; a stream's: not sent yet */
    struct api_token *token; /* all so far, where log-probabilities are wanted; a stream's: not sent yet */
    int64_t n_tokens, token_room;
    struct api_likely *likely; /* of all tokens */
    int64_t n_likely, likely_room;
    size_t sent;        /* bytes of text that were sent before */
    const char *finish; /* NULL: goes on */
};
struct api_usage {
    int64_t prompt, cached, written;
};
struct api_head {
    bool chat, first; /* first: of a choice's chunks */
    int logprobs;
    const char *id, *model;
    int64_t created;
    const struct tokenizer *t;
};
void api_put_whole(struct str *out, const struct api_head *h, const struct api_choice *c, int n,
                   const struct api_usage *u);
/* "data: {...}\n\n" with one choice; NULL: none, with usage. */
void api_put_chunk(struct str *out, const struct api_head *h, const struct api_choice *c, const struct api_usage *u);
void api_put_error(struct str *out, int status, const char *why);
void api_put_model(struct str *out, const char *model, int64_t created, int64_t room);
void api_put_models(struct str *out, const char *model, int64_t created, int64_t room); /* a list of that one */
/* Bytes that one token's log-probabilities and those of the `top` likeliest beside it take, until a whole answer was
 * taken: about, of a common token. */
size_t api_told_bytes(bool chat, int top);

#endif
