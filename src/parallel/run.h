/* SPDX-License-Identifier: Apache-2.0 */
/* run.h: carries out the collective rows of a program: which communicator, which operation, where the result goes.
 * Floors 0-3. Order: Collective over the axis of each call.
 */
#ifndef TUTTI_PARALLEL_RUN_H
#define TUTTI_PARALLEL_RUN_H

#include "comm/comm.h"
#include "program/program_run.h"
#include "tape/lower.h"

enum { PAR_ROUNDS = 65 };
struct par_run {
    struct comm *axis[AXIS_N];  /* NULL: of size 1 */
    struct comm *inner, *outer; /* parts of cp, where it has two levels (context.h); else NULL */
    /* Forwards by how many rounds their rows took to the experts (waves.h): [1], [2], ..., the last: or more; [0]: all
     * their rounds. Whoever reads them clears them. */
    int64_t rounds[PAR_ROUNDS];
};

/* For program_args.ranks; on the null device nothing but the communicator's counting. */
struct carrier par_run_carrier(struct par_run *x);
/* For lower_options.collective_scratch. */
size_t par_run_scratch(const struct kernel_table *kt, const struct kernel_call *c);

#endif
