/* SPDX-License-Identifier: Apache-2.0 */
/* speed.h: how fast a run is, per step and per progress line, as shares of a ceiling that no share can be above.
 *
 * The ceiling is what was measured at the start (tile_rate.h), raised whenever a step itself was faster: a machine that
 * was disturbed during the measurement, or clocked lower, must not make figures above 100 %. Of a run whose kernels are
 * simulated nothing is a speed: all figures are NaN. Floor 9. Order: Local.
 */
#ifndef TUTTI_WATCH_SPEED_H
#define TUTTI_WATCH_SPEED_H

#include <stdbool.h>
#include <stdint.h>

struct speed {
    double ceiling; /* FLOP/s */
    bool raised;    /* by more than a twentieth of what was measured: worth a word */
    double all_s;   /* of all steps */
    int64_t all_tokens;
    double s, flops; /* of the steps since the last progress line */
    int64_t tokens;
};
void speed_init(struct speed *s, double ceiling); /* NaN: nothing is a speed */
/* A step is done: its share of the ceiling, 0 to 1. */
double speed_step(struct speed *s, double flops, int64_t tokens, double step_s);
/* Tokens per second over the time of all steps so far; 0 before the first. */
double speed_all(const struct speed *s);
/* Means over the steps since the last call, of their own time (what is saved or validated between them does not
 * count). */
void speed_mean(struct speed *s, double *tokens_per_s, double *mfu);

#endif
