/* SPDX-License-Identifier: Apache-2.0 */
/* advise.h: what a refusal says to do, where that is a number that follows from others. An advice names a value that
 * is taken: tests/verify/test_advice.c follows those of all pairs of features that may not meet.
 * Floor 7. Order: Same(config).
 */
#ifndef TUTTI_CONFIG_ADVISE_H
#define TUTTI_CONFIG_ADVISE_H

#include "config/config.h"

/* Integer keys whose values are multiples of another number: what is not one is refused, with the multiples above 0
 * that are next to it. */
struct multiple {
    const char *key;
    bool (*is)(const struct config *c); /* none */
    int64_t (*of)(const struct config *c);
    const char *why;
};
int advise_multiples(const struct config *c, const struct conf *f, const struct multiple *rows, size_t n,
                     const char *objective, struct err *e);

#endif
