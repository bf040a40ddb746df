/* SPDX-License-Identifier: Apache-2.0 */
/* health.h: whether a state is worth publishing. A step can have a finite loss and a finite gradient norm and leave
 * weights that are not finite. A checkpoint of them would be the newest one, and later ones of the kind would push the
 * good ones out. Floor 6. Order: Local.
 */
#ifndef TUTTI_ENGINE_HEALTH_H
#define TUTTI_ENGINE_HEALTH_H

#include "engine/engine.h"

/* A tensor whose elements' root mean square is above this has diverged: trained ones have some tens at most. */
#define HEALTH_RMS_LIMIT 1e4

/* What this rank writes of the arrays that are saved: all finite, and weights of a size that training leaves behind.
 *   fails   ERR_NUMERIC naming the tensor and what is wrong with it
 *   cost    one pass over the pieces, at the memory's speed: a few per cent of writing them */
int health_check(const struct engine *g, struct err *e);
/* The first of a span that is not finite, wherever it waits; -1: all are. On an array's own stream, or st. */
int64_t health_nonfinite(const struct engine *g, const struct array *a, const struct array_span *x, struct stream *st);

#endif
