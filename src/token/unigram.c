/* SPDX-License-Identifier: Apache-2.0 */
/* unigram.c: Viterbi over a trie of all tokens.
 *
 * The trie's nodes lie in one array, the children of a node next to each other in the order of their bytes; the root's
 * are found by a table. Each position of a piece is the end of a best path: its score, its last token, where that
 * begins. Cost: the sum over positions of the longest token that begins there. A cache of words is in front of it.
 */
#include "token/unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "text/utf8.h"
#include "token/token_cache.h"

static const double UNKNOWN_PENALTY = 10;
enum { NODES_FIRST = 4 << 20, AHEAD = 16 /* texts that are waited for together */ };

struct node {
    int32_t id; /* the token that ends here; -1: none */
    int32_t first_child;
    int16_t n_children;
    unsigned char byte; /* that leads here */
};

struct unigram {
    struct node *nodes; /* [0]: the root */
    int32_t n_nodes, room;
    int32_t root_child[256]; /* -1: none */
    double *scores;          /* by id */
    double unknown_score;
    const struct piece_map *ids;
    int32_t unknown;
    bool fallback;
    int32_t byte_token[256];
};

/* -- making ------------------------------------------------------------------------------------------------- */

struct keyed {
    uint64_t head; /* the first eight bytes, zeros behind the end, as they order texts */
    int32_t id;
};

static uint64_t head_of(const unsigned char *p, size_t n)
{
    uint64_t head = 0;
    for (size_t i = 0; i < 8 && i < n; i++) head |= (uint64_t)p[i] << (56 - 8 * i);
    return head;
}

static bool comes_before(const struct unigram_token *t, int32_t a, int32_t b)
{
    size_t less = t[a].n < t[b].n ? t[a].n : t[b].n;
    int c = memcmp(t[a].p, t[b].p, less);
    if (c) return c < 0;
    return t[a].n != t[b].n ? t[a].n < t[b].n : a < b;
}

/* Those with equal heads, in place, as a heap: strangers' files may have many. */
static void sort_equals(const struct unigram_token *t, struct keyed *k, size_t n)
{
    for (size_t start = n / 2, end = n; end > 1;) {
        if (start) {
            start--;
        } else {
            struct keyed last = k[--end];
            k[end] = k[0];
            k[0] = last;
        }
        struct keyed moved = k[start];
        size_t at = start;
        for (size_t child; (child = 2 * at + 1) < end; at = child) {
            if (child + 1 < end && comes_before(t, k[child].id, k[child + 1].id)) child++;
            if (!comes_before(t, moved.id, k[child].id)) break;
            k[at] = k[child];
        }
        k[at] = moved;
    }
}

/* The tokens ordered by text, then id: by their heads, byte for byte from the last to the first, then those whose heads
 * are equal. */
static struct keyed *sort(const struct unigram_token *t, size_t n)
{
    struct keyed *k = xmalloc_large((n + 1) * sizeof *k), *other = xmalloc_large((n + 1) * sizeof *k);
    size_t(*count)[256] = xcalloc(8, sizeof *count);
    for (size_t i = 0; i < n; i++) {
        k[i] = (struct keyed){head_of(t[i].p, t[i].n), (int32_t)i};
        for (int byte = 0; byte < 8; byte++) count[byte][k[i].head >> 8 * byte & 255]++;
    }
    for (int byte = 0; byte < 8; byte++) {
        size_t before = 0;
        for (int v = 0; v < 256; v++) {
            size_t here = count[byte][v];
            count[byte][v] = before;
            before += here;
        }
        for (size_t i = 0; i < n; i++) other[count[byte][k[i].head >> 8 * byte & 255]++] = k[i];
        struct keyed *sorted = other;
        other = k;
        k = sorted;
    }
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && k[next].head == k[i].head;) next++;
        if (next > i + 1) sort_equals(t, k + i, next - i);
    }
    xfree(count);
    xfree(other);
    return k;
}

/* All texts in their order, one behind the other: the trie is built from its root to its leaves, a pass over them for
 * each level. */
struct texts {
    unsigned char *bytes;
    size_t *at; /* [n + 1] */
    int32_t *id;
};

