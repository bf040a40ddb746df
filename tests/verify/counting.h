/* SPDX-License-Identifier: Apache-2.0 */
/* counting.h: what the first rank of a world holds at most and has sent after a step of no sequences: to be beside what
 * was planned. */
#ifndef TUTTI_TESTS_VERIFY_COUNTING_H
#define TUTTI_TESTS_VERIFY_COUNTING_H

#include <string.h>

#include "engine/balance.h"
#include "engine/executor.h"
#include "site/site.h"

struct counting {
    const struct config *c;
    size_t bytes[MEM_N];
    struct comm_traffic sent[AXIS_N];
};

/* The work of a rank; arg: struct counting. */
static inline int count(struct comm *world, void *arg, struct err *e)
{
    struct counting *x = arg;
    struct site at;
    struct engine_batch nothing = {0};
    struct engine_report report;
    int rc = site_open(&at, &(struct site_config){.config = x->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    engine_init(at.engine);
    engine_gradients(at.engine, &nothing, 0,
                     &report); /* and the update, that a step without a trained token leaves out */
    balance_step(at.engine);
    recipes_end(at.engine);
    executor_update(at.engine, 0, 0, 0);
    rc = engine_status(at.engine, e);
    if (!rc && at.ranks.rank == 0) {
        memcpy(x->bytes, at.dev->ledger.at_peak, sizeof x->bytes);
        ranks_traffic(&at.ranks, x->sent);
    }
    site_close(&at);
    return rc;
}

#endif
