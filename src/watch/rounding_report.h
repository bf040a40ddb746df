/* SPDX-License-Identifier: Apache-2.0 */
/* rounding_report.h: what metrics and the progress line say of a look at rounding (engine/telemetry.h). Floor 9. Order:
 * Local. */
#ifndef TUTTI_WATCH_ROUNDING_REPORT_H
#define TUTTI_WATCH_ROUNDING_REPORT_H

#include "base/json.h"
#include "engine/fallback.h"
#include "engine/telemetry.h"

struct rounding_report { /* of a step without a look: n is 0 */
    struct telemetry_row *row;
    int n;
};
/* "rounded": an object per product and operand, with lists over layers. */
void rounding_report_put(const struct rounding_report *l, struct json_out *o);
/* "  rounding moves up to 5.1 % (...), cuts off up to 0.2 % (...)"; "" without a look. */
void rounding_report_progress(const struct rounding_report *l, char *out, size_t n);
/* "fallen_back": [3, 5], layers that are computed in bf16 from the next step on, where there are any. */
void rounding_report_put_fallen(const struct fallback *f, struct json_out *o);
void rounding_report_free(struct rounding_report *l);

#endif
