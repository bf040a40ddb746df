/* SPDX-License-Identifier: Apache-2.0 */
/* state_compare.h: whether the state that an engine holds is the one that was saved, whatever layout either has: sums
 * of values that no layout changes (checkpoint/state_sum.h), of every tensor of the checkpoint that is held in its
 * type. So what happens to bytes behind their checksums, on their way to who holds them, is found, too. Floor 8.
 */
#ifndef TUTTI_KEEP_STATE_COMPARE_H
#define TUTTI_KEEP_STATE_COMPARE_H

#include "checkpoint/ckpt.h"
#include "config/ranks.h"
#include "engine/engine.h"

/* After loading; every byte of what this rank would write is read once.
 *   fails   ERR_CORRUPT on all ranks: names the tensors that are not what was saved. Collective(world) */
int state_compare(const struct engine *g, const struct ranks *r, const struct ckpt *c, struct err *e);
/* A number of the weights as they are, masters where there are any, that no layout changes. Collective(world). */
int state_of_weights(const struct engine *g, const struct ranks *r, uint64_t *out, struct err *e);

#endif
