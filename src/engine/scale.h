/* SPDX-License-Identifier: Apache-2.0 */
/* scale.h: the loss scale of fp16 (Micikevicius et al. 2018, "Mixed precision training"). The loss is multiplied by a
 * power of two, so that small gradients of activations do not vanish in fp16; gradients are divided by it where they
 * are used, before they are clipped. A step whose gradients are not finite is left out and the scale halved; after so
 * many good ones in a row it is doubled.
 *
 * Invariants
 *   1. What decides is the norm over all ranks and the loss over all ranks: every rank leaves out the same steps and
 *      has the same scale.
 *   2. All three numbers are in the checkpoint: a run that goes on decides as one that was not interrupted.
 * Floor 6. Order: Local.
 */
#ifndef TUTTI_ENGINE_SCALE_H
#define TUTTI_ENGINE_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

#define LOSS_SCALE_MOST 0x1p32

struct loss_scale_config { /* all zero: there is none */
    double first, least;
    int64_t grow_every;
};
struct loss_scale {
    double now;      /* 1 without a scale */
    int64_t good;    /* steps since it changed or one was left out */
    int64_t skipped; /* steps left out, in all */
};

void loss_scale_init(struct loss_scale *s, const struct loss_scale_config *c);
/* After a step with it. False: it would fall below the least one, and is left as it is. */
bool loss_scale_after(struct loss_scale *s, const struct loss_scale_config *c, bool finite);
/* Into and from a checkpoint's extra; what is not there, or is none that could have been written, leaves s: -1. */
void loss_scale_put(const struct loss_scale *s, struct json_out *o);
int loss_scale_take(struct loss_scale *s, const struct json *extra);

#endif
