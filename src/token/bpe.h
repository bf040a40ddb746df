/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h: byte-pair merging of one piece of text.
 *
 * A piece starts as its bytes; of all neighbouring pairs that have a rule, the one of the lowest rank (leftmost on a
 * tie) is replaced by its product, until none is left. Exactly the reference's result, in the same order.
 *
 * Includes: base, tokens.h, piece_hash.h. Order: Local; struct bpe is read-only once filled and shared, a bpe_work
 * belongs to one thread.
 */
#ifndef TUTTI_TOKEN_BPE_H
#define TUTTI_TOKEN_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/piece_hash.h"
#include "token/tokens.h"

/* Bytes of a token -> its id. */
struct piece_map {
    struct piece_slot *slots;
    uint64_t mask;
    int64_t n;
};
struct piece_slot {
    const unsigned char *p; /* borrowed; NULL: empty */
    uint32_t n;
    int32_t id;
};
void piece_map_init(struct piece_map *m, int64_t n_expected);
void piece_map_fini(struct piece_map *m);
/* False when the bytes are there already (and keeps the first). The bytes stay the caller's and must stay. */
bool piece_map_put(struct piece_map *m, const unsigned char *p, size_t n, int32_t id);
/* Asks for the memory in which the bytes will be put. */
void piece_map_expect(const struct piece_map *m, const unsigned char *p, size_t n);
int32_t piece_map_get(const struct piece_map *m, const unsigned char *p, size_t n); /* -1: absent */
/* The same of many texts: a large table's memory is waited for together. */
struct piece_asked {
    const unsigned char *p;
    size_t n;
    uint64_t hash;
    int32_t id; /* the answer */
};
void piece_map_get_many(const struct piece_map *m, struct piece_asked *asked, size_t n);

struct bpe_rule {
    int32_t left, right; /* left < 0: empty slot */
    int32_t rank, product;
};
enum { BPE_MAYBE_BITS = 18 };
struct bpe {
    struct bpe_rule *rules; /* hash table over (left, right) */
    uint64_t mask;
    uint64_t *maybe; /* a bit for each hash, 32 KiB: 0: no rule. Most pairs have none, and this stays in the cache */
    int32_t byte_id[256];
    const struct piece_map *whole; /* "ignore_merges": a piece that is a token stays whole; NULL: off */
};
void bpe_init(struct bpe *b, int64_t n_rules);
void bpe_fini(struct bpe *b);
/* A pair given twice keeps the later rank, as the reference does. */
void bpe_put(struct bpe *b, int32_t left, int32_t right, int32_t rank, int32_t product);
/* Tables of texts and of rules are seeded by their addresses: files come from strangers. */
static inline uint64_t bpe_hash(const struct bpe *b, int32_t left, int32_t right)
{
    return piece_mix((uint64_t)(uintptr_t)b->rules, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}
/* Asks for the memory in which the pair is, or will be. */
static inline void bpe_expect(const struct bpe *b, int32_t left, int32_t right)
{
    __builtin_prefetch(&b->rules[bpe_hash(b, left, right) & b->mask]);
}
/* NULL: no rule. */
static inline const struct bpe_rule *bpe_get(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t h = bpe_hash(b, left, right), bit = h >> (64 - BPE_MAYBE_BITS);
    if (!(b->maybe[bit / 64] >> bit % 64 & 1)) return NULL;
    for (uint64_t at = h & b->mask; b->rules[at].left >= 0; at = (at + 1) & b->mask)
        if (b->rules[at].left == left && b->rules[at].right == right) return &b->rules[at];
    return NULL;
}

struct bpe_work; /* a cache of short pieces and room for merging; serves one struct bpe */
struct bpe_work *bpe_work_new(void);
void bpe_work_free(struct bpe_work *w);
void bpe_encode(const struct bpe *b, struct bpe_work *w, const unsigned char *p, size_t n, struct tokens *out);

#endif
