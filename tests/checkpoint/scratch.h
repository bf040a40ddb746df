/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h: a directory that a test may fill, gone afterwards; and small helpers of this room's tests. */
#ifndef TUTTI_TESTS_CHECKPOINT_SCRATCH_H
#define TUTTI_TESTS_CHECKPOINT_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/rng.h"

static inline char *scratch_new(void)
{
    char *path = xstrdup("/tmp/tutti-checkpoint-XXXXXX");
    if (!mkdtemp(path)) fail_msg("mkdtemp");
    return path;
}

static inline void scratch_free(char *path)
{
    struct err e;
    if (fs_remove_tree(path, &e) < 0) fail_msg("%s", e.text);
    xfree(path);
}

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
