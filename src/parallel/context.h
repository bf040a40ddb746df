/* SPDX-License-Identifier: Apache-2.0 */
/* context.h: context parallelism: one sequence's tokens on several ranks, and attention that sees all of them.
 *
 * Every rank of cp holds the rows that layout/sequence.h gives it, of every sequence of the microbatch. All operations
 * but attention work on rows and need nothing from others; attention is a collective row (OP_CONTEXT):
 *
 *   cp = outer x inner ranks; rank r is r / inner among the outer and r % inner among the inner ones.
 *   1. the inner ranks exchange heads for rows: each then has some of the heads, of all rows of the inner ranks
 *      (all-to-all; Jacobs et al. 2023, "DeepSpeed Ulysses");
 *   2. keys and values of the outer ranks visit: around a ring, each block computed while the next is under way (Liu et
 *      al. 2023, "Ring Attention"), or all at once (all-gather; Llama 3); partial results join by online softmax;
 *   3. the inner ranks exchange back.
 *
 *   cp_algorithm   inner        gather     sent per rank and layer, forward, S tokens on each of n ranks
 *   ring           1            no         (n - 1) S (k + v)
 *   all_gather     1            yes        (n - 1) S (k + v), in one message
 *   all_to_all     n            -          (n - 1)/n S (q + k + v + o)
 *   two_level      in between   no         (inner - 1)/inner S (q + k + v + o) + (outer - 1) S (k + v)
 *   (q, k, v, o: bytes of a token's heads; key heads that several inner ranks need are sent to each.)
 *
 * Backward does the same with gradients: dk and dv, f32, follow the ring and come home, or are reduce-scattered. q, k,
 * v are not kept a second time: they travel again. Any number of heads, any length; a rank may get no head at all.
 * Order: Collective over cp when the program runs. Floors 0-3.
 */
#ifndef TUTTI_PARALLEL_CONTEXT_H
#define TUTTI_PARALLEL_CONTEXT_H

#include "parallel/parallel.h"
#include "parallel/run.h"

/* Attention of tokens that are S0 over cp (and on no other axis). s.seq: tokens of a whole sequence; doc_W: document
 * ids of all tokens of the microbatch as they stand, or none; sink_H: a sink per head, or none; token_W: which token of
 * its sequence stands where, or none: in order. On cp of size 1 it is op_attention, and tokens are in order. */
tid par_attention(struct tape *t, const struct par *p, tid q, tid k, tid v, tid doc_W, tid sink_H, tid token_W,
                  struct attention_attrs s, const char *name);

/* Carries OP_CONTEXT out, both phases, and its scratch; called by parallel/run.c. */
void context_run(struct par_run *x, struct stream *s, const struct kernel_call *c);
size_t context_scratch(const struct kernel_table *kt, const struct kernel_call *c);

#endif
