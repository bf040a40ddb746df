/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.h: a growing list of token ids. Zero-initialised is empty. Includes: base. Order: Local. */
#ifndef TUTTI_DATA_TOKENS_H
#define TUTTI_DATA_TOKENS_H

#include <stdint.h>

#include "base/mem.h"

struct tokens {
    int32_t *ids;
    int64_t n, room;
};

static inline void tokens_reserve(struct tokens *t, int64_t more)
{
    if (t->n + more <= t->room) return;
    int64_t room = t->room ? t->room : 256;
    while (room < t->n + more) room *= 2;
    t->ids = xrealloc(t->ids, to_size(room) * sizeof *t->ids);
    t->room = room;
}

static inline void tokens_push(struct tokens *t, int32_t id)
{
    if (t->n == t->room) tokens_reserve(t, 1);
    t->ids[t->n++] = id;
}

static inline void tokens_free(struct tokens *t)
{
    xfree(t->ids);
    *t = (struct tokens){0};
}

#endif