static struct texts lay_out(const struct unigram_token *t, size_t n)
{
    struct keyed *k = sort(t, n);
    size_t total = 0;
    for (size_t i = 0; i < n; i++) total += t[i].n;
    struct texts s = {.bytes = xmalloc_large(total + 1),
                      .at = xmalloc_large((n + 1) * sizeof *s.at),
                      .id = xmalloc_large((n + 1) * sizeof *s.id)};
    s.at[0] = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 2 * AHEAD < n) __builtin_prefetch(&t[k[i + 2 * AHEAD].id]);
        if (i + AHEAD < n) __builtin_prefetch(t[k[i + AHEAD].id].p);
        s.id[i] = k[i].id;
        memcpy(s.bytes + s.at[i], t[k[i].id].p, t[k[i].id].n);
        s.at[i + 1] = s.at[i] + t[k[i].id].n;
    }
    xfree(k);
    return s;
}

static int32_t add_node(struct unigram *u, unsigned char byte)
{
    GROW(u->nodes, u->n_nodes, u->room, 1);
    u->nodes[u->n_nodes] = (struct node){.id = -1, .byte = byte};
    return u->n_nodes++;
}

/* Texts from..to, which agree up to a level: a node. */
struct span {
    int32_t from, to;
};

/* Nodes in breadth-first order, so that siblings lie together: the spans of a level are the nodes from `first` on. */
static void build(struct unigram *u, const struct texts *s, int32_t n)
{
    struct span *level = xmalloc_large((to_size(n) + 1) * sizeof *level);
    struct span *below = xmalloc_large((to_size(n) + 1) * sizeof *below);
    int32_t n_level = 1, first = add_node(u, 0);
    level[0] = (struct span){0, n};
    for (size_t depth = 0; n_level; depth++) {
        int32_t n_below = 0, next_first = u->n_nodes;
        for (int32_t q = 0; q < n_level; q++) {
            struct span x = level[q];
            struct node *node = &u->nodes[first + q]; /* until a node is added */
            while (x.from < x.to && s->at[x.from + 1] - s->at[x.from] == depth)
                node->id = s->id[x.from++]; /* the last counts */
            node->first_child = u->n_nodes;
            int32_t had = u->n_nodes;
            for (int32_t i = x.from, next; i < x.to; i = next) {
                unsigned char byte = s->bytes[s->at[i] + depth];
                for (next = i + 1; next < x.to && s->bytes[s->at[next] + depth] == byte;) next++;
                below[n_below++] = (struct span){i, next};
                (void)add_node(u, byte);
            }
            u->nodes[first + q].n_children = (int16_t)(u->n_nodes - had);
        }
        struct span *done = level;
        level = below;
        below = done;
        n_level = n_below;
        first = next_first;
    }
    xfree(level);
    xfree(below);
    u->nodes[0].id = -1; /* the empty text is never found */
    for (int i = 0; i < 256; i++) u->root_child[i] = -1;
    for (int i = 0; i < u->nodes[0].n_children; i++)
        u->root_child[u->nodes[u->nodes[0].first_child + i].byte] = u->nodes[0].first_child + i;
}

struct unigram *unigram_new(const struct unigram_token *tokens, int32_t n, const struct piece_map *ids, int32_t unknown,
                            bool byte_fallback)
{
    struct unigram *u = xcalloc(1, sizeof *u);
    u->scores = xmalloc(to_size(n) * sizeof *u->scores);
    double least = INFINITY;
    for (int32_t i = 0; i < n; i++) {
        u->scores[i] = tokens[i].score;
        if (tokens[i].score < least) least = tokens[i].score;
    }
    struct texts texts = lay_out(tokens, to_size(n));
    size_t bytes = texts.at[n];
    u->room = bytes < NODES_FIRST ? (int32_t)bytes + 1 : NODES_FIRST;
    u->nodes = xmalloc_large((size_t)u->room * sizeof *u->nodes);
    build(u, &texts, n);
    xfree(texts.bytes);
    xfree(texts.at);
    xfree(texts.id);
    u->unknown_score = least - UNKNOWN_PENALTY;
    u->ids = ids;
    u->unknown = unknown;
    u->fallback = byte_fallback;
    for (int i = 0; i < 256; i++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        u->byte_token[i] = piece_map_get(ids, (unsigned char *)text, 6);
    }
    return u;
}

void unigram_free(struct unigram *u)
{
    if (!u) return;
    xfree(u->nodes);
    xfree(u->scores);
    xfree(u);
}

