/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h: the choices of routers, written down in one run and repeated in others, so that what is compared are
 * numbers.
 *
 * In bf16 a token whose best experts have nearly equal scores goes elsewhere when sums run in another order; from there
 * on two runs are about different functions, and a large difference says nothing. So one rank writes down which experts
 * each token of each layer and step was given, and the other layouts are given the same ones: their routers choose
 * freely first (how often otherwise is counted), then gates are computed again for the experts of the oracle, by the
 * same kernel. In fp32 nothing is repeated, only counted: a choice that differs there is a finding.
 * Floor 11. Order: Local; ranks that are threads share one struct replay.
 */
#ifndef TUTTI_VERIFY_REPLAY_H
#define TUTTI_VERIFY_REPLAY_H

#include <stdatomic.h>

#include "config/config.h"

struct replay {
    bool record, force;
    int runs;                          /* steps, and one evaluation behind them */
    int64_t layers, tokens, top_k;     /* tokens of the global batch */
    int32_t *pick;                     /* [runs][layers][tokens][top_k]; NULL: the model has no experts */
    _Atomic int64_t routed, elsewhere; /* choices made, and those that were not the oracle's; of one run */
};

void replay_init(struct replay *x, const struct config *c, int steps);
void replay_free(struct replay *x);
/* Routers of g, whose part of the batch is sequences [first, first + n), are recorded or replayed from now on. watch is
 * borrowed. */
struct replay_watch {
    struct replay *replay;
    const struct engine *g;
    int64_t first, n;
};
void replay_watch(struct replay_watch *w, struct replay *x, struct engine *g, int64_t first, int64_t n);

#endif
