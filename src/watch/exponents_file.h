/* SPDX-License-Identifier: Apache-2.0 */
/* exponents_file.h: a line of exponents.jsonl in run.dir, per step whose numbers were counted by exponent
 * (engine/exponents.h, run.exponents_every). Floor 9. Order: Local to the rank that reports. */
#ifndef TUTTI_WATCH_EXPONENTS_FILE_H
#define TUTTI_WATCH_EXPONENTS_FILE_H

#include <stdint.h>

#include "base/err.h"

struct engine;
struct metrics;

int exponents_write(const struct engine *g, struct metrics *m, int64_t step, const char *recipe, double loss_scale,
                    struct err *e);

#endif
