/* SPDX-License-Identifier: Apache-2.0 */
/* Members of an object by their keys. Few are looked at one after the other; many have a table of hashes behind them,
 * whose seed is its own address, so that nobody can write keys that fall together. */
#include <string.h>

#include "base/json_parser.h"
#include "base/piece_hash.h"

enum { AHEAD = 16 /* members whose places are waited for together */ };

/* The table lies behind the members. Places are 32 bits: 0 none, else the number of a member and one, and above it the
 * hash's upper bits, as many as are left: a place of another key is passed without a look at the key. At most half of
 * the places are taken. */
static size_t table_places(size_t n)
{
    size_t places = 2 * JSON_FEW;
    while (places < 2 * n) places *= 2;
    return n > JSON_FEW ? places : 0;
}

static uint64_t hash(const struct json_member *members, const char *key, size_t n)
{
    return piece_hash_from((uint64_t)(uintptr_t)members, (const unsigned char *)key, n);
}

static bool same(const struct json_member *m, const char *key, size_t n)
{
    return m->key_n == n && piece_same((const unsigned char *)m->key, (const unsigned char *)key, n);
}

struct table {
    const struct json_member *members;
    uint32_t *place, mask;
};

static struct table table_of(const struct json_member *members, size_t n)
{
    return (struct table){members, (uint32_t *)(void *)(members + n), (uint32_t)(table_places(n) - 1)};
}

/* Where the key of this hash is in the table, or would be. */
static uint32_t *table_place(const struct table *t, uint64_t h, const char *key, size_t n)
{
    uint32_t at = (uint32_t)h & t->mask, above = (uint32_t)(h >> 32) & ~t->mask;
    for (;; at = (at + 1) & t->mask) {
        uint32_t v = t->place[at];
        if (!v) break;
        if ((v & ~t->mask) == above && same(&t->members[(v & t->mask) - 1], key, n)) break;
    }
    return &t->place[at];
}

struct json_member *json_find(const struct json *object, const char *key, size_t n)
{
    struct json_member *m = object->members;
    if (object->n > JSON_FEW) {
        struct table t = table_of(m, object->n);
        uint32_t v = *table_place(&t, hash(m, key, n), key, n);
        return v ? &m[(v & t.mask) - 1] : NULL;
    }
    for (uint32_t i = 0; i < object->n; i++)
        if (same(&m[i], key, n)) return &m[i];
    return NULL;
}

void json_find_many(const struct json *object, struct json_asked *asked, size_t n)
{
    struct json_member *m = object->members;
    struct table t = table_of(m, object->n);
    bool few = object->n <= JSON_FEW;
    for (size_t i = 0; few && i < n; i++) asked[i].it = json_find(object, asked[i].key, asked[i].n);
    if (few) return;
    for (size_t i = 0; i < n; i++) {
        asked[i].hash = hash(m, asked[i].key, asked[i].n);
        __builtin_prefetch(t.place + ((uint32_t)asked[i].hash & t.mask));
    }
    for (size_t i = 0; i < n; i++) { /* most are where they would be first */
        uint32_t v = t.place[(uint32_t)asked[i].hash & t.mask] & t.mask;
        __builtin_prefetch(m + (v ? v - 1 : 0));
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t v = t.place[(uint32_t)asked[i].hash & t.mask] & t.mask;
        __builtin_prefetch(m[v ? v - 1 : 0].key);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t v = *table_place(&t, asked[i].hash, asked[i].key, asked[i].n);
        asked[i].it = v ? &m[(v & t.mask) - 1] : NULL;
    }
}

static bool index_many(struct parser *x, struct json_member *m, uint32_t *n)
{
    uint32_t left = 0;
    uint64_t h[AHEAD] = {0};
    struct table t = table_of(m, *n);
    memset(t.place, 0, table_places(*n) * sizeof *t.place);
    for (uint32_t next = 0; next < *n + AHEAD; next++) {
        uint64_t now = h[next % AHEAD];
        if (next < *n) {
            h[next % AHEAD] = hash(m, m[next].key, m[next].key_n);
            __builtin_prefetch(t.place + ((uint32_t)h[next % AHEAD] & t.mask));
        }
        if (next < AHEAD) continue;
        uint32_t i = next - AHEAD, *place = table_place(&t, now, m[i].key, m[i].key_n);
        if (*place && !x->published) return fail(x, x->text + m[i].at, "duplicate object key");
        if (*place) {
            m[(*place & t.mask) - 1].value = m[i].value;
        } else {
            m[left] = m[i];
            *place = ((uint32_t)(now >> 32) & ~t.mask) | ++left;
        }
    }
    if (left == *n) return true;
    *n = left;
    return left <= JSON_FEW || index_many(x, m, n); /* a smaller table, which begins where they end */
}

static bool index_few(struct parser *x, struct json_member *m, uint32_t *n)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < *n; i++) {
        uint32_t k = 0;
        while (k < left && !same(&m[k], m[i].key, m[i].key_n)) k++;
        if (k < left && !x->published) return fail(x, x->text + m[i].at, "duplicate object key");
        if (k < left) m[k].value = m[i].value;
        else m[left++] = m[i];
    }
    *n = left;
    return true;
}

size_t json_table_bytes(size_t n) { return table_places(n) * sizeof(uint32_t); }

bool json_index(struct parser *x, struct json_member *m, uint32_t *n)
{
    return *n > JSON_FEW ? index_many(x, m, n) : index_few(x, m, n);
}
