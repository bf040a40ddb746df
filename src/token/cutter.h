/* SPDX-License-Identifier: Apache-2.0 */
/* cutter.h: text as it streams in → pieces and added tokens, in order.
 *
 * Includes: base, tokenizer_impl.h. Order: Local; a cutter belongs to one thread.
 */
#ifndef TUTTI_TOKEN_CUTTER_H
#define TUTTI_TOKEN_CUTTER_H

#include "token/tokenizer_impl.h"

struct cutter_sink {
    void (*piece)(void *arg, const unsigned char *p, size_t n); /* a piece to merge in */
    void (*token)(void *arg, int32_t id);                       /* an added token */
    void *arg;
};

struct cutter;
struct cutter *cutter_new(const struct cut_rules *rules, struct cutter_sink sink);
void cutter_free(struct cutter *c);
int cutter_feed(struct cutter *c, const void *text, size_t n, struct err *e);
int cutter_end(struct cutter *c, struct err *e); /* end of a document; ready for the next */

#endif
