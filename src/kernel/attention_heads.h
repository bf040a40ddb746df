/* SPDX-License-Identifier: Apache-2.0 */
/* attention_heads.h: which key head a query head reads, for every kernel family. A call may hold any range of the
 * model's heads: query heads from head_first, key heads from kv_first, `group` query heads per key head (0: what the
 * call's own numbers make). Floors 0-1 and kernel.h only. Order: Local.
 */
#ifndef TUTTI_KERNEL_ATTENTION_HEADS_H
#define TUTTI_KERNEL_ATTENTION_HEADS_H

#include "kernel/kernel.h"

static inline int64_t attention_group(const struct attention_attrs *at)
{
    return at->group ? at->group : at->heads / at->kv_heads;
}

/* The key head, of those in the call, that query head h of the call reads. */
static inline int64_t attention_kv_of(const struct attention_attrs *at, int64_t h)
{
    return (at->head_first + h) / attention_group(at) - at->kv_first;
}

/* The query heads [*lo, *hi) of the call that read its key head g; none: *lo == *hi. */
static inline void attention_heads_of(const struct attention_attrs *at, int64_t g, int64_t *lo, int64_t *hi)
{
    int64_t group = attention_group(at);
    *lo = (at->kv_first + g) * group - at->head_first;
    *hi = *lo + group;
    *lo = *lo < 0 ? 0 : *lo;
    *hi = *hi > at->heads ? at->heads : *hi;
    if (*lo > *hi) *lo = *hi = 0;
}

/* The scores of the call's heads that have no key; NULL: there are none. */
static inline const struct view *attention_sinks(const struct kernel_call *c)
{
    int at = c->op == OP_ATTENTION_CACHED ? CACHED_SINK : ATTENTION_SINK;
    return c->n_in > at && c->in[at].nd ? &c->in[at] : NULL;
}

/* Whether documents hide tokens from each other in this call (not a cached one's). */
static inline bool attention_has_docs(const struct kernel_call *c)
{
    return c->n_in > ATTENTION_DOC && c->in[ATTENTION_DOC].nd;
}

/* The input token_W of ATTENTION_PART and CONTEXT: which token of its sequence stands at each place, where documents
 * stand in another order (layout/document_order.h); documents are there then. A window reaches back so many tokens, not
 * places; all else asks only which of two tokens of a document comes first, which their places say. NULL: the token of
 * the place's number. */
enum { ATTENTION_TOKEN = ATTENTION_SINK + 1 };
static inline const int32_t *attention_tokens(const struct kernel_call *c)
{
    bool parts = c->op == OP_ATTENTION_PART || c->op == OP_CONTEXT;
    return parts && c->n_in > ATTENTION_TOKEN && c->in[ATTENTION_TOKEN].nd ? (const int32_t *)c->in[ATTENTION_TOKEN].p
                                                                           : NULL;
}

/* Dropout counts pairs by the model's heads: row h of sequence `b` among heads_all. */
static inline uint64_t attention_drop_row(const struct attention_attrs *at, uint64_t b, uint64_t h)
{
    uint64_t all = (uint64_t)(at->heads_all ? at->heads_all : at->heads);
    return b * all + (uint64_t)at->head_first + h;
}

#endif
