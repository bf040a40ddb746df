/* SPDX-License-Identifier: Apache-2.0 */
/* conveyor.h: items that one thread reads in order, any thread works on, and the first thread delivers in order.
 *
 * Invariants
 *   1. read and deliver are called by the caller's thread only, each in the order of the items; so what is delivered
 *      does not depend on the number of threads.
 *   2. At most n_items are under way: memory is bounded however long the belt runs.
 *   3. The first failure in the order of the items ends it; nothing behind it is delivered, and every worker is done
 *      when conveyor_run returns.
 * Includes: base. Order: Local; conveyor_run comes back when all is done.
 */
#ifndef TUTTI_BASE_CONVEYOR_H
#define TUTTI_BASE_CONVEYOR_H

#include <stdbool.h>

#include "base/err.h"

struct conveyor_ops {
    /* Fills the item. 1; 0: there are no more; < 0: an error. *follows: it is worked on after the item before it. */
    int (*read)(void *arg, void *item, bool *follows, struct err *e);
    int (*work)(void *arg, int member, void *item, struct err *e); /* any thread; member: which, from 0 on */
    int (*deliver)(void *arg, void *item, struct err *e);
};

/* items: n_items >= 1 of the caller's, reused in turn.
 *   fails   what the functions fail with; ERR_MEMORY where a thread cannot be started */
int conveyor_run(const struct conveyor_ops *ops, void *arg, void *const *items, int n_items, int n_threads,
                 struct err *e);

#endif
