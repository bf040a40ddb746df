/* SPDX-License-Identifier: Apache-2.0 */
/* engine/balance.h: how evenly the routers spread tokens over experts: sums of a step over all ranks, reported per
 * layer, and the biases that even the load out without a loss (DeepSeek-V3, section 2.1.2; Wang et al. 2024): after
 * each step the bias of an expert that had more than the mean goes down by a fixed amount, of one that had less, up.
 *
 * Biases are parameters that are not stepped (state/param.h): initialised, shared out, saved and exported like all
 * others, and left alone by the optimizer. Checkpoints have its arrays for them all the same: zeros.
 * Floor 6. Order: Collective where said.
 */
#ifndef TUTTI_ENGINE_BALANCE_H
#define TUTTI_ENGINE_BALANCE_H

#include "engine/engine.h"

/* Bytes of the sums on the device; 0 without experts. */
size_t balance_bytes(const struct engine_config *c);
/* Binds each layer's part of the buffer. */
void balance_bind(struct engine *g);
/* Sums of the step that just ran, over all ranks; fills r's two losses and its rounds. Collective(world). */
void balance_read(struct engine *g, struct engine_report *r);
/* Whether biases move by loads. Local. */
bool balance_moves(const struct engine *g);
/* Moves the biases held here; before parameters are published. Local. */
void balance_step(struct engine *g);
/* Picks of layer's experts in the last step, over all ranks: [experts], or NULL: a layer without experts. */
const double *balance_load(const struct engine *g, int layer);
/* The largest share of a layer's picks that one expert had, times the number of experts: 1 is even; over all layers. */
double balance_worst(const struct engine *g);

#endif
