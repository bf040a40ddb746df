/* SPDX-License-Identifier: Apache-2.0 */
/* averaged.h: what checkpoint.average makes at the end of a run: the mean of the weights of its newest checkpoints, as
 * `tutti checkpoint average` does, in a directory of its own.
 * Floor 8. Order: Local to the rank that publishes.
 */
#ifndef TUTTI_KEEP_AVERAGED_H
#define TUTTI_KEEP_AVERAGED_H

#include <stdint.h>

#include "base/err.h"

/* The mean of the `most` newest complete checkpoints below root, the newest of which is of `step`, to out; what is in
 * out is moved aside, unless it is of that step. Fewer than `most` are said. */
int averaged_write(const char *root, const char *out, int most, int64_t step, struct err *e);

#endif
