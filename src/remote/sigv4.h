/* SPDX-License-Identifier: Apache-2.0 */
/* sigv4.h: AWS Signature Version 4: a request's text, hashed and keyed, shows that its sender knows the secret, and for
 * which day, region and service. Pure functions: the date comes in.
 * Includes: base. Order: Local. */
#ifndef TUTTI_REMOTE_SIGV4_H
#define TUTTI_REMOTE_SIGV4_H

#include "base/str.h"

struct sigv4_keys {
    const char *id, *secret;
};
struct sigv4_header {
    const char *name, *value; /* the name in small letters */
};
struct sigv4_request {
    const char *method;
    const char *path;  /* percent-encoded, as it is sent; "/" at least */
    const char *query; /* percent-encoded, as it is sent, in any order: "a=1&b="; "" without */
    const char *date;  /* "20130524T000000Z" */
    const char *region, *service;
    const char *payload; /* SHA-256 of the body, in text */
    const struct sigv4_header *header;
    int n_headers; /* all that are signed, host among them, sorted by name */
};

/* The value of the request's Authorization header. */
void sigv4_authorization(const struct sigv4_request *r, const struct sigv4_keys *k, struct str *out);

#endif
