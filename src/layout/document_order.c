/* SPDX-License-Identifier: Apache-2.0 */
/* Segments, then places. A segment is so many tokens of a document in a chunk; which of its tokens follows from the
 * document's segments in the order of chunks, so any assignment of counts keeps every document's order. */
#include "layout/document_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "layout/document_ids.h"
#include "layout/sequence.h"
#include "layout/region.h"

struct document {
    int64_t begin, n, before; /* before: tokens of its prefix, which all of it sees */
    bool both;                /* it is a prefix: its tokens see each other in both directions */
};

struct segment {
    int chunk;
    int64_t document, n;
};

struct deal {
    const struct document *d; /* in the sequence's order */
    int64_t n_docs, seq;
    int n;         /* parts */
    int64_t *room; /* [2n] tokens that chunks can still take */
    double *work;  /* [n] of parts, so far */
    struct segment *s;
    int64_t n_s, s_room;
};

/* Keys that a query's block meets beside its own, for each chunk its document has keys in: half a block of 64. */
#define EDGE 32.0

static int part_of(const struct deal *x, int chunk) { return chunk < x->n ? chunk : 2 * x->n - 1 - chunk; }

/* Keys that tokens [at, at + n) of a document see. */
static double pairs_of(const struct document *d, int64_t at, int64_t n)
{
    if (d->both) return (double)n * (double)d->n;
    return (double)n * ((double)(d->before + at) + ((double)n + 1) / 2);
}

/* n tokens of document d to a chunk; before: those in earlier chunks, pieces: how many chunks these and it are. */
static void give(struct deal *x, int64_t d, int chunk, int64_t n, int64_t before, int pieces)
{
    if (!n) return;
    GROW(x->s, x->n_s, x->s_room, 1);
    x->s[x->n_s++] = (struct segment){chunk, d, n};
    x->room[chunk] -= n;
    CHECK(x->room[chunk] >= 0, "chunk %d has no room for %lld tokens", chunk, (long long)n);
    x->work[part_of(x, chunk)] += pairs_of(&x->d[d], before, n) + (double)n * EDGE * pieces;
}

/* A document in pieces: the same number to each chunk, and one more to as many as are left, those with the most room.
 */
static void give_pieces(struct deal *x, int64_t d)
{
    int chunks = 2 * x->n, *most = xmalloc((size_t)chunks * sizeof *most);
    int64_t each = x->d[d].n / chunks, left = x->d[d].n % chunks, before = 0;
    for (int c = 0; c < chunks; c++) { /* sorted by room, which differs little */
        int i = c;
        for (; i > 0 && x->room[most[i - 1]] < x->room[c]; i--) most[i] = most[i - 1];
        most[i] = c;
    }
    unsigned char *more = xcalloc((size_t)chunks, 1);
    for (int64_t i = 0; i < left; i++) more[most[i]] = 1;
    for (int c = 0, pieces = 0; c < chunks; c++) {
        int64_t n = each + more[c];
        pieces += n > 0;
        give(x, d, c, n, before, pieces);
        before += n;
    }
    xfree(most);
    xfree(more);
}

/* Whole to the part with least work that has room; in the head first, then in the tail. False: none has. */
static bool give_whole(struct deal *x, int64_t d)
{
    int best = -1;
    int64_t n = x->d[d].n;
    for (int p = 0; p < x->n; p++)
        if (x->room[p] + x->room[2 * x->n - 1 - p] >= n && (best < 0 || x->work[p] < x->work[best])) best = p;
    if (best < 0) return false;
    int64_t head = x->room[best] < n ? x->room[best] : n;
    give(x, d, best, head, 0, 1);
    give(x, d, 2 * x->n - 1 - best, n - head, head, head ? 2 : 1);
    return true;
}

/* Over whatever is free, from the first chunk on. */
static void give_anywhere(struct deal *x, int64_t d)
{
    int64_t left = x->d[d].n, before = 0;
    for (int c = 0, pieces = 0; left; c++) {
        int64_t n = x->room[c] < left ? x->room[c] : left;
        pieces += n > 0;
        give(x, d, c, n, before, pieces);
        before += n;
        left -= n;
    }
}

