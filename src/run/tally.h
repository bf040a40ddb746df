/* SPDX-License-Identifier: Apache-2.0 */
/* tally.h: the few numbers of a step that are sums over everything: trained tokens, loss, gradient norm. Over all ranks,
 * whatever each of them holds.
 *
 * Usually sums run over this rank's microbatches, then over ranks in rank order. With numerics.exact_order the loss of
 * every microbatch is kept and they are added in the batch's order, and the norm is summed without rounding: no
 * data-parallel layout changes either.
 * Floor 6. Order: Collective over all ranks.
 */
#ifndef TUTTI_RUN_TALLY_H
#define TUTTI_RUN_TALLY_H

#include "run/engine.h"

/* Bytes of the engine's stat buffer, and where in it a microbatch adds its loss. */
size_t tally_bytes(const struct engine_config *c);
void *tally_at(const struct engine *g, int microbatch);

/* Sum of the loss in nats over the batch, and tokens it was summed over. */
void tally_loss(struct engine *g, double *nats, double *tokens);
/* Global L2 norm of the gradients. */
double tally_norm(struct engine *g);

#endif
