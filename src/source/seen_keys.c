/* SPDX-License-Identifier: Apache-2.0 */
/* seen_keys.c: open addressing with linear steps, doubled when it is half full. */
#include "source/seen_keys.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { LEAST_ROOM = 64 };

/* Where the two halves are, or would be. */
static uint64_t *at(const struct seen_keys *s, const uint64_t half[2])
{
    uint64_t i = half[0] & (s->room - 1);
    while ((s->place[i][0] || s->place[i][1]) && memcmp(s->place[i], half, sizeof s->place[i]))
        i = (i + 1) & (s->room - 1);
    return s->place[i];
}

static void grow(struct seen_keys *s)
{
    struct seen_keys more = {.n = s->n, .room = s->room ? 2 * s->room : LEAST_ROOM};
    more.place = xcalloc((size_t)more.room, sizeof *more.place);
    for (uint64_t i = 0; i < s->room; i++)
        if (s->place[i][0] || s->place[i][1]) memcpy(at(&more, s->place[i]), s->place[i], sizeof *s->place);
    xfree(s->place);
    *s = more;
}

bool seen_keys_add(struct seen_keys *s, const char *key, size_t n)
{
    struct hash64 h;
    hash64_init(&h);
    hash64_add(&h, "more", 4);
    hash64_add(&h, key, n);
    const uint64_t half[2] = {hash64(key, n), hash64_value(&h) | 1}; /* never both 0 */
    if (2 * s->n >= s->room) grow(s);
    uint64_t *place = at(s, half);
    if (place[0] || place[1]) return true;
    memcpy(place, half, sizeof half);
    s->n++;
    return false;
}

void seen_keys_free(struct seen_keys *s)
{
    xfree(s->place);
    *s = (struct seen_keys){0};
}
