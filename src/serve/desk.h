/* SPDX-License-Identifier: Apache-2.0 */
/* desk.h: threads that read requests (JSON, template, tokenizer), so that the server's one thread, which carries all
 * connections, never waits for that. A line of at most `most` calls. Floor 11. Order: Local; any thread.
 */
#ifndef TUTTI_SERVE_DESK_H
#define TUTTI_SERVE_DESK_H

#include <stdbool.h>

#include "base/err.h"
#include "http/http_calls.h"

struct desk;
/* read: what is done with a call that comes to its turn, over: with one that does not any more; both answer it, or hand
 * it on. ERR_MEMORY: no threads. */
int desk_open(struct desk **out, int threads, int most, void (*read)(void *ctx, struct http_call *c),
              void (*over)(void *ctx, struct http_call *c), void *ctx, struct err *e);
bool desk_put(struct desk *d, struct http_call *c); /* false: too many wait, or it is shut; the call is the caller's */
void desk_shut(struct desk *d);                     /* ends what is read now, tells the others; nothing comes in then */
void desk_free(struct desk *d);                     /* shut before; NULL is fine */

#endif
