/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_train.c: merging incrementally.
 *
 * Distinct pieces with their counts are all that there is of the text. Every pair knows its count and the pieces it was
 * seen in, so that a merge touches only those; counts of the neighbours are adjusted in place. The next pair comes
 * from a heap whose entries may be stale: a popped entry whose count has since fallen goes back with the true one,
 * and a pair whose count rises is pushed anew, so the top is always the true maximum.
 *
 * Cost: about O(sum of occurrences of merged pairs * log pairs). Rejected: recounting all
 * pairs for every merge (quadratic), approximate counts (not reproducible against the reference).
 */
#include "token/bpe_train.h"

#include <string.h>

#include "base/mem.h"
#include "token/byte_level.h"
#include "token/bpe.h"
#include "token/tokenizer_write.h"

struct word {
    size_t at; /* bytes in the pool; later: symbols in symbols[] */
    int64_t count;
    int32_t n; /* bytes; later: symbols left */
};

struct pair {
    uint64_t key; /* left << 32 | right */
    int64_t count;
    int32_t *words; /* where it was seen; may hold words that lost it, and repeats */
    int64_t n_words, room;
    int64_t touched; /* the last merge that raised its count */
};

struct ranked {
    int64_t count;
    uint64_t key;
};

struct bpe_trainer {
    struct str pool; /* bytes of the distinct words */
    struct word *words;
    int64_t n_words, words_room;

    int32_t *symbols;
    struct pair *pairs;
    int64_t n_pairs, pairs_room;
    int64_t *pair_slots;
    uint64_t pair_mask;
    struct ranked *heap;
    int64_t n_heap, heap_room;
    int64_t *raised; /* pairs whose count the current merge raised */
    int64_t n_raised, raised_room;

    struct arena *arena; /* bytes of the tokens */
    struct token_text *pieces;
    int32_t n_tokens;
    struct merge_pair *merges;
    int32_t n_merges, merges_room;
};

struct bpe_trainer *bpe_trainer_new(void)
{
    struct bpe_trainer *t = xcalloc(1, sizeof *t);
    t->arena = arena_new();
    return t;
}

void bpe_trainer_free(struct bpe_trainer *t)
{
    if (!t) return;
    str_free(&t->pool);
    for (int64_t i = 0; i < t->n_pairs; i++) xfree(t->pairs[i].words);
    xfree(t->words);
    xfree(t->symbols);
    xfree(t->pairs);
    xfree(t->pair_slots);
    xfree(t->heap);
    xfree(t->raised);
    xfree(t->pieces);
    xfree(t->merges);
    arena_free(t->arena);
    xfree(t);
}

void bpe_trainer_add(struct bpe_trainer *t, const unsigned char *p, size_t n, int64_t count)
{
    CHECK(t->n_words < INT32_MAX && n <= INT32_MAX, "piece %lld has %zu bytes", (long long)t->n_words, n);
    GROW(t->words, t->n_words, t->words_room, 1);
    t->words[t->n_words++] = (struct word){.at = t->pool.n, .count = count, .n = (int32_t)n};
    str_add(&t->pool, p, n);
}

int64_t bpe_trainer_pieces(const struct bpe_trainer *t) { return t->n_words; }

/* -- pairs -------------------------------------------------------------------------------------------------- */

static int64_t *pair_slot(const struct bpe_trainer *t, uint64_t key)
{
    uint64_t at = (key * 0x9E3779B97F4A7C15u) >> 20 & t->pair_mask;
    while (t->pair_slots[at] >= 0 && t->pairs[t->pair_slots[at]].key != key) at = (at + 1) & t->pair_mask;
    return &t->pair_slots[at];
}

static void grow_pairs(struct bpe_trainer *t)
{
    if (t->n_pairs < t->pairs_room) return;
    GROW(t->pairs, t->n_pairs, t->pairs_room, 1);
    t->pair_mask = 2 * (uint64_t)t->pairs_room - 1;
    t->pair_slots = xrealloc(t->pair_slots, (t->pair_mask + 1) * sizeof *t->pair_slots);
    memset(t->pair_slots, 0xFF, (t->pair_mask + 1) * sizeof *t->pair_slots);
    for (int64_t i = 0; i < t->n_pairs; i++) *pair_slot(t, t->pairs[i].key) = i;
}

