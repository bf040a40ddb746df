/* SPDX-License-Identifier: Apache-2.0 */
/* rate.h: how fast a loop could run on a team's cores, from rounds that other programs may have disturbed.
 *
 * A member's round has two times: of the clock, and what its thread was computing. Where all members computed all the
 * time, the round is undisturbed, and the best of those counts. On a machine so busy that there are fewer than three,
 * the time that threads computed counts: waiting for a core must not lower a ceiling. Nothing here reads a clock; tests
 * feed rounds. Floor 2. Order: Local.
 */
#ifndef TUTTI_KERNEL_CPU_RATE_H
#define TUTTI_KERNEL_CPU_RATE_H

#include <stdint.h>

struct rate_part { /* one member's, of one round */
    double operations, wall_s, thread_s;
};
/* Runs the loop `repeats` times in every member at the same time; fills part[n_members]. */
typedef void rate_round_fn(void *arg, int64_t repeats, struct rate_part *part);

/* Operations per second, as if every member had a core for itself. Repeats grow until each member computes for 5 ms;
 * then 7 rounds, up to 21 while fewer than 3 were undisturbed, no more than 3 when they take longer than a second. */
double rate_measure(rate_round_fn *round, void *arg, int n_members);

#endif
