/* SPDX-License-Identifier: Apache-2.0 */
/* part_uses.h: the uses of each part, so that a walk over parts costs what they use and not parts times uses: a model
 * of 1,000 layers has thousands of both, and a part has few. Includes schedule/parts.h. Order: Local. */
#ifndef TUTTI_SCHEDULE_PART_USES_H
#define TUTTI_SCHEDULE_PART_USES_H

#include "schedule/parts.h"

struct part_uses {
    const struct rank_parts *p;
    int64_t *phase; /* [n_stages * PART_PHASES] where a phase's parts begin in `begin` */
    int64_t *begin; /* [parts + 1] where a part's uses begin in `use` */
    int *use;       /* indices into its stage's `use`, ascending */
};

void part_uses_init(struct part_uses *x, const struct rank_parts *p);
void part_uses_fini(struct part_uses *x);
/* Those of a part of a phase of a stage that is p's: *n of them. */
const int *part_uses_of(const struct part_uses *x, const struct stage_parts *g, int phase, int part, int *n);

#endif
