/* SPDX-License-Identifier: Apache-2.0 */
/* exponent_picture.h: a line of exponents.jsonl as an SVG: for activations, weights and their gradients how large a
 * share of the numbers lies between which powers of two, over the ranges of number formats; with a loss scale also
 * where gradients would lie without it. Floor 11; includes base and layout. Order: Local.
 */
#ifndef TUTTI_REPORT_EXPONENT_PICTURE_H
#define TUTTI_REPORT_EXPONENT_PICTURE_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Of the run in dir, of a step; step 0: the last that was counted. An error names the steps that there are. */
int exponent_picture(const char *dir, int64_t step, struct str *svg, struct err *e);

#endif
