/* SPDX-License-Identifier: Apache-2.0 */
/* advise.h: what a refusal says to do, where that is a number that follows from others. An advice names a value that
 * is taken: tests/verify/test_advice.c follows those of all pairs of features that may not meet.
 * Floor 7. Order: Same(config).
 */
#ifndef TUTTI_CONFIG_ADVISE_H
#define TUTTI_CONFIG_ADVISE_H

#include "config/config.h"

enum { ADVICE_BYTES = 64 };
/* "; choose 6 or 8": the multiples of `of` next to an integer key's value; of those above 0. */
const char *advise_multiple(const struct config *c, const char *key, int64_t of, char out[ADVICE_BYTES]);

#endif
