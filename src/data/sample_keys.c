/* SPDX-License-Identifier: Apache-2.0 */
/* sample_keys.c: open addressing with linear steps, doubled when it is half full. */
#include "data/sample_keys.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { LEAST_ROOM = 64 };

struct sample_keys_place {
    uint64_t hash, more;
    int64_t value_1; /* the value and 1; 0: nothing is here */
};

static struct sample_keys_place place_of(const char *key, int64_t value)
{
    struct hash64 h;
    hash64_init(&h);
    hash64_add(&h, "more", 4);
    hash64_add(&h, key, strlen(key));
    return (struct sample_keys_place){hash64(key, strlen(key)), hash64_value(&h), value + 1};
}

/* Where it is, or would be. */
static int64_t at(const struct sample_keys *k, const struct sample_keys_place *p)
{
    int64_t i = (int64_t)(p->hash & (uint64_t)(k->room - 1));
    while (k->place[i].value_1 && (k->place[i].hash != p->hash || k->place[i].more != p->more))
        i = (i + 1) & (k->room - 1);
    return i;
}

static void grow(struct sample_keys *k)
{
    struct sample_keys more = {.n = k->n, .room = k->room ? 2 * k->room : LEAST_ROOM};
    more.place = xcalloc((size_t)more.room, sizeof *more.place);
    for (int64_t i = 0; i < k->room; i++)
        if (k->place[i].value_1) more.place[at(&more, &k->place[i])] = k->place[i];
    xfree(k->place);
    *k = more;
}

bool sample_keys_add(struct sample_keys *k, const char *key, int64_t value)
{
    struct sample_keys_place p = place_of(key, value);
    if (2 * k->n >= k->room) grow(k);
    int64_t i = at(k, &p);
    if (k->place[i].value_1) return false;
    k->place[i] = p;
    k->n++;
    return true;
}

int64_t sample_keys_find(const struct sample_keys *k, const char *key)
{
    struct sample_keys_place p = place_of(key, 0);
    return k->room ? k->place[at(k, &p)].value_1 - 1 : -1;
}

void sample_keys_free(struct sample_keys *k)
{
    xfree(k->place);
    *k = (struct sample_keys){0};
}
