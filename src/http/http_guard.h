/* SPDX-License-Identifier: Apache-2.0 */
/* http_guard.h: who may ask a server of this room, where it listens, and what every answer says. For http/ only.
 * Includes: base, libmicrohttpd.
 */
#ifndef TUTTI_HTTP_HTTP_GUARD_H
#define TUTTI_HTTP_HTTP_GUARD_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>

#include "base/err.h"

struct http_address {
    bool is6;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};
/* ERR_REQUEST: not numbers. */
int http_guard_address(struct http_address *a, const char *text, int port, struct err *e);
const struct sockaddr *http_guard_sockaddr(const struct http_address *a);
/* 0: may go on; else the status. token NULL: by the name of this host only. */
int http_guard_refused(const char *token, struct MHD_Connection *c);
void http_guard_headers(struct MHD_Response *r, const char *type);

#endif
