/* SPDX-License-Identifier: Apache-2.0 */
/* http_serve.h: a small HTTP server beside other work: GET and HEAD of pages that a function makes. The library behind
 * it (libmicrohttpd) is named in http_serve.c only.
 *
 * Invariants
 *   1. One thread of its own answers all clients; nobody else ever waits for one. A client that is slow, silent or gone
 *      is dropped after timeout_s.
 *   2. At most max_clients at once, and of those who have not shown their token some (http_places.h); a request is
 *      there within timeout_s; its lines and headers have 16 KiB; it has no body. What is beyond that gets an error or
 *      is cut off.
 *   3. With a token every request carries it (Authorization: Bearer, or ?token=), or gets 401; compared in constant
 *      time. Without one only requests that name this host as localhost or a loopback address are answered, so that a
 *      page from elsewhere cannot ask through a person's browser.
 * Floor 1; includes base. Order: Local.
 */
#ifndef TUTTI_HTTP_HTTP_SERVE_H
#define TUTTI_HTTP_HTTP_SERVE_H

#include "base/err.h"
#include "base/str.h"

struct http_answer {
    int status;       /* 200 unless set */
    const char *type; /* of the body; for good */
    struct str body;  /* freed by the server */
};
/* path: as asked, decoded, without the query. On the server's thread. */
typedef void http_answer_fn(void *ctx, const char *path, struct http_answer *out);

struct http_serve_config {
    const char *address; /* numbers, IPv4 or IPv6 */
    int port;            /* 0: a free one */
    const char *token;   /* NULL: none; copied */
    int max_clients;     /* 0: 32 */
    int timeout_s;       /* 0: 10 */
    http_answer_fn *answer;
    void *ctx;
};

struct http_server;
/* ERR_REQUEST: no such address, or the port is taken. */
int http_serve_open(struct http_server **out, const struct http_serve_config *c, struct err *e);
int http_serve_port(const struct http_server *s);
void http_serve_close(struct http_server *s); /* NULL is fine; waits for the answer that is being made */

#endif
