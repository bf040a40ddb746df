/* SPDX-License-Identifier: Apache-2.0 */
/* said.h: what a call came to and said, checked; and numbers that are the same every time. */
#ifndef TUTTI_TESTS_SAID_H
#define TUTTI_TESTS_SAID_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "scratch.h"

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        struct err *seen_ = &e;                                                                                        \
        int rc_ = (call);                                                                                              \
        if (rc_ < 0) fail_msg("%s: %s", #call, seen_->text);                                                           \
    } while (0)

#define assert_err(wanted, part, call)                                                                                 \
    do {                                                                                                               \
        int rc_ = (call);                                                                                              \
        if (rc_ != (wanted)) fail_msg("%s: code %d, wanted %d (%s)", #call, rc_, (int)(wanted), rc_ ? e.text : "");    \
        if (!strstr(e.text, part)) fail_msg("%s: '%s' is not in '%s'", #call, part, e.text);                           \
    } while (0)

/* The n-th number of a reproducible sequence, in [0, limit). */
struct dice {
    uint64_t seed, at;
};
static inline int64_t roll(struct dice *d, int64_t limit)
{
    return (int64_t)(rng_u64(d->seed, 77, d->at++) % (uint64_t)limit);
}

#endif
