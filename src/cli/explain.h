/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h: what the topics of `tutti explain` print from; private to cli/. Floor 7. Order: Local. */
#ifndef TUTTI_CLI_EXPLAIN_H
#define TUTTI_CLI_EXPLAIN_H

#include "run/engine.h"
#include "run/ranks.h"

/* Rank 0 on the null device. */
struct explain {
    const struct config *c;
    struct engine *g;
    struct device *d;
    struct ranks ranks;
};

/* Every parameter, and what rank 0 has of it. */
int explain_layout(const struct explain *x, struct str *out, struct err *e);
/* What rank 0 sends in one step, by group and operation, and when. */
int explain_comm(const struct explain *x, struct str *out, struct err *e);

#endif
