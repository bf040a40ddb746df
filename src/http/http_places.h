/* SPDX-License-Identifier: Apache-2.0 */
/* http_places.h: who has a place at a server, for how long, and who has to leave it. The library drops a client that is
 * silent; one that sends a byte now and then it would keep for ever, and whoever does that three hundred times keeps
 * everybody else out before a key was asked for. For http/ only.
 *
 * Invariants
 *   1. A request, head and body, is there `request_s` after its connection was made, or after the last answer on it; an
 *      answer that is whole is taken by a clock, too. Whoever is later is cut off.
 *   2. Who has not shown yet that he may ask holds at most half of the places, and of one address a quarter of them.
 *      The oldest of the address that has the most goes first; nobody is cut off so within his first second.
 *   3. There is room for a few connections beyond the places, so that a new one can push an old one out.
 * A thread of its own looks, a few times a second; it cuts by shutting the socket down, which the library's thread
 * sees. Includes: base, libmicrohttpd. Order: Local; any thread.
 */
#ifndef TUTTI_HTTP_HTTP_PLACES_H
#define TUTTI_HTTP_HTTP_PLACES_H

#include <microhttpd.h>

#include "base/err.h"

struct http_places;
/* ERR_MEMORY: no thread. */
int http_places_open(struct http_places **out, int most, int request_s, struct err *e);
void http_places_close(struct http_places *p); /* when the library holds no connection any more; NULL is fine */
unsigned http_places_limit(const struct http_places *p); /* connections that the library takes */
/* For MHD_OPTION_NOTIFY_CONNECTION, with the places. */
void http_places_connection(void *places, struct MHD_Connection *c, void **of,
                            enum MHD_ConnectionNotificationCode what);
void http_places_may(struct MHD_Connection *c);                   /* its head is there, and it may ask */
void http_places_asked(struct MHD_Connection *c);                 /* the request is there: no clock runs */
void http_places_answers(struct MHD_Connection *c, size_t bytes); /* a whole answer of so many bytes is to be taken */
void http_places_again(struct MHD_Connection *c);                 /* the answer was taken: the next request may come */

#endif
