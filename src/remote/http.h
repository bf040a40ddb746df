/* SPDX-License-Identifier: Apache-2.0 */
/* http.h: one request, once. Who tries again, and what an answer means for an object, is said elsewhere (attempt.c).
 * libcurl is named in http.c only: redirects, proxies of the environment, TLS and its certificates
 * (SSL_CERT_FILE, AWS_CA_BUNDLE) are as libcurl has them; certificates are always verified.
 *
 * Invariants
 *   1. From https:// no redirect leads to http://. No more than 8 are followed, and none with a signature.
 *   2. A server that connects slowly, or sends nothing, or less than 1 KiB/s, for stall_s, ends the request.
 *   3. The body of an answer that is an error is not given to `body`.
 * Includes: base. Order: Local; one thread at a time uses a struct http.
 */
#ifndef TUTTI_REMOTE_HTTP_H
#define TUTTI_REMOTE_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct http; /* a handle that keeps its connection */
struct http *http_new(void);
void http_free(struct http *h);

struct http_reply {
    int status;           /* of the last answer; 0: none came */
    int64_t length;       /* Content-Length; -1: not said */
    int64_t first;        /* where the bytes begin: of Content-Range; -1: not said */
    int64_t total;        /* of the whole object: of Content-Range; -1: not said */
    char etag[200];       /* as it stands, quotes included; "": none */
    char changed[64];     /* Last-Modified; "": not said */
    char region[64];      /* x-amz-bucket-region */
    bool sealed;          /* x-amz-server-side-encryption with a key: the ETag is not of the bytes */
    double retry_after_s; /* -1: not said */
    int64_t got;          /* bytes of the body, errors' included */
    char said[2048];      /* the beginning of an error's body */
};

/* What became of a request, apart from the status that a server gave it. */
enum http_end {
    HTTP_ANSWERED,
    HTTP_FAILED,  /* the network or the server, which may be there again later */
    HTTP_REFUSED, /* what trying again does not mend: a certificate, an address */
    HTTP_ENOUGH,  /* `body` wanted no more */
    HTTP_STOPPED  /* *give_up or *closing */
};

struct http_request {
    const char *url;
    const char *const *header; /* "Name: value" */
    int n_headers;
    const char *method; /* NULL: GET */
    const void *send;   /* the body of a PUT or POST, n_send bytes; NULL: none */
    size_t n_send;
    int64_t first, n;   /* Range: bytes first .. first + n - 1; n 0: none is asked for */
    bool follow, as_is; /* redirects; the path with its dots, as it was signed */
    double connect_s, stall_s;
    double most_s; /* all of it takes no longer, however fast bytes come, also those of an error; 0: it may */
    /* Each part of the body, with the head of the answer: false ends the request. */
    bool (*body)(void *arg, const struct http_reply *r, const void *p, size_t n);
    void *arg;
    const atomic_int *give_up;  /* NULL: never */
    const atomic_bool *closing; /* NULL: never */
};

/* why: one line, where the end is HTTP_FAILED or HTTP_REFUSED; says nothing of the address. */
enum http_end http_ask(struct http *h, const struct http_request *q, struct http_reply *r, char why[300]);

#endif
