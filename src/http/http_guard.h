/* SPDX-License-Identifier: Apache-2.0 */
/* http_guard.h: who may ask a server of this room, where it listens, and what every answer says. For http/ only.
 * Includes: base, libmicrohttpd.
 */
#ifndef TUTTI_HTTP_HTTP_GUARD_H
#define TUTTI_HTTP_HTTP_GUARD_H

#include <microhttpd.h>
#include <stdbool.h>

#include "base/err.h"

/* A socket that listens at an address and port that are nobody else's: the library would open one that others may
 * open again, and then each of two servers has some of the connections. *port: as asked; of 0 the one it got.
 * ERR_REQUEST: no numbers, or taken. */
int http_guard_listen(const char *address, int *port, bool *is6, int *fd, struct err *e);
/* 0: may go on; else the status. token NULL: by the name of this host only. */
int http_guard_refused(const char *token, struct MHD_Connection *c);
void http_guard_headers(struct MHD_Response *r, const char *type);

#endif
