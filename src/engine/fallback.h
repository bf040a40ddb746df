/* SPDX-License-Identifier: Apache-2.0 */
/* engine/fallback.h: a layer whose products lose too much by rounding, look after look (engine/telemetry.h), is
 * computed without it from then on. To fall back is to have the products of the recipe's dtype (instr.when); no layer
 * comes back.
 *
 * A look is bad for a layer if any operand of it saturates by more than a share, or is moved by more than an error; so
 * many bad looks in a row make it fall back.
 *
 * Invariants
 *   1. What decides are figures that all ranks have agreed on: every rank runs the same layers without rounding.
 *   2. Which layers fell back, and bad looks so far, are in the checkpoint: a run that goes on, in whatever layout,
 *      decides as one that was not interrupted.
 * Floor 6. Order: as said.
 */
#ifndef TUTTI_ENGINE_FALLBACK_H
#define TUTTI_ENGINE_FALLBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/str.h"

struct engine;

struct fallback_config {
    int64_t after;           /* bad looks in a row; 0: no layer falls back */
    double saturated, error; /* more is bad */
};
struct fallback {
    int n;           /* layers; 0: none falls back */
    uint8_t *fallen; /* [n] */
    int32_t *bad;    /* [n] looks in a row so far */
    struct str said; /* which fell back in the step done last, and why; empty: none */
};

void fallback_new(struct engine *g); /* after recipes_rule */
void fallback_free(struct engine *g);
/* From the figures of a look that ranks have agreed on. Same(world). */
void fallback_decide(struct engine *g);
/* "3, 5"; "" where none fell back. */
void fallback_text(const struct fallback *f, struct str *out);
/* Into a checkpoint's extra, where there is something to tell, and from it; nothing there: as at the beginning. -1:
 * what is there is not of this model. */
void fallback_put(const struct fallback *f, struct json_out *o);
int fallback_take(struct fallback *f, const struct json *extra);

#endif
