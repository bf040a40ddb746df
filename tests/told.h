/* SPDX-License-Identifier: Apache-2.0 */
/* told.h: what a device that is late on purpose (device_late_new) reports, counted, and its first words. */
#ifndef TUTTI_TESTS_TOLD_H
#define TUTTI_TESTS_TOLD_H

#include <stdio.h>

struct told {
    int n;
    char first[1000];
};

static inline void tell(void *ctx, const char *text)
{
    struct told *t = ctx;
    if (!t->n++) snprintf(t->first, sizeof t->first, "%s", text);
}

#endif
