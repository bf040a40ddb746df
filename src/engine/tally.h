/* SPDX-License-Identifier: Apache-2.0 */
/* tally.h: the few numbers of a step that are sums over everything: trained tokens, loss, gradient norm. Over all
 * ranks, whatever each of them holds.
 *
 * Usually sums run over this rank's microbatches, then over ranks in rank order. With numerics.exact_order the loss of
 * every microbatch is kept and they are added in the batch's order, and the norm is summed without rounding: no
 * data-parallel layout changes either.
 * Floor 6. Order: Collective over all ranks.
 */
#ifndef TUTTI_ENGINE_TALLY_H
#define TUTTI_ENGINE_TALLY_H

#include "engine/engine.h"

/* The buffers for them: stat, norm, words, and the host's, after balance has its bytes. */
int tally_buffers(struct engine *g, struct err *e);
/* Where in stat a microbatch adds its loss. */
void *tally_at(const struct engine *g, int microbatch);

/* Enqueues: they begin at zero. Local. */
void tally_zero(struct engine *g);
/* Enqueues the norm of the gradients over all ranks, and whether that and all losses are finite: the words that updates
 * go by (kernel/words.h). Collective(replicate, model_group). */
void tally_norm_make(struct engine *g);
/* Brings what this rank has of a step to the host: loss, routers' load, words. The host waits here and nowhere else in
 * a step, but where a message hangs on numbers: tally_goes, parallel/expert.c. Local. */
void tally_read(struct engine *g);
/* What it brought of the routers' load; NULL on the null device. Local. */
const double *tally_balance(const struct engine *g);
/* Sums over the batch: the loss in nats, the tokens (of pictures: labels) it was summed over, and those of pictures
 * whose class was right. */
struct tally {
    double nats, tokens, right;
    struct {
        double nats, tokens;
    } ahead[MTP_DEPTH_MOST]; /* of what predicts further tokens */
};
struct tally tally_loss(struct engine *g);
/* engine_sequence_nats. */
void tally_sequences(struct engine *g, double *nats);
/* engine_token_nats. */
void tally_tokens(struct engine *g, double *nats);
/* Global L2 norm of the gradients, of the loss itself: what tally_read brought. Whether updates are made of them: asked
 * before that it waits for the words, not for updates. On the null device 0, yes. Local. */
double tally_norm(const struct engine *g);
bool tally_goes(struct engine *g);
/* Enqueues what the host knows of an update: the rate, and how many were made before. Local. */
void tally_update_words(struct engine *g, double lr, int64_t made);
/* The sum of squares of this rank's gradients. Waits. Local. */
double tally_squares(const struct engine *g);
/* Of n numbers on the device the sum of squares; where the first is that is not finite, -1: all are. Waits for st.
 * Between steps, as tally_squares: what a step has of its norm is overwritten. Local. */
double tally_squares_of(const struct engine *g, struct stream *st, const float *x, int64_t n);
int64_t tally_first_nonfinite(const struct engine *g, struct stream *st, const void *x, enum dtype dtype, int64_t n);

#endif
