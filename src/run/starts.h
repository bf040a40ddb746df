/* SPDX-License-Identifier: Apache-2.0 */
/* starts.h: run.dir/starts.jsonl, a line each time the program starts on a run: when, where, on what, after which step.
 * {"time" UTC, "version", "host", "cpu", "cores", "memory_bytes", "ranks", "threads" of a rank, "kernels", "transport", "step"}
 * Floor 6. Order: Local to the rank that reports.
 */
#ifndef TUTTI_RUN_STARTS_H
#define TUTTI_RUN_STARTS_H

#include <stdint.h>

#include "base/err.h"

struct starts_note {
    int64_t step;        /* done before */
    int ranks, threads;
    const char *kernels, *transport; /* transport: NULL for one rank */
};
int starts_write(const char *dir, const struct starts_note *s, struct err *e);

#endif
