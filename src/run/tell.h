/* SPDX-License-Identifier: Apache-2.0 */
/* tell.h: the first lines of a run, in fixed words, "key: value, more": what it runs on and how (docs/cluster.md). The
 * same goes to starts.jsonl. What is probably not meant is a warning with its remedy. Floor 8.
 */
#ifndef TUTTI_RUN_TELL_H
#define TUTTI_RUN_TELL_H

#include "config/config.h"
#include "engine/engine.h"
#include "config/ranks.h"
#include "run/binding.h"

struct tell {
    const struct config *cfg;
    const struct ranks *ranks;
    const struct engine *engine;
    int64_t step; /* done before */
    const struct places *places;
    const struct binding *binding;
    double tier_put, tier_get; /* bytes a second (run/site.h) */
    const char *lr;            /* why the learning rate is what nobody named; NULL: somebody did */
    const struct epoch *epoch; /* run/epochs.h; NULL: run.elastic is off */
};
/* A file that cannot be written is a warning. Rank 0 tells. Local. */
void tell_start(const struct tell *t);

#endif
