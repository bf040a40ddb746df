/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c: an entry of the heap is not removed when one of its symbols is swallowed; what it meant is compared when it
 * comes up. */
#include "token/merge.h"

#include <string.h>

#include "base/mem.h"

struct merge_pending {
    uint64_t order; /* rank << 32 | position */
    int32_t product;
};

void merger_fini(struct merger *m)
{
    xfree(m->s);
    xfree(m->heap);
    *m = (struct merger){0};
}

void merger_add(struct merger *m, int32_t id)
{
    GROW(m->s, m->n, m->room, 1);
    if (m->n) m->s[m->n - 1].next = (int32_t)m->n;
    m->s[m->n] = (struct merge_symbol){id, (int32_t)m->n - 1, -1};
    m->n++;
}

/* The pair that begins at a symbol, if it has a rule. */
static void push(struct merger *m, const struct bpe *rules, int32_t at)
{
    const struct merge_symbol *s = &m->s[at];
    const struct bpe_rule *r = s->next < 0 ? NULL : bpe_get(rules, s->id, m->s[s->next].id);
    if (!r) return;
    GROW(m->heap, m->heap_n, m->heap_room, 1);
    struct merge_pending fresh = {.order = (uint64_t)bpe_rank(rules, r) << 32 | (uint32_t)at, .product = r->product};
    size_t i = m->heap_n++;
    for (; i > 0 && m->heap[(i - 1) / 2].order > fresh.order; i = (i - 1) / 2) m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = fresh;
}

static struct merge_pending pop(struct merger *m)
{
    struct merge_pending top = m->heap[0], last = m->heap[--m->heap_n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->heap_n; i = child) {
        if (child + 1 < m->heap_n && m->heap[child + 1].order < m->heap[child].order) child++;
        if (m->heap[child].order >= last.order) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

void merger_run(struct merger *m, const struct bpe *rules)
{
    struct merge_symbol *s = m->s;
    m->heap_n = 0;
    for (size_t i = 0; i + 1 < m->n; i++) push(m, rules, (int32_t)i);
    while (m->heap_n) {
        struct merge_pending best = pop(m);
        int32_t at = (int32_t)(uint32_t)best.order, right = s[at].next;
        if (s[at].id < 0 || right < 0) continue;
        const struct bpe_rule *now = bpe_get(rules, s[at].id, s[right].id);
        if (!now || now->product != best.product) continue; /* the pair this entry meant is gone */
        s[at].id = best.product;
        s[at].next = s[right].next;
        s[right].id = -1;
        if (s[at].next >= 0) s[s[at].next].prev = at;
        if (s[at].prev >= 0) push(m, rules, s[at].prev);
        push(m, rules, at);
    }
}

void merger_put(const struct merger *m, struct tokens *out)
{
    for (int32_t i = m->n ? 0 : -1; i >= 0; i = m->s[i].next) tokens_push(out, m->s[i].id);
}

/* A pair's key: its rank, then its place, so that the smallest is the next to merge; NONE: no rule. */
enum { PLACE_BITS = 7, NONE = INT32_MAX, PADDED = (MERGE_FEW + 15) / 16 * 16 };
_Static_assert(MERGE_FEW < 1 << PLACE_BITS, "a place fits a key");

struct few {
    int32_t key[PADDED], product[MERGE_FEW];
    unsigned char next[MERGE_FEW + 1], before[MERGE_FEW + 1]; /* n: none */
};

static void weigh(const struct bpe *rules, struct few *f, const int32_t *id, size_t at, size_t n)
{
    const struct bpe_rule *r = f->next[at] < n ? bpe_get(rules, id[at], id[f->next[at]]) : NULL;
    f->key[at] = r ? (int32_t)((uint32_t)bpe_rank(rules, r) << PLACE_BITS | (uint32_t)at) : NONE;
    if (r) f->product[at] = r->product;
}

static int32_t smallest(const int32_t *key, size_t n)
{
    int32_t least[16];
    memcpy(least, key, sizeof least);
    for (size_t i = 16; i < n; i += 16)
        for (size_t k = 0; k < 16; k++) least[k] = key[i + k] < least[k] ? key[i + k] : least[k];
    for (size_t half = 8; half; half /= 2)
        for (size_t k = 0; k < half; k++) least[k] = least[k + half] < least[k] ? least[k + half] : least[k];
    return least[0];
}

static size_t merge_few(const struct bpe *rules, int32_t *id, size_t n)
{
    struct few f;
    size_t padded = (n + 15) / 16 * 16, left = 0;
    for (size_t i = 0; i <= n; i++) {
        f.next[i] = (unsigned char)(i + 1);
        f.before[i] = (unsigned char)(i ? i - 1 : n);
    }
    for (size_t i = 0; i < n; i++) weigh(rules, &f, id, i, n);
    for (size_t i = n; i < padded; i++) f.key[i] = NONE;
    for (int32_t key; n && (key = smallest(f.key, padded)) != NONE;) {
        size_t at = (size_t)key & ((1 << PLACE_BITS) - 1), gone = f.next[at];
        id[at] = f.product[at];
        f.key[gone] = NONE;
        f.next[at] = f.next[gone];
        f.before[f.next[gone]] = (unsigned char)at;
        weigh(rules, &f, id, at, n);
        if (f.before[at] < n) weigh(rules, &f, id, f.before[at], n);
    }
    for (size_t i = 0; i < n; i = f.next[i]) id[left++] = id[i];
    return left;
}

void merge_symbols(const struct bpe *rules, struct merger *m, int32_t *id, size_t n, struct tokens *out)
{
    if (n <= MERGE_FEW) {
        n = merge_few(rules, id, n);
        tokens_reserve(out, (int64_t)n);
        if (n) memcpy(out->ids + out->n, id, n * sizeof *id);
        out->n += (int64_t)n;
        return;
    }
    merger_clear(m);
    for (size_t i = 0; i < n; i++) merger_add(m, id[i]);
    merger_run(m, rules);
    merger_put(m, out);
}