static int by_length(const void *a, const void *b)
{
    const struct document *x = *(const struct document *const *)a, *y = *(const struct document *const *)b;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Deals all documents, those of at least `cut` tokens in pieces; returns the busiest part's work. by_n: from long to
 * short. */
static double deal(struct deal *x, const struct document *const *by_n, int64_t cut)
{
    double most = 0;
    int64_t lo, hi;
    x->n_s = 0;
    for (int c = 0; c < 2 * x->n; c++) {
        region_split(x->seq, c, 2 * x->n, &lo, &hi);
        x->room[c] = hi - lo;
    }
    memset(x->work, 0, (size_t)x->n * sizeof *x->work);
    for (int64_t i = 0; i < x->n_docs; i++) {
        int64_t d = by_n[i] - x->d;
        if (by_n[i]->n >= cut) give_pieces(x, d);
        else if (!give_whole(x, d)) give_anywhere(x, d);
    }
    for (int p = 0; p < x->n; p++) most = x->work[p] > most ? x->work[p] : most;
    return most;
}

static double plain_work(struct deal *x)
{
    double most = 0;
    x->n_s = 0;
    int chunk = 0;
    int64_t lo, hi;
    memset(x->work, 0, (size_t)x->n * sizeof *x->work);
    region_split(x->seq, 0, 2 * x->n, &lo, &hi);
    x->room[0] = hi;
    for (int64_t d = 0; d < x->n_docs; d++) {
        int64_t at = x->d[d].begin, end = at + x->d[d].n;
        for (int pieces = 1; at < end; pieces++) {
            while (hi <= at) {
                region_split(x->seq, ++chunk, 2 * x->n, &lo, &hi);
                x->room[chunk] = hi - lo;
            }
            int64_t n = (hi < end ? hi : end) - at;
            give(x, d, chunk, n, at - x->d[d].begin, pieces);
            at += n;
        }
    }
    for (int p = 0; p < x->n; p++) most = x->work[p] > most ? x->work[p] : most;
    return most;
}

static int by_place(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;
    if (x->chunk != y->chunk) return x->chunk < y->chunk ? -1 : 1;
    return x->document < y->document ? -1 : x->document > y->document;
}

/* Segments in the order of chunks, and in a chunk of documents, take the tokens of their documents in turn. */
static void place(struct deal *x, int64_t *order)
{
    int64_t at = 0, *taken = xcalloc(to_size(x->n_docs), sizeof *taken);
    qsort(x->s, to_size(x->n_s), sizeof *x->s, by_place);
    for (int64_t i = 0; i < x->n_s; i++)
        for (int64_t k = 0; k < x->s[i].n; k++) order[at++] = x->d[x->s[i].document].begin + taken[x->s[i].document]++;
    CHECK(at == x->seq, "%lld of %lld tokens have a place", (long long)at, (long long)x->seq);
    xfree(taken);
}

/* Without ids all is one document. */
static int32_t id_of(const int32_t *docs, int64_t i) { return docs ? docs[i] : 0; }

/* Tokens of the prefix before token i, which begins a run. */
static int64_t prefix_before(const struct document *last, const int32_t *docs, bool marked, int64_t i)
{
    bool goes_on = marked && i && document_of_marked(id_of(docs, i)) == document_of_marked(id_of(docs, i - 1));
    return goes_on && last->both ? last->n : 0;
}

static struct document *runs_of(const int32_t *docs, bool marked, int64_t seq, int64_t *n)
{
    struct document *d = NULL;
    int64_t room = 0;
    *n = 0;
    for (int64_t i = 0; i < seq; i++) {
        if (i && id_of(docs, i) == id_of(docs, i - 1)) {
            d[*n - 1].n++;
            continue;
        }
        GROW(d, *n, room, 1);
        d[*n] = (struct document){i, 1, i ? prefix_before(&d[*n - 1], docs, marked, i) : 0,
                                  marked && document_in_prefix(id_of(docs, i))};
        ++*n;
    }
    return d;
}

void document_order(const int32_t *docs, bool marked, int64_t seq, int n, int64_t *order)
{
    struct deal x = {.seq = seq, .n = n};
    struct document *d = runs_of(docs, marked, seq, &x.n_docs);
    x.d = d;
    x.room = xcalloc(2 * (size_t)n, sizeof *x.room);
    x.work = xcalloc((size_t)n, sizeof *x.work);
    const struct document **by_n = xmalloc(to_size(x.n_docs + 1) * sizeof *by_n);
    for (int64_t i = 0; i < x.n_docs; i++) by_n[i] = &d[i];
    if (x.n_docs) qsort(by_n, to_size(x.n_docs), sizeof *by_n, by_length);
    for (int64_t i = 0; i < seq; i++) order[i] = i;
    double least = plain_work(&x);
    int64_t best = 0;
    for (int64_t cut = 2 * seq; cut >= 2 * n && n > 1; cut /= 2) { /* the first: none is cut */
        double work = deal(&x, by_n, cut);
        if (work < least) {
            least = work;
            best = cut;
        }
    }
    if (best) {
        deal(&x, by_n, best);
        place(&x, order);
    }
    xfree(by_n);
    xfree(x.room);
    xfree(x.work);
    xfree(x.s);
    xfree(d);
}

/* [i]: keys that token i sees, itself too. */
static int64_t *keys_seen(const int32_t *docs, bool marked, int64_t seq)
{
    int64_t n_docs, *keys = xmalloc(to_size(seq + 1) * sizeof *keys);
    struct document *d = runs_of(docs, marked, seq, &n_docs);
    for (int64_t k = 0; k < n_docs; k++)
        for (int64_t i = 0; i < d[k].n; i++) keys[d[k].begin + i] = d[k].both ? d[k].n : d[k].before + i + 1;
    xfree(d);
    return keys;
}

void document_pairs(const int32_t *docs, bool marked, int64_t seq, int n, const int64_t *order, double *pairs)
{
    int64_t *keys = keys_seen(docs, marked, seq);
    for (int p = 0; p < n; p++) {
        pairs[p] = 0;
        for (int64_t i = 0, rows = context_rows(seq, n, p, 1); i < rows; i++) {
            int64_t at = context_place(seq, n, p, i);
            pairs[p] += (double)keys[order ? order[at] : at];
        }
    }
    xfree(keys);
}

void document_pairs_of(const int32_t *docs, bool marked, int64_t seq, int n, int part, const int64_t *order,
                       int64_t *as_is, int64_t *plain)
{
    int64_t *keys = keys_seen(docs, marked, seq);
    for (int64_t i = 0, rows = context_rows(seq, n, part, 1); i < rows; i++) {
        int64_t at = context_place(seq, n, part, i);
        *plain += keys[at];
        *as_is += keys[order ? order[at] : at];
    }
    xfree(keys);
}
