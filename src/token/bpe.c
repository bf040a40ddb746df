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

enum { FEW = 8 }; /* bytes that stand in a slot */

void piece_map_init(struct piece_map *m, int64_t n_expected)
{
    uint64_t size = table_size(n_expected + 1);
    struct piece_slot *slots = xcalloc_large(size * sizeof *slots);
    *m = (struct piece_map){.slots = slots, .mask = size - 1, .seed = (uint64_t)(uintptr_t)slots};
}

void piece_map_fini(struct piece_map *m)
{
    xfree_large(m->slots, (m->mask + 1) * sizeof *m->slots);
    *m = (struct piece_map){0};
}

void piece_map_copy(struct piece_map *m, const struct piece_map *from)
{
    *m = *from;
    m->slots = xcalloc_large((m->mask + 1) * sizeof *m->slots);
    memcpy(m->slots, from->slots, (m->mask + 1) * sizeof *m->slots);
}

static struct piece_slot *slot_of(const struct piece_map *m, uint64_t hash, const unsigned char *p, size_t n)
{
    uint64_t few = n <= FEW ? piece_few(p, n) : 0, at = hash & m->mask;
    for (;; at = (at + 1) & m->mask) {
        struct piece_slot *s = &m->slots[at];
        if (!s->room) return s;
        if (s->room - 1 != n) continue;
        if (n <= FEW ? s->text == few : piece_same((const unsigned char *)(uintptr_t)s->text, p, n)) return s;
    }
}

uint64_t piece_map_expect(const struct piece_map *m, const unsigned char *p, size_t n)
{
    uint64_t hash = piece_hash_from(m->seed, p, n);
    __builtin_prefetch(&m->slots[hash & m->mask]);
    return hash;
}

bool piece_map_put_expected(struct piece_map *m, uint64_t hash, const unsigned char *p, size_t n, int32_t id)
{
    CHECK(n < UINT32_MAX && 2 * (uint64_t)m->n <= m->mask, "piece map: %zu bytes, %lld entries", n, (long long)m->n);
    struct piece_slot *slot = slot_of(m, hash, p, n);
    if (slot->room) return false;
    *slot = (struct piece_slot){.text = n <= FEW ? piece_few(p, n) : (uint64_t)(uintptr_t)p,
                                .room = (uint32_t)n + 1,
                                .id = id};
    m->n++;
    return true;
}

bool piece_map_put(struct piece_map *m, const unsigned char *p, size_t n, int32_t id)
{
    return piece_map_put_expected(m, piece_hash_from(m->seed, p, n), p, n, id);
}

int32_t piece_map_get(const struct piece_map *m, const unsigned char *p, size_t n)
{
    const struct piece_slot *slot = slot_of(m, piece_hash_from(m->seed, p, n), p, n);
    return slot->room ? slot->id : -1;
}

void bpe_init(struct bpe *b, int64_t n_rules)
{
    uint64_t size = table_size(n_rules + 1);
    CHECK(size <= (uint64_t)1 << 31, "%lld rules", (long long)n_rules);
    *b = (struct bpe){.rules = xmalloc_large(to_size(n_rules) * sizeof *b->rules),
                      .n = n_rules,
                      .places = xcalloc_large(size * sizeof *b->places),
                      .mask = (uint32_t)(size - 1)};
    b->maybe = xcalloc(((size_t)1 << BPE_MAYBE_BITS) / 64, sizeof *b->maybe);
    for (int i = 0; i < 256; i++) b->byte_id[i] = -1;
}

void bpe_fini(struct bpe *b)
{
    xfree(b->rules);
    xfree_large(b->places, ((size_t)b->mask + 1) * sizeof *b->places);
    xfree(b->maybe);
    *b = (struct bpe){0};
}

void bpe_put(struct bpe *b, int32_t left, int32_t right, int32_t rank, int32_t product)
{
    uint64_t h = bpe_hash(b, left, right), bit = h >> (64 - BPE_MAYBE_BITS);
    CHECK(rank >= 0 && rank < b->n, "rule %d of %lld", rank, (long long)b->n);
    uint32_t *place = bpe_place(b, h, left, right);
    b->rules[rank] = (struct bpe_rule){left, right, product};
    *place = ((uint32_t)h & ~b->mask) | ((uint32_t)rank + 1);
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