static struct pair *pair_get(struct bpe_trainer *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    int64_t *slot = pair_slot(t, key);
    if (*slot >= 0) return &t->pairs[*slot];
    *slot = t->n_pairs++;
    t->pairs[t->n_pairs - 1] = (struct pair){.key = key, .touched = -2};
    grow_pairs(t);
    return &t->pairs[t->n_pairs - 1];
}

static void pair_raise(struct bpe_trainer *t, int32_t left, int32_t right, int32_t word)
{
    struct pair *p = pair_get(t, left, right);
    p->count += t->words[word].count;
    if (p->n_words == 0 || p->words[p->n_words - 1] != word) {
        GROW(p->words, p->n_words, p->room, 1);
        p->words[p->n_words++] = word;
    }
    if (p->touched == t->n_merges) return;
    p->touched = t->n_merges;
    GROW(t->raised, t->n_raised, t->raised_room, 1);
    t->raised[t->n_raised++] = p - t->pairs;
}

static void pair_lower(struct bpe_trainer *t, int32_t left, int32_t right, int32_t word)
{
    pair_get(t, left, right)->count -= t->words[word].count;
}

static bool before(const struct ranked *a, const struct ranked *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void heap_push(struct bpe_trainer *t, struct ranked fresh)
{
    GROW(t->heap, t->n_heap, t->heap_room, 1);
    int64_t i = t->n_heap++;
    for (; i > 0 && before(&fresh, &t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = fresh;
}

static struct ranked heap_pop(struct bpe_trainer *t)
{
    struct ranked top = t->heap[0], last = t->heap[--t->n_heap];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < t->n_heap; i = child) {
        if (child + 1 < t->n_heap && before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!before(&t->heap[child], &last)) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

/* Everything raised since the last call goes onto the heap with its count of now. */
static void push_raised(struct bpe_trainer *t)
{
    for (int64_t i = 0; i < t->n_raised; i++) {
        const struct pair *p = &t->pairs[t->raised[i]];
        if (p->count > 0) heap_push(t, (struct ranked){p->count, p->key});
    }
    t->n_raised = 0;
}

/* -- merging ------------------------------------------------------------------------------------------------ */

static void begin_symbols(struct bpe_trainer *t)
{
    int32_t id_of[256];
    for (int i = 0; i < 256; i++) id_of[byte_level_letter(i)] = i;
    t->symbols = xmalloc((t->pool.n + 1) * sizeof *t->symbols);
    for (size_t i = 0; i < t->pool.n; i++) t->symbols[i] = id_of[(unsigned char)t->pool.p[i]];
    str_free(&t->pool);
    grow_pairs(t);
    t->n_merges = -1; /* the counting round is a round of its own for `touched` */
    for (int32_t w = 0; w < t->n_words; w++) {
        const int32_t *s = t->symbols + t->words[w].at;
        for (int32_t i = 0; i + 1 < t->words[w].n; i++) pair_raise(t, s[i], s[i + 1], w);
    }
    t->n_merges = 0;
    push_raised(t);
}

static void merge_in_word(struct bpe_trainer *t, int32_t word, int32_t a, int32_t b, int32_t product)
{
    int32_t *s = t->symbols + t->words[word].at, n = t->words[word].n, out = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i + 1 == n || s[i] != a || s[i + 1] != b) {
            s[out++] = s[i];
            continue;
        }
        if (out > 0) {
            pair_lower(t, s[out - 1], a, word);
            pair_raise(t, s[out - 1], product, word);
        }
        if (i + 2 < n) {
            pair_lower(t, b, s[i + 2], word);
            pair_raise(t, product, s[i + 2], word);
        }
        s[out++] = product;
        i++;
    }
    t->words[word].n = out;
}

static void add_piece(struct bpe_trainer *t, struct piece_map *known, const void *a, size_t na, const void *b,
                      size_t nb)
{
    unsigned char *p = arena_alloc(t->arena, na + nb);
    memcpy(p, a, na);
    if (nb) memcpy(p + na, b, nb);
    t->pieces[t->n_tokens] = (struct token_text){.p = p, .n = na + nb};
    piece_map_put(known, p, na + nb, t->n_tokens++);
}

/* The token of left + right: a new one, or one that another pair made before. */
static int32_t product_of(struct bpe_trainer *t, struct piece_map *known, int32_t left, int32_t right)
{
    struct token_text a = t->pieces[left], b = t->pieces[right];
    struct str whole = {0};
    str_add(&whole, a.p, a.n);
    str_add(&whole, b.p, b.n);
    int32_t id = piece_map_get(known, (unsigned char *)whole.p, whole.n);
    str_free(&whole);
    if (id >= 0) return id;
    add_piece(t, known, a.p, a.n, b.p, b.n);
    return t->n_tokens - 1;
}

/* One merge; false when no pair occurs often enough. */
static bool merge_next(struct bpe_trainer *t, struct piece_map *known, int64_t min_count)
{
    while (t->n_heap) {
        struct ranked top = heap_pop(t);
        int64_t index = *pair_slot(t, top.key), now = t->pairs[index].count;
        if (now != top.count) {
            if (now > 0 && now < top.count) heap_push(t, (struct ranked){now, top.key});
            continue; /* a higher count was pushed when it rose */
        }
        if (top.count < min_count) return false;
        int32_t left = (int32_t)(top.key >> 32), right = (int32_t)(uint32_t)top.key;
        int32_t product = product_of(t, known, left, right);
        int32_t *words = t->pairs[index].words;
        int64_t n_words = t->pairs[index].n_words;
        t->pairs[index].words = NULL;
        t->pairs[index].n_words = t->pairs[index].room = 0;
        for (int64_t i = 0; i < n_words; i++) merge_in_word(t, words[i], left, right, product);
        xfree(words);
        t->pairs[index].count = 0;
        GROW(t->merges, t->n_merges, t->merges_room, 1);
        t->merges[t->n_merges] = (struct merge_pair){left, right};
        push_raised(t);
        t->n_merges++;
        return true;
    }
    return false;
}

int bpe_trainer_finish(struct bpe_trainer *t, const struct train_style *style, int32_t vocab, int64_t min_count,
                       struct str *json, int32_t *reached, struct err *e)
{
    if (vocab < BPE_TRAIN_VOCAB_MIN || vocab > BPE_TRAIN_VOCAB_MAX)
        return err_set(e, ERR_REQUEST, "a vocabulary of %d: wanted %d (256 bytes and the end of text) to %d", vocab,
                       BPE_TRAIN_VOCAB_MIN, BPE_TRAIN_VOCAB_MAX);
    if (t->n_words == 0) return err_set(e, ERR_REQUEST, "there is no text to learn a vocabulary from");
    struct piece_map known;
    piece_map_init(&known, vocab);
    t->pieces = xmalloc((size_t)vocab * sizeof *t->pieces);
    for (int i = 0; i < 256; i++) {
        unsigned char byte = byte_level_letter(i);
        add_piece(t, &known, &byte, 1, NULL, 0);
    }
    begin_symbols(t);
    while (t->n_tokens < vocab - 1 && merge_next(t, &known, min_count)) continue;
    piece_map_fini(&known);
    *reached = t->n_tokens + 1;
    const char *splits[TRAIN_SPLITS];
    int n_splits = train_style_splits(style, splits);
    tokenizer_write(json, &(struct tokenizer_draft){.pieces = t->pieces,
                                                    .n_pieces = t->n_tokens,
                                                    .merges = t->merges,
                                                    .n_merges = t->n_merges,
                                                    .splits = splits,
                                                    .n_splits = n_splits,
                                                    .eos = TRAIN_EOS});
    return OK;
}
