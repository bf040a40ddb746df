/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h: a thread that prepares the next training batches while the current one is trained on. The batches are
 * those of dataset_batch, bit for bit.
 *
 *   owner  prefetch_new → (prefetch_wait) prefetch_next, prefetch_next, ... → prefetch_free
 *
 * Includes: base, dataset.h. Order: Local; one owner thread.
 */
#ifndef TUTTI_DATA_PREFETCH_H
#define TUTTI_DATA_PREFETCH_H

#include "data/dataset.h"

struct prefetch;
/* Batches of steps first_step, first_step + 1, ...: sequences [first, first + count) of global_batch. `depth` >= 1
 * batches are prepared ahead. The dataset is borrowed until prefetch_free. ERR_MEMORY where there is no thread for
 * it. */
int prefetch_new(struct prefetch **out, const struct dataset *d, int64_t first_step, int64_t global_batch,
                 int64_t first, int64_t count, int depth, struct err *e);
/* The next step's batch, which stays until the next call. An error comes at the step it belongs to, and again at every
 * later call. */
int prefetch_next(struct prefetch *p, const struct batch **b, struct err *e);
/* Waits until the next batch is there, and says what prefetch_next will: ranks agree on it before any of them begins a
 * step. */
int prefetch_wait(struct prefetch *p, struct err *e);
void prefetch_free(struct prefetch *p); /* at any time; NULL is fine */

#endif
