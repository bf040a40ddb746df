/* SPDX-License-Identifier: Apache-2.0 */
/* looks.h: what metrics and the progress line say of a look at rounding (engine/telemetry.h). Floor 8. Order: Local. */
#ifndef TUTTI_RUN_LOOKS_H
#define TUTTI_RUN_LOOKS_H

#include "base/json.h"
#include "engine/fallback.h"
#include "engine/telemetry.h"

struct looks { /* of a step without a look: n is 0 */
    struct telemetry_row *row;
    int n;
};
/* "rounded": an object per product and operand, with lists over layers. */
void looks_put(const struct looks *l, struct json_out *o);
/* "  rounding moves up to 5.1 % (...), cuts off up to 0.2 % (...)"; "" without a look. */
void looks_progress(const struct looks *l, char *out, size_t n);
/* "fallen_back": [3, 5], layers that are computed in bf16 from the next step on, where there are any. */
void looks_put_fallen(const struct fallback *f, struct json_out *o);
void looks_free(struct looks *l);

#endif
