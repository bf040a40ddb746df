/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c: merging, fast where text is ordinary and never slow where it is not.
 *
 * Words repeat, so a direct-mapped cache of one 64-byte line per word answers most pieces with one hash and one
 * compare. What misses is merged in one of two ways with the same result: up to SHORT_MAX symbols by scanning an
 * array of ranks for the minimum (n^2 / 2 steps, all in the first-level cache), longer ones over a linked list
 * with a heap (merge.h), n log n. The cache makes results neither depend on order nor grow.
 *
 * Rejected: a cache that keeps every word (memory grows with the text); a trie of whole tokens (not the same ids).
 */
#include "token/bpe.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "token/merge.h"
#include "token/piece_hash.h"

enum {
    SHORT_MAX = 48,
    CACHE_BITS = 15,
    CACHED_BYTES = 26,
    CACHED_IDS = 9,
};

/* One cache line: n_bytes 0 is an empty slot. */
struct cached {
    unsigned char n_bytes, n_ids;
    unsigned char text[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
};
_Static_assert(sizeof(struct cached) == 64, "a cached word is one cache line");

struct bpe_work {
    struct cached *cache;
    struct merger merger;
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
    *m = (struct piece_map){.slots = xcalloc(size, sizeof *m->slots), .mask = size - 1};
}

void piece_map_fini(struct piece_map *m)
{
    xfree(m->slots);
    *m = (struct piece_map){0};
}

static struct piece_slot *piece_slot(const struct piece_map *m, const unsigned char *p, size_t n)
{
    uint64_t at = piece_hash(p, n) & m->mask;
    while (m->slots[at].p && (m->slots[at].n != n || memcmp(m->slots[at].p, p, n))) at = (at + 1) & m->mask;
    return &m->slots[at];
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

void bpe_init(struct bpe *b, int64_t n_rules)
{
    uint64_t size = table_size(n_rules + 1);
    *b = (struct bpe){.rules = xmalloc(size * sizeof *b->rules), .mask = size - 1};
    for (uint64_t i = 0; i < size; i++) b->rules[i].left = -1;
    for (int i = 0; i < 256; i++) b->byte_id[i] = -1;
}

void bpe_fini(struct bpe *b)
{
    xfree(b->rules);
    *b = (struct bpe){0};
}

static struct bpe_rule *rule_slot(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t at = piece_mix(0, (uint64_t)(uint32_t)left << 32 | (uint32_t)right) & b->mask;
    while (b->rules[at].left >= 0 && (b->rules[at].left != left || b->rules[at].right != right))
        at = (at + 1) & b->mask;
    return &b->rules[at];
}

void bpe_put(struct bpe *b, int32_t left, int32_t right, int32_t rank, int32_t product)
{
    *rule_slot(b, left, right) = (struct bpe_rule){left, right, rank, product};
}

const struct bpe_rule *bpe_get(const struct bpe *b, int32_t left, int32_t right)
{
    const struct bpe_rule *r = rule_slot(b, left, right);
    return r->left >= 0 ? r : NULL;
}

struct bpe_work *bpe_work_new(void)
{
    struct bpe_work *w = xcalloc(1, sizeof *w);
    w->cache = xcalloc((size_t)1 << CACHE_BITS, sizeof *w->cache);
    return w;
}

void bpe_work_free(struct bpe_work *w)
{
    if (!w) return;
    xfree(w->cache);
    merger_fini(&w->merger);
    xfree(w);
}

static void merge_short(const struct bpe *b, const unsigned char *p, size_t n, struct tokens *out)
{
    int32_t id[SHORT_MAX], rank[SHORT_MAX], product[SHORT_MAX];
    size_t live = n;
    for (size_t i = 0; i < n; i++) id[i] = b->byte_id[p[i]];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct bpe_rule *r = bpe_get(b, id[i], id[i + 1]);
        rank[i] = r ? r->rank : INT32_MAX;
        product[i] = r ? r->product : -1;
    }
    while (live > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < live; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == INT32_MAX) break;
        id[best] = product[best];
        live--;
        for (size_t i = best + 1; i < live; i++) {
            id[i] = id[i + 1];
            rank[i - 1] = rank[i];
            product[i - 1] = product[i];
        }
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < live; i++) {
            const struct bpe_rule *r = bpe_get(b, id[i], id[i + 1]);
            rank[i] = r ? r->rank : INT32_MAX;
            product[i] = r ? r->product : -1;
        }
    }
    for (size_t i = 0; i < live; i++) tokens_push(out, id[i]);
}

static void merge_long(const struct bpe *b, struct merger *m, const unsigned char *p, size_t n, struct tokens *out)
{
    merger_clear(m);
    for (size_t i = 0; i < n; i++) merger_add(m, b->byte_id[p[i]]);
    merger_run(m, b);
    merger_put(m, out);
}

static void merge(const struct bpe *b, struct bpe_work *w, const unsigned char *p, size_t n, struct tokens *out)
{
    int32_t whole = b->whole ? piece_map_get(b->whole, p, n) : -1;
    if (whole >= 0) tokens_push(out, whole);
    else if (n <= SHORT_MAX) merge_short(b, p, n, out);
    else merge_long(b, &w->merger, p, n, out);
}

void bpe_encode(const struct bpe *b, struct bpe_work *w, const unsigned char *p, size_t n, struct tokens *out)
{
    if (n == 1 && !b->whole) {
        tokens_push(out, b->byte_id[p[0]]);
        return;
    }
    if (n > CACHED_BYTES) {
        merge(b, w, p, n, out);
        return;
    }
    struct cached *c = &w->cache[piece_hash(p, n) >> (64 - CACHE_BITS)];
    if (c->n_bytes != n || memcmp(c->text, p, n)) {
        int64_t before = out->n;
        merge(b, w, p, n, out);
        int64_t n_ids = out->n - before;
        if (n_ids > CACHED_IDS) return;
        c->n_bytes = (unsigned char)n;
        c->n_ids = (unsigned char)n_ids;
        memcpy(c->text, p, n);
        memcpy(c->ids, out->ids + before, (size_t)n_ids * sizeof *c->ids);
        return;
    }
    tokens_reserve(out, CACHED_IDS);
    memcpy(out->ids + out->n, c->ids, sizeof c->ids); /* always nine: cheaper than asking how many */
    out->n += c->n_ids;
}