/* -- encoding ------------------------------------------------------------------------------------------------ */

/* The best path that ends at a position. */
struct best {
    double score;
    int32_t from, id; /* from < 0: no path ends here */
};

struct unigram_work {
    struct token_cache *cache;
    struct best *best;
    int32_t *ends; /* where the tokens of the best path end, last first */
    size_t best_room, ends_room;
};

struct unigram_work *unigram_work_new(void)
{
    struct unigram_work *w = xcalloc(1, sizeof *w);
    w->cache = token_cache_new();
    return w;
}

void unigram_work_free(struct unigram_work *w)
{
    if (!w) return;
    token_cache_free(w->cache);
    xfree(w->best);
    xfree(w->ends);
    xfree(w);
}

static int32_t child(const struct unigram *u, int32_t at, unsigned char byte)
{
    if (at == 0) return u->root_child[byte];
    const struct node *x = &u->nodes[at];
    int32_t lo = x->first_child, hi = lo + x->n_children;
    while (hi - lo > 8) {
        int32_t mid = lo + (hi - lo) / 2;
        if (u->nodes[mid].byte <= byte) lo = mid;
        else hi = mid;
    }
    for (; lo < hi; lo++)
        if (u->nodes[lo].byte == byte) return lo;
    return -1;
}

static void offer(struct best *b, double score, int32_t from, int32_t id)
{
    if (b->from < 0 || score > b->score) *b = (struct best){score, from, id};
}

static void find_best(const struct unigram *u, struct best *best, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i <= n; i++) best[i] = (struct best){0, -1, 0};
    for (size_t at = 0; at < n;) {
        int len;
        (void)utf8_code(p + at, &len);
        bool single = false;
        int32_t node = 0;
        for (size_t end = at; end < n && (node = child(u, node, p[end])) >= 0; end++) {
            int32_t id = u->nodes[node].id;
            if (id < 0) continue;
            offer(&best[end + 1], u->scores[id] + best[at].score, (int32_t)at, id);
            single = single || end + 1 - at == (size_t)len;
        }
        if (!single) offer(&best[at + (size_t)len], u->unknown_score + best[at].score, (int32_t)at, u->unknown);
        at += (size_t)len;
    }
}

/* Unknown text: a token all the same where its text is one, else its bytes, else the unknown token. */
static void put_unknown(const struct unigram *u, const unsigned char *p, size_t n, struct tokens *out)
{
    int32_t id = piece_map_get(u->ids, p, n);
    bool bytes = id < 0 && u->fallback;
    for (size_t i = 0; i < n && bytes; i++) bytes = u->byte_token[p[i]] >= 0;
    if (!bytes) tokens_push(out, id >= 0 ? id : u->unknown);
    for (size_t i = 0; i < n && bytes; i++) tokens_push(out, u->byte_token[p[i]]);
}

void unigram_encode(const struct unigram *u, struct unigram_work *w, const unsigned char *p, size_t n,
                    struct tokens *out)
{
    if (n == 1 && p[0] >= 0x80) {
        tokens_push(out, u->byte_token[p[0]] >= 0 ? u->byte_token[p[0]] : u->unknown);
        return;
    }
    if (token_cache_get(w->cache, p, n, out)) return;
    CHECK(n < INT32_MAX, "a piece of %zu bytes", n);
    int64_t before = out->n;
    size_t n_ends = 0;
    GROW(w->best, 0, w->best_room, n + 1);
    GROW(w->ends, 0, w->ends_room, n + 1);
    find_best(u, w->best, p, n);
    for (int32_t end = (int32_t)n; end > 0; end = w->best[end].from) w->ends[n_ends++] = end;
    size_t unknown_from = SIZE_MAX;
    while (n_ends--) {
        const struct best *b = &w->best[w->ends[n_ends]];
        if (b->id == u->unknown) {
            if (unknown_from == SIZE_MAX) unknown_from = (size_t)b->from;
            continue;
        }
        if (unknown_from != SIZE_MAX) put_unknown(u, p + unknown_from, (size_t)b->from - unknown_from, out);
        unknown_from = SIZE_MAX;
        tokens_push(out, b->id);
    }
    if (unknown_from != SIZE_MAX) put_unknown(u, p + unknown_from, n - unknown_from, out);
    token_cache_put(w->cache, p, n, out->ids + before, out->n - before);
}
