/* SPDX-License-Identifier: Apache-2.0 */
/* service.h: a model behind the routes of OpenAI's API: /v1/completions, /v1/chat/completions, /v1/models, and /health,
 * /metrics (Prometheus) and / (a page to chat with).
 *
 * The server's thread carries connections; two at a desk (serve/desk.h) read and check requests and put them into a
 * queue of at most `queue` answers; the service's own (whoever calls service_run) begins what fits, feeds the model
 * step by step (decode/batching.h) and writes what comes. A request ends when its answers do, when its client is gone
 * or takes nothing, or after `time_s`. Log-probabilities that wait for the end of an answer, or for who takes it, have
 * `told_bytes` together: what would need more by itself is refused, what would now is told to come back. Order: Local.
 */
#ifndef TUTTI_SERVE_SERVICE_H
#define TUTTI_SERVE_SERVICE_H

#include "data/chat.h"
#include "decode/batching.h"

struct service_config {
    struct decoding *decoding;
    const struct tokenizer *tokenizer;
    const struct chat *chat;   /* NULL: no chat completions */
    const char *model;         /* the name it has in requests */
    const char *address, *key; /* key NULL: loopback only, ERR_REQUEST elsewhere */
    int port;                  /* 0: a free one */
    int queue;                 /* answers under way, of all requests; more are told to come back later */
    size_t told_bytes;         /* 0: 64 MiB */
    int64_t max_tokens;        /* of an answer */
    size_t max_body;
    int time_s;          /* of a request, from when it came */
    int clients, idle_s; /* connections; seconds that one may do nothing */
    int request_s;       /* in which a request is there, head and body; 0: idle_s */
};
struct service;
int service_open(struct service **out, const struct service_config *c, struct err *e);
int service_port(const struct service *s);
/* Until `stop` says so (NULL: never) and what was begun is done, or told that it is not, at most `grace_s` later. */
int service_run(struct service *s, bool (*stop)(void *ctx), void *ctx, int grace_s, struct err *e);
void service_close(struct service *s); /* NULL is fine */

#endif
