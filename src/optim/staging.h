/* SPDX-License-Identifier: Apache-2.0 */
/* staging.h: steps arrays that wait elsewhere (array.h: away), a stretch at a time through memory on the device:
 *
 *     fetch       0 | 1 | 2 | 3 ...
 *     step            0 | 1 | 2 ...
 *     put away            0 | 1 ...
 *
 * Three slots, each for a stretch of all operands of an optimizer; copies run on the arrays' own streams, behind events
 * of the stream that computes. What is put away last is under way when a call returns: the streams' next copies come
 * after it. Elementwise, so the bits are those of one stretch.
 * Floors 0-3. Order: Local.
 */
#ifndef TUTTI_OPTIM_STAGING_H
#define TUTTI_OPTIM_STAGING_H

#include "optim/optim.h"

struct staging;

/* *out NULL where nothing that is stepped waits elsewhere. */
int staging_new(struct staging **out, const struct store *s, struct stream *st, struct err *e);
void staging_free(struct staging *x); /* NULL is fine */

/* How a stretch is stepped whose operands are on the device. */
typedef void staging_step_fn(const struct optim_call *call, struct optim_stretch r);
/* Begins a stretch, and steps the one before it; the last one is stepped by staging_finish. */
void staging_stretch(struct staging *x, const struct optim_call *call, struct optim_stretch r, staging_step_fn *step);
void staging_finish(struct staging *x, const struct optim_call *call, staging_step_fn *step);

#endif
