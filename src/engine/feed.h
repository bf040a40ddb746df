/* SPDX-License-Identifier: Apache-2.0 */
/* engine/feed.h: from a batch on the host to its microbatches on the device, field by field of the table
 * (model/batch_fields.h). Floor 6. Order: Local, but feed_info.
 */
#ifndef TUTTI_ENGINE_FEED_H
#define TUTTI_ENGINE_FEED_H

#include "engine/engine.h"

size_t feed_bytes(const struct engine *g); /* of the buffer of all microbatches' fields */
/* Copies the fields of this rank's part to the device, on g->feeding: after the last reader of the batch before, and
 * before whatever is enqueued on g->stream from now on. Sequences that do not exist get targets of -1; what their other
 * fields hold does not matter. */
void feed_batch(struct engine *g, const struct engine_batch *b);
/* A microbatch is a view of the batch: no copy. */
void feed_bind(struct engine *g, int microbatch);
/* Sequences of a microbatch of the batch that was fed which do not exist: its last ones. */
int64_t feed_blank(const struct engine *g, int microbatch);
/* Where row i of this rank's rows of a sequence stands in it. */
int64_t feed_place(const struct engine *g, int64_t i);
/* Which of a sequence's tokens that is: the one at this place, unless documents are in another order (document_order.h)
 * since feed_info. */
int64_t feed_token(const struct engine *g, int64_t sequence, int64_t i);
/* What kernels are told of a step with this batch (kernel.h). Called before feed_batch of the same batch, for it also
 * puts documents in order. The loss is divided by the trained tokens of all ranks, *n_trained: one number, known before
 * forward. Collective over all ranks. */
struct step_info feed_info(struct engine *g, const struct engine_batch *b, int64_t step, bool training,
                           int64_t *n_trained);

#endif
