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

/* Bytes of a token -> its id. Up to eight bytes stand in the slot, so most texts are found with one look at memory. */
struct piece_map {
    struct piece_slot *slots;
    uint64_t mask, seed;
    int64_t n;
};
struct piece_slot {
    uint64_t text; /* piece_few of up to FEW bytes; of more, where they are: borrowed */
    uint32_t room; /* bytes and one; 0: an empty slot */
    int32_t id;
};
void piece_map_init(struct piece_map *m, int64_t n_expected);
void piece_map_fini(struct piece_map *m);
/* m, which is not yet one, becomes the same as another that was made for as many. */
void piece_map_copy(struct piece_map *m, const struct piece_map *from);
/* False when the bytes are there already (and keeps the first). The bytes stay the caller's and must stay. */
bool piece_map_put(struct piece_map *m, const unsigned char *p, size_t n, int32_t id);
int32_t piece_map_get(const struct piece_map *m, const unsigned char *p, size_t n); /* -1: absent */
/* Both halves of piece_map_put: the first asks for the memory that the second needs, and what is between them is time
 * in which it comes. */
uint64_t piece_map_expect(const struct piece_map *m, const unsigned char *p, size_t n);
bool piece_map_put_expected(struct piece_map *m, uint64_t hash, const unsigned char *p, size_t n, int32_t id);

struct bpe_rule {
    int32_t left, right, product; /* its number is its rank */
};
enum { BPE_MAYBE_BITS = 18 };
struct bpe {
    struct bpe_rule *rules; /* by rank */
    int64_t n;
    uint32_t *places; /* hash table over (left, right): 0 none, else a rank and one, and the hash's bits above it */
    uint32_t mask;
    uint64_t *maybe; /* a bit for each hash, 32 KiB: 0: no rule. Most pairs have none, and this stays in the cache */
    int32_t byte_id[256];
    const struct piece_map *whole; /* "ignore_merges": a piece that is a token stays whole; NULL: off */
};
void bpe_init(struct bpe *b, int64_t n_rules);
void bpe_fini(struct bpe *b);
/* rank < n_rules, each once. A pair given twice keeps the later rank, as the reference does. */
void bpe_put(struct bpe *b, int32_t left, int32_t right, int32_t rank, int32_t product);
/* Tables of texts and of rules are seeded by their addresses: files come from strangers. */
static inline uint64_t bpe_hash(const struct bpe *b, int32_t left, int32_t right)
{
    return piece_mix((uint64_t)(uintptr_t)b->places, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}
/* Asks for the memory in which the pair is, or will be. */
static inline void bpe_expect(const struct bpe *b, int32_t left, int32_t right)
{
    __builtin_prefetch(&b->places[bpe_hash(b, left, right) & b->mask]);
}
/* The pair's place, or where it would be: a place of another hash is passed without a look at its rule. */
static inline uint32_t *bpe_place(const struct bpe *b, uint64_t h, int32_t left, int32_t right)
{
    for (uint32_t at = (uint32_t)h & b->mask;; at = (at + 1) & b->mask) {
        uint32_t v = b->places[at];
        if (!v) return &b->places[at];
        if ((v ^ (uint32_t)h) & ~b->mask) continue;
        const struct bpe_rule *r = &b->rules[(v & b->mask) - 1];
        if (r->left == left && r->right == right) return &b->places[at];
    }
}
/* NULL: no rule. */
static inline const struct bpe_rule *bpe_get(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t h = bpe_hash(b, left, right), bit = h >> (64 - BPE_MAYBE_BITS);
    if (!(b->maybe[bit / 64] >> bit % 64 & 1)) return NULL;
    uint32_t v = *bpe_place(b, h, left, right);
    return v ? &b->rules[(v & b->mask) - 1] : NULL;
}
static inline int32_t bpe_rank(const struct bpe *b, const struct bpe_rule *r) { return (int32_t)(r - b->rules); }

struct bpe_work; /* a cache of short pieces and room for merging; serves one struct bpe */
struct bpe_work *bpe_work_new(void);
void bpe_work_free(struct bpe_work *w);
void bpe_encode(const struct bpe *b, struct bpe_work *w, const unsigned char *p, size_t n, struct tokens *out);

#endif
