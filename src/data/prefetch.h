/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h: threads that prepare the next training batches while the current one is trained on. The batches are
 * those of dataset_batch, bit for bit and in order, for any number of threads.
 *
 *   owner  prefetch_new → (prefetch_wait) prefetch_next, prefetch_next, ... → prefetch_free
 *
 * Includes: base, dataset.h. Order: Local; one owner thread.
 */
#ifndef TUTTI_DATA_PREFETCH_H
#define TUTTI_DATA_PREFETCH_H

#include "data/dataset.h"

struct prefetch;
/* Batches of steps first_step, first_step + 1, ...: sequences [first, first + count) of global_batch. */
struct prefetch_config {
    int64_t first_step, global_batch, first, count;
    int depth;    /* >= 1 batches are prepared ahead */
    int workers;  /* threads, 1 to depth; 0: 1 */
    void *memory; /* prefetch_bytes of it, the caller's; NULL: its own */
};
size_t prefetch_bytes(int64_t count, int64_t seq_len, int64_t n_pixels, int depth);
/* The dataset is borrowed until prefetch_free. ERR_MEMORY where there is no thread for it. */
int prefetch_new(struct prefetch **out, const struct dataset *d, const struct prefetch_config *c, struct err *e);
/* The next step's batch, which stays until the next call. An error comes at the step it belongs to, which it names, and
 * again at every later call. */
int prefetch_next(struct prefetch *p, const struct batch **b, struct err *e);
/* Waits until the next batch is there, and says what prefetch_next will: ranks agree on it before any of them begins a
 * step. */
int prefetch_wait(struct prefetch *p, struct err *e);
double prefetch_waited_s(const struct prefetch *p); /* of the owner, in both, so far */
void prefetch_free(struct prefetch *p);             /* at any time; NULL is fine */

#endif
