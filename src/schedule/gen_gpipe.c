/* SPDX-License-Identifier: Apache-2.0 */
/* The two schedules that need no thought. Naive sends one microbatch down and back before the next: the pipeline is
 * p ranks of which one works. GPipe sends all down, then all back: bubble (p-1)(F+B+W), but the activations of every
 * microbatch are alive at the turn. With chunks, stages loop over the ranks and are passed breadth first. */
#include "schedule/generator.h"

struct schedule *schedule_gen_naive(int n_ranks, int n_microbatches, int n_chunks)
{
    struct schedule *s = schedule_new("naive", n_ranks, n_ranks * n_chunks, n_microbatches);
    for (int r = 0; r < n_ranks; r++)
        for (int m = 0; m < n_microbatches; m++) {
            for (int c = 0; c < n_chunks; c++) schedule_push(s, r, action_of(ACTION_F, c * n_ranks + r, m));
            for (int c = n_chunks - 1; c >= 0; c--) schedule_push(s, r, action_of(ACTION_BW, c * n_ranks + r, m));
        }
    return s;
}

struct schedule *schedule_gen_gpipe(int n_ranks, int n_microbatches, int n_chunks)
{
    struct schedule *s = schedule_new("gpipe", n_ranks, n_ranks * n_chunks, n_microbatches);
    for (int r = 0; r < n_ranks; r++) {
        for (int c = 0; c < n_chunks; c++)
            for (int m = 0; m < n_microbatches; m++) schedule_push(s, r, action_of(ACTION_F, c * n_ranks + r, m));
        for (int c = n_chunks - 1; c >= 0; c--)
            for (int m = 0; m < n_microbatches; m++) schedule_push(s, r, action_of(ACTION_BW, c * n_ranks + r, m));
    }
    return s;
}
