/* SPDX-License-Identifier: Apache-2.0 */
/* generator.h: what a generator is. Internal to schedule/; others call schedule_generate.
 *
 * A generator writes compute order only, for numbers that its row in the table (generator.c) declared legal.
 */
#ifndef TUTTI_SCHEDULE_GENERATOR_H
#define TUTTI_SCHEDULE_GENERATOR_H

#include "schedule/schedule.h"

typedef struct schedule *schedule_gen_fn(int n_ranks, int n_microbatches, int n_chunks);
/* Where microbatches go in rounds: of `round` (1 to n_microbatches), the last one of what is left. */
typedef struct schedule *schedule_gen_rounds_fn(int n_ranks, int n_microbatches, int n_chunks, int round);

schedule_gen_fn schedule_gen_naive, schedule_gen_gpipe, schedule_gen_1f1b;
schedule_gen_rounds_fn schedule_gen_interleaved;
schedule_gen_fn schedule_gen_zbh1, schedule_gen_zbh2, schedule_gen_zbv;
schedule_gen_fn schedule_gen_dualpipe, schedule_gen_dualpipev;

/* The V: stage s on rank s on the way down, on rank 2p-1-s on the way back up. */
static inline void schedule_place_v(struct schedule *s)
{
    for (int i = 0; i < s->n_stages; i++) schedule_place(s, 0, i, i < s->n_ranks ? i : 2 * s->n_ranks - 1 - i);
}

#endif
