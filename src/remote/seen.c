/* SPDX-License-Identifier: Apache-2.0 */
/* A table of numbers, each at the first free place from where it belongs; never more than half full. */
#include "remote/seen.h"

#include <string.h>

#include "base/mem.h"

static bool is_free(const struct hash128 *h) { return !h->hi && !h->lo; }

static struct hash128 *place_of(struct hash128 *slot, size_t room, const struct hash128 *h)
{
    size_t i = h->lo & (room - 1);
    while (!is_free(&slot[i]) && (slot[i].hi != h->hi || slot[i].lo != h->lo)) i = (i + 1) & (room - 1);
    return &slot[i];
}

static void grow(struct seen *s)
{
    size_t room = s->room ? 2 * s->room : 64;
    struct hash128 *slot = xcalloc(room, sizeof *slot);
    for (size_t i = 0; i < s->room; i++)
        if (!is_free(&s->slot[i])) *place_of(slot, room, &s->slot[i]) = s->slot[i];
    xfree(s->slot);
    s->slot = slot;
    s->room = room;
}

bool seen_add(struct seen *s, const char *name)
{
    struct hash128 h = hash128(name, strlen(name));
    if (is_free(&h)) h.lo = 1;
    if (2 * (s->n + 1) > s->room) grow(s);
    struct hash128 *at = place_of(s->slot, s->room, &h);
    if (!is_free(at)) return false;
    *at = h;
    s->n++;
    return true;
}

void seen_free(struct seen *s)
{
    xfree(s->slot);
    *s = (struct seen){0};
}
