/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c: merging, fast where text is ordinary and never slow where it is not.
 *
 * Words repeat, so a cache (token_cache.h) answers most pieces with one hash and one compare. What misses is merged
 * (merge.h), in n^2 / 2 cheap steps while it is short, in n log n where it is long.
 *
 * Rejected: a trie of whole tokens (not the same ids).
 */
#include "token/bpe.h"

#include <string.h>

#include "base/err.h"
#include "base/large_pages.h"
#include "base/mem.h"
#include "token/merge.h"
#include "base/piece_hash.h"
#include "token/token_cache.h"

struct bpe_work {
    struct token_cache *cache;
    struct merger merger;
    int32_t *symbols; /* of one piece */
    size_t symbols_room;
};

/* Slots for n entries at no more than half full. */
static uint64_t table_size(int64_t n)
{
    uint64_t size = 16;
    while (size < 2 * (uint64_t)n) size *= 2;
    return size;
}

void piece_map_init(struct piece_map *m, int64_t n_expected)
{
    uint64_t size = table_size(n_expected + 1);
    struct piece_slot *slots = xcalloc(size, sizeof *slots);
    *m = (struct piece_map){.slots = in_large_pages(slots, size * sizeof *slots), .mask = size - 1};
}

void piece_map_fini(struct piece_map *m)
{
    xfree(m->slots);
    *m = (struct piece_map){0};
}

static uint64_t map_hash(const struct piece_map *m, const unsigned char *p, size_t n)
{
    return piece_hash_from((uint64_t)(uintptr_t)m->slots, p, n);
}

static struct piece_slot *slot_of(const struct piece_map *m, uint64_t hash, const unsigned char *p, size_t n)
{
    uint64_t at = hash & m->mask;
    while (m->slots[at].p && (m->slots[at].n != n || memcmp(m->slots[at].p, p, n))) at = (at + 1) & m->mask;
    return &m->slots[at];
}

static struct piece_slot *piece_slot(const struct piece_map *m, const unsigned char *p, size_t n)
{
    return slot_of(m, map_hash(m, p, n), p, n);
}

void piece_map_expect(const struct piece_map *m, const unsigned char *p, size_t n)
{
    __builtin_prefetch(&m->slots[map_hash(m, p, n) & m->mask]);
}

bool piece_map_put(struct piece_map *m, const unsigned char *p, size_t n, int32_t id)
{
    CHECK(n <= UINT32_MAX && 2 * (uint64_t)m->n <= m->mask, "piece map: %zu bytes, %lld entries", n, (long long)m->n);
    struct piece_slot *slot = piece_slot(m, p, n);
    if (slot->p) return false;
    *slot = (struct piece_slot){.p = p, .n = (uint32_t)n, .id = id};
    m->n++;
    return true;
}

int32_t piece_map_get(const struct piece_map *m, const unsigned char *p, size_t n)
{
    const struct piece_slot *slot = piece_slot(m, p, n);
    return slot->p ? slot->id : -1;
}

void piece_map_get_many(const struct piece_map *m, struct piece_asked *asked, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        asked[i].hash = map_hash(m, asked[i].p, asked[i].n);
        __builtin_prefetch(&m->slots[asked[i].hash & m->mask]);
    }
    for (size_t i = 0; i < n; i++) __builtin_prefetch(m->slots[asked[i].hash & m->mask].p);
    for (size_t i = 0; i < n; i++) {
        const struct piece_slot *slot = slot_of(m, asked[i].hash, asked[i].p, asked[i].n);
        asked[i].id = slot->p ? slot->id : -1;
    }
}

void bpe_init(struct bpe *b, int64_t n_rules)
{
    uint64_t size = table_size(n_rules + 1);
    struct bpe_rule *rules = xmalloc(size * sizeof *rules);
    *b = (struct bpe){.rules = in_large_pages(rules, size * sizeof *rules), .mask = size - 1};
    b->maybe = xcalloc(((size_t)1 << BPE_MAYBE_BITS) / 64, sizeof *b->maybe);
    for (uint64_t i = 0; i < size; i++) b->rules[i].left = -1;
    for (int i = 0; i < 256; i++) b->byte_id[i] = -1;
}

void bpe_fini(struct bpe *b)
{
    xfree(b->rules);
    xfree(b->maybe);
    *b = (struct bpe){0};
}

void bpe_put(struct bpe *b, int32_t left, int32_t right, int32_t rank, int32_t product)
{
    uint64_t h = bpe_hash(b, left, right), bit = h >> (64 - BPE_MAYBE_BITS), at = h & b->mask;
    while (b->rules[at].left >= 0 && (b->rules[at].left != left || b->rules[at].right != right))
        at = (at + 1) & b->mask;
    b->rules[at] = (struct bpe_rule){left, right, rank, product};
    b->maybe[bit / 64] |= (uint64_t)1 << bit % 64;
}

struct bpe_work *bpe_work_new(void)
{
    struct bpe_work *w = xcalloc(1, sizeof *w);
    w->cache = token_cache_new();
    return w;
}

void bpe_work_free(struct bpe_work *w)
{
    if (!w) return;
    token_cache_free(w->cache);
    merger_fini(&w->merger);
    xfree(w->symbols);
    xfree(w);
}

static void merge(const struct bpe *b, struct bpe_work *w, const unsigned char *p, size_t n, struct tokens *out)
{
    int32_t whole = b->whole ? piece_map_get(b->whole, p, n) : -1;
    if (whole >= 0) {
        tokens_push(out, whole);
        return;
    }
    GROW(w->symbols, 0, w->symbols_room, n);
    for (size_t i = 0; i < n; i++) w->symbols[i] = b->byte_id[p[i]];
    merge_symbols(b, &w->merger, w->symbols, n, out);
}

void bpe_encode(const struct bpe *b, struct bpe_work *w, const unsigned char *p, size_t n, struct tokens *out)
{
    if (n == 1 && !b->whole) {
        tokens_push(out, b->byte_id[p[0]]);
        return;
    }
    if (token_cache_get(w->cache, p, n, out)) return;
    int64_t before = out->n;
    merge(b, w, p, n, out);
    token_cache_put(w->cache, p, n, out->ids + before, out->n - before);
}
