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

struct sorted {
    const unsigned char *p;
    uint64_t head; /* the first eight bytes, zeros behind the end, as they order texts */
    uint32_t n;
    int32_t id;
};

static uint64_t head_of(const unsigned char *p, size_t n)
{
    uint64_t head = 0;
    for (size_t i = 0; i < 8; i++) head = head << 8 | (i < n ? p[i] : 0);
    return head;
}

static int by_text_then_id(const void *x, const void *y)
{
    const struct sorted *a = x, *b = y;
    if (a->head != b->head) return a->head < b->head ? -1 : 1;
    int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int32_t add_node(struct unigram *u, unsigned char byte)
{
    GROW(u->nodes, u->n_nodes, u->room, 1);
    u->nodes[u->n_nodes] = (struct node){.id = -1, .byte = byte};
    return u->n_nodes++;
}

/* A node whose subtree are the texts s[from..to), which agree in their first `depth` bytes. */
struct span {
    int32_t node, from, to;
    uint32_t depth;
};

/* Nodes in breadth-first order, so that siblings lie together. */
static void build(struct unigram *u, const struct sorted *s, int32_t n)
{
    struct span *queue = NULL;
    int64_t queue_n = 0, queue_room = 0;
    GROW(queue, queue_n, queue_room, 1);
    queue[queue_n++] = (struct span){add_node(u, 0), 0, n, 0};
    for (int64_t q = 0; q < queue_n; q++) {
        struct span x = queue[q];
        while (x.from < x.to && s[x.from].n == x.depth) u->nodes[x.node].id = s[x.from++].id; /* the last counts */
        u->nodes[x.node].first_child = u->n_nodes;
        for (int32_t i = x.from, next; i < x.to; i = next) {
            unsigned char byte = s[i].p[x.depth];
            for (next = i; next < x.to && s[next].p[x.depth] == byte;) next++;
            GROW(queue, queue_n, queue_room, 1);
            queue[queue_n++] = (struct span){add_node(u, byte), i, next, x.depth + 1};
            u->nodes[x.node].n_children++;
        }
    }
    xfree(queue);
    u->nodes[0].id = -1; /* the empty text is never found */
    for (int i = 0; i < 256; i++) u->root_child[i] = -1;
    for (int i = 0; i < u->nodes[0].n_children; i++)
        u->root_child[u->nodes[u->nodes[0].first_child + i].byte] = u->nodes[0].first_child + i;
}

struct unigram *unigram_new(const struct unigram_token *tokens, int32_t n, const struct piece_map *ids, int32_t unknown,
                            bool byte_fallback)
{
    struct unigram *u = xcalloc(1, sizeof *u);
    struct sorted *sorted = xmalloc(to_size(n) * sizeof *sorted);
    u->scores = xmalloc(to_size(n) * sizeof *u->scores);
    double least = INFINITY;
    for (int32_t i = 0; i < n; i++) {
        CHECK(tokens[i].n <= UINT32_MAX, "a token of %zu bytes", tokens[i].n);
        sorted[i] = (struct sorted){tokens[i].p, head_of(tokens[i].p, tokens[i].n), (uint32_t)tokens[i].n, i};
        u->scores[i] = tokens[i].score;
        if (tokens[i].score < least) least = tokens[i].score;
    }
    qsort(sorted, to_size(n), sizeof *sorted, by_text_then_id);
    build(u, sorted, n);
    xfree(sorted);
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
