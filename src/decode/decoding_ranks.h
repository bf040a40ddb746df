/* SPDX-License-Identifier: Apache-2.0 */
/* decoding_ranks.h: which part of a model each rank has that decodes it with others, and what the first one tells them.
 *
 * Ranks are pp x replicas x tp, tp fastest. Those of tp share out heads, the MLP's columns, the vocabulary and with the
 * heads the keys and values; those of pp the layers. A replica's first rank leads it: it chooses tokens, owns the
 * pages' bookkeeping and tells the others what to do with which rows (decoding_follow), so nobody else reads a request.
 * It has the last layers, because logits are wanted there: pp coordinate c is stage n_stages - 1 - c.
 *
 * Floor 8. Order: Collective(the replica's ranks), where not said otherwise.
 */
#ifndef TUTTI_DECODE_DECODING_RANKS_H
#define TUTTI_DECODE_DECODING_RANKS_H

#include "config/ranks.h"
#include "nn/decode.h"

struct decoding_ranks {
    struct ranks ranks;
    int tp, n_stages, stage; /* this rank's stage */
    bool leads;
};

/* world NULL: alone. ERR_REQUEST: the ranks are not replicas of tp x pp. Collective(world). */
int decoding_ranks_init(struct decoding_ranks *g, struct comm *world, int tp, int pp, struct err *e);
void decoding_ranks_fini(struct decoding_ranks *g);
/* Whether the model can be cut so; fills the layers of every stage, [n_stages]. Same(world). */
int decoding_ranks_split(const struct decoding_ranks *g, const struct model_config *m, struct model_stage *stage,
                         struct err *e);
/* Parameters are with the stages that use them. Local. */
void decoding_ranks_hold(const struct decoding_ranks *g, const struct model_config *m, const struct model_stage *stage,
                         struct param_table *t);

/* What the leader has them do. */
enum decoding_order { DECODING_END, DECODING_COPY, DECODING_COPY_KEPT, DECODING_STEP, DECODING_READ };
struct decoding_call {
    int64_t order;
    int64_t from, to;                       /* COPY: pages; COPY_KEPT: sequences */
    int64_t rows, wanted, n_parts, longest; /* STEP: rows of the step; most pages of a part, and of what was read for */
    int64_t reads;                          /* it. READ: rows: tokens; longest: their pages */
};
/* i32 words that follow a STEP: tokens [rows], positions [rows], wanted [wanted], runs [n_parts, RUN_PAGES +
 * longest], and of encoder and decoder as many of what was read, [n_parts, RUN_PAGES + reads]. A READ: tokens [rows],
 * pages [longest]. */
int64_t decoding_call_words(const struct decoding_call *c);
/* The leader's call reaches everybody. */
int decoding_tell(const struct decoding_ranks *g, struct decoding_call *c, struct err *e);
int decoding_tell_words(const struct decoding_ranks *g, int32_t *words, int64_t n, struct err *e);

#endif
