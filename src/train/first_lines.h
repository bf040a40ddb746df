/* SPDX-License-Identifier: Apache-2.0 */
/* first_lines.h: the first lines of a run, in fixed words, "key: value, more": what it runs on and how
 * (docs/cluster.md). The same goes to starts.jsonl. What is probably not meant is a warning with its remedy. Floor 10.
 */
#ifndef TUTTI_TRAIN_FIRST_LINES_H
#define TUTTI_TRAIN_FIRST_LINES_H

#include "config/config.h"
#include "engine/engine.h"
#include "config/ranks.h"
#include "site/binding.h"

struct first_lines {
    const struct config *cfg;
    const struct ranks *ranks;
    const struct engine *engine;
    int64_t step; /* done before */
    const struct places *places;
    const struct binding *binding;
    double tier_put, tier_get; /* bytes a second (site/site.h) */
    const char *lr;            /* why the learning rate is what nobody named; NULL: somebody did */
    const struct epoch *epoch; /* train/epochs.h; NULL: run.elastic is off */
};
/* A file that cannot be written is a warning. Rank 0 tells. Local. */
void first_lines_tell(const struct first_lines *t);

#endif
