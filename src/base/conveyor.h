/* SPDX-License-Identifier: Apache-2.0 */
/* conveyor.h: items that are read in order, that any thread works on, and that are delivered in order: one belt, or
 * several side by side, each with an order of its own.
 *
 * Invariants
 *   1. On one belt read and deliver are called by the caller's thread only, each in the order of the items; so what is
 *      delivered does not depend on the number of threads.
 *   2. On several, any thread may read and deliver: of one belt one item at a time is read, and items are delivered in
 *      the order in which they were read; of all belts one item at a time is delivered. An item is of the belt that it
 *      was given to.
 *   3. At most the items given are under way: memory is bounded however long the belts run.
 *   4. The first failure in the order of the items of a belt ends it, and with it the others; nothing behind it is
 *      delivered, and every worker is done when the call returns.
 * Includes: base. Order: Local; the calls come back when all is done.
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
/* n_belts side by side: belt b has the items items[b * n_each] to items[b * n_each + n_each - 1]. */
int conveyor_run_belts(const struct conveyor_ops *ops, void *arg, void *const *items, int n_belts, int n_each,
                       int n_threads, struct err *e);

#endif
