/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h: the weights that a run began with, beside those that it trains: what a policy is held to
 * (train/trainer_policy.c).
 *
 * They are kept as this rank holds them, in any layout, of the parameters that move: beside adapters the base is the
 * base of both, and what is kept is theirs alone. To compute with them they change places with the weights, and change
 * back. Bytes: the moving part of the weights here, and a stretch that is on its way.
 *
 * Floor 6. Order: Local, when no step runs; keep and swap wait for what was published, so all ranks call them.
 */
#ifndef TUTTI_ENGINE_REFERENCE_H
#define TUTTI_ENGINE_REFERENCE_H

#include "device/device.h"

struct engine;
struct reference_weights {
    struct buffer kept, moving; /* dev NULL: there are none */
};

int reference_new(struct engine *g, struct err *e); /* engine_config.reference */
void reference_free(struct engine *g);
/* The weights as they are now are the reference. */
void reference_keep(struct engine *g);
/* Weights become reference, reference weights; a second call is the way back. Only engine_evaluate in between. */
void reference_swap(struct engine *g);

#endif
