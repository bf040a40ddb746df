/* SPDX-License-Identifier: Apache-2.0 */
/* http_calls.h: a server of calls that take their time: a body comes in, an answer goes out now, later, or piece by
 * piece, from any thread. http_serve.h is the one for pages that are made at once.
 *
 * Nobody who is slow holds anybody up: one thread carries all connections, what is to be sent waits in memory up to
 * `most_unsent` bytes a call, and a client that takes nothing for `timeout_s` is dropped. A whole request is there
 * within `request_s`, and half of the places are for those who have shown their key (http_places.h); bodies under way
 * have the memory of a few of the largest. Who writes learns from http_call_write that its client is gone.
 *
 * Who may call: without a key only by a name of this host (so that a page from elsewhere cannot ask through a person's
 * browser); with one, whoever sends it as a bearer's token. `open` says which paths ask for no key. A body is taken as
 * application/json only, which a form of another page cannot send.
 * Floor 1; includes base. Order: Local; calls from any thread.
 */
#ifndef TUTTI_HTTP_HTTP_CALLS_H
#define TUTTI_HTTP_HTTP_CALLS_H

#include "base/err.h"
#include "base/str.h"

struct http_call;
/* On the server's thread, when the whole request is there. Whoever gets it answers it, once: http_call_answer, or
 * http_call_begin, any number of http_call_write, http_call_end. */
typedef void http_call_fn(void *ctx, struct http_call *c);

struct http_calls_config {
    const char *address;                       /* numbers, IPv4 or IPv6 */
    int port;                                  /* 0: a free one */
    const char *key;                           /* NULL: none; copied */
    int max_clients;                           /* connections; 0: 128 */
    int timeout_s;                             /* 0: 30 */
    int request_s;                             /* 0: timeout_s */
    size_t max_body;                           /* 0: 4 MiB */
    size_t most_unsent;                        /* 0: 1 MiB */
    bool (*open)(void *ctx, const char *path); /* NULL: none */
    /* An answer that the server gives itself: the body of an error of this status. */
    void (*refuse)(void *ctx, int status, const char *why, struct str *body);
    http_call_fn *call;
    void *ctx;
};

struct http_calls;
/* ERR_REQUEST: no such address, or the port is taken. */
int http_calls_open(struct http_calls **out, const struct http_calls_config *c, struct err *e);
int http_calls_port(const struct http_calls *s);
/* NULL is fine. All calls must have been answered. */
void http_calls_close(struct http_calls *s);

/* Bytes of whole answers of its server that their clients have not taken yet. */
size_t http_calls_held(const struct http_call *c);

const char *http_call_method(const struct http_call *c);
const char *http_call_path(const struct http_call *c);            /* begins with / */
const char *http_call_body(const struct http_call *c, size_t *n); /* n bytes and a NUL */
void http_call_drop_body(struct http_call *c);                    /* it was read: its memory is others' */

void http_call_answer(struct http_call *c, int status, const char *type, const char *body, size_t n);
void http_call_take(struct http_call *c, int status, const char *type,
                    struct str *body); /* the same; body is empty then */
void http_call_begin(struct http_call *c, int status, const char *type);
/* false: the client is gone, or so far behind that it is given up; call http_call_end then. */
bool http_call_write(struct http_call *c, const char *bytes, size_t n);
void http_call_end(struct http_call *c); /* the last use of c */
bool http_call_gone(struct http_call *c);

#endif
