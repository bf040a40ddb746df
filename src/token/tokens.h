/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.h: a growing list of token ids. Zero-initialised is empty. Includes: base. Order: Local. */
#ifndef TUTTI_TOKEN_TOKENS_H
#define TUTTI_TOKEN_TOKENS_H

#include <stdint.h>

#include "base/mem.h"

struct tokens {
    int32_t *ids;
    int64_t n, room;
};

static inline void tokens_reserve(struct tokens *t, int64_t more) { GROW(t->ids, t->n, t->room, more); }

static inline void tokens_push(struct tokens *t, int32_t id)
{
    GROW(t->ids, t->n, t->room, 1);
    t->ids[t->n++] = id;
}

static inline void tokens_free(struct tokens *t)
{
    xfree(t->ids);
    *t = (struct tokens){0};
}

#endif
