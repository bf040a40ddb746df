/* SPDX-License-Identifier: Apache-2.0 */
/* history.h: what a run wrote about itself, read back: metrics.jsonl as curves, samples.jsonl and starts.jsonl as
 * lists.
 *
 * Invariants
 *   1. A line that is no JSON object (the last one of a run that is writing, or a damaged one) is passed over and
 *      counted: a report of nine tenths of a run is better than none, and says so.
 *   2. Memory is 16 bytes a point and one line at a time, whatever the length of the file.
 * Floor 11; includes base. Order: Local.
 */
#ifndef TUTTI_REPORT_HISTORY_H
#define TUTTI_REPORT_HISTORY_H

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

struct curve { /* points in the order of the file; only finite ones */
    double *x, *y;
    int64_t n, room;
};

enum history_curve { CURVE_LOSS, CURVE_VALID, CURVE_LR, CURVE_GRAD_NORM, CURVE_RATE, CURVE_MFU, CURVE_STEP_S, CURVE_N };

struct history_sample {
    int64_t step;
    const char *prompt, *text;
};
struct history_start { /* one start of the program on this run; text "" where the run did not say */
    const char *time, *host, *cpu, *version, *transport, *kernels;
    int64_t step, ranks, threads, cores;
};

struct history {
    struct curve curve[CURVE_N]; /* by optimizer step */
    int64_t steps, tokens, peak_bytes, skipped;
    double seconds;     /* in steps; saving and validation do not count */
    int64_t not_finite; /* values left out of curves */
    int64_t broken;     /* lines passed over */
    struct history_sample *sample;
    struct history_start *start;
    int n_samples, n_starts, room_samples, room_starts;
    struct arena *arena;
};

/* dir: a run's directory. ERR_REQUEST where there is no metrics.jsonl in it; the other two files may be missing. */
int history_read(struct history *h, const char *dir, struct err *e);
void history_free(struct history *h);
double curve_last(const struct curve *c);   /* NaN when empty */
double curve_median(const struct curve *c); /* NaN when empty; O(n log n) */

#endif
