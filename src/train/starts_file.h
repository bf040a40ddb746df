/* SPDX-License-Identifier: Apache-2.0 */
/* starts_file.h: run.dir/starts.jsonl, a line each time the program starts on a run: when, where, on what, after which
 * step; and run.dir/ends.jsonl, a line each time it comes to an end of its own: finished, or stopped by a signal. A
 * start without an end was killed, or failed. What is in them: docs/runs.md. Floor 10. Order: Local to the rank that
 * reports.
 */
#ifndef TUTTI_TRAIN_STARTS_FILE_H
#define TUTTI_TRAIN_STARTS_FILE_H

#include <stdint.h>

#include "base/err.h"
#include "site/binding.h"

struct starts_note {
    int64_t step; /* done before */
    int ranks, threads;
    const char *device, *kernels, *transport; /* transport: NULL for one rank */
    const char *kernel_library, *mpi, *mesh;  /* "": none */
    int zero;
    const struct places *places;
    const struct binding *binding;
    const struct epoch *epoch; /* train/epochs.h; NULL: run.elastic is off */
};
int starts_write(const char *dir, const struct starts_note *s, struct err *e);

struct ends_note {
    int64_t first, step, steps; /* done before this start, done now, wanted in all */
    int64_t tokens;             /* trained, in all */
    double tokens_per_s;        /* over the time of this start's steps; 0: there was none */
    double seconds;             /* from the first step to the end: steps, validation, saving */
    double loss, valid_loss;    /* NaN: none */
    bool early;                 /* evaluations ended it (run.stop_early) */
    int signal;                 /* that stopped it; 0: none */
    const char *checkpoint;     /* the newest; "": none */
};
int ends_write(const char *dir, const struct ends_note *n, struct err *e);

#endif
