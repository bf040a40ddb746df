/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c: best-fit decreasing in linear time.
 *
 * Room in a sample is a number from 0 to the sequence, so samples wait in a list per room, and which rooms have a list
 * is a bit each, with a bit per 64 of those above: the least room that is enough is found in a few words. Pieces are
 * sorted by counting, 11 bits of their length at a time. Rejected: a tree of rooms, which is slower and more of it.
 */
#include "data/pack.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

/* ---- rooms ---- */
struct rooms {
    int64_t seq;
    uint64_t *some, *above; /* a bit per room that has a sample; a bit per word of those */
    int64_t *head, *next;   /* by room: the sample that came last; by sample: the one that came before */
};

static void rooms_init(struct rooms *r, int64_t seq, int64_t n_samples)
{
    int64_t words = seq / 64 + 1;
    *r = (struct rooms){.seq = seq,
                        .some = xcalloc(to_size(words), sizeof *r->some),
                        .above = xcalloc(to_size(words / 64 + 1), sizeof *r->above),
                        .head = xmalloc(to_size(seq + 1) * sizeof *r->head),
                        .next = xmalloc(to_size(n_samples + 1) * sizeof *r->next)};
}

static void rooms_fini(struct rooms *r)
{
    xfree(r->some);
    xfree(r->above);
    xfree(r->head);
    xfree(r->next);
}

static bool has(const struct rooms *r, int64_t room) { return r->some[room / 64] >> (room % 64) & 1; }

static void put(struct rooms *r, int64_t room, int64_t sample)
{
    if (!room) return;
    r->next[sample] = has(r, room) ? r->head[room] : -1;
    r->head[room] = sample;
    r->some[room / 64] |= (uint64_t)1 << (room % 64);
    r->above[room / 4096] |= (uint64_t)1 << (room / 64 % 64);
}

static int64_t take(struct rooms *r, int64_t room)
{
    int64_t sample = r->head[room];
    r->head[room] = r->next[sample];
    if (r->head[room] >= 0) return sample;
    r->some[room / 64] &= ~((uint64_t)1 << (room % 64));
    if (!r->some[room / 64]) r->above[room / 4096] &= ~((uint64_t)1 << (room / 64 % 64));
    return sample;
}

/* Bits of a word from bit `at` on. */
static uint64_t from(uint64_t word, int64_t at) { return word >> at << at; }

/* The least room of at least n that a sample has; -1. */
static int64_t least(const struct rooms *r, int64_t n)
{
    uint64_t word = from(r->some[n / 64], n % 64);
    if (word) return n / 64 * 64 + __builtin_ctzll(word);
    int64_t next = n / 64 + 1, n_above = (r->seq / 64 + 1) / 64 + 1;
    for (int64_t i = next / 64; i < n_above; i++) {
        uint64_t above = i == next / 64 ? from(r->above[i], next % 64) : r->above[i];
        if (!above) continue;
        int64_t w = i * 64 + __builtin_ctzll(above);
        return w * 64 + __builtin_ctzll(r->some[w]);
    }
    return -1;
}

/* ---- pieces ---- */
static int64_t inputs(int64_t n_tokens) { return n_tokens > 1 ? n_tokens - 1 : 0; }

/* The numbers below n in an order drawn from `shuffle`: an exchange for each (Fisher and Yates), four draws at a time.
 */
static int64_t *shuffled(uint64_t shuffle, int64_t n)
{
    int64_t *order = xmalloc(to_size(n + 1) * sizeof *order);
    uint32_t draw[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0) rng_block(shuffle, 0, (uint64_t)i / 4, draw);
        int64_t j = (int64_t)((uint64_t)draw[i % 4] * (uint64_t)(i + 1) >> 32);
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

/* Pieces of all documents, in an order of documents that is shuffled or not. Where every piece is a sample and samples
 * stay as they come, there is nothing to shuffle: their order is another's (sampler.h). */
static struct pack_piece *cut(const struct pack_options *o, const int64_t *n_tokens, int64_t n, int64_t *n_pieces)
{
    struct pack_piece *p = NULL;
    bool mixes = o->shuffled && (o->kind == PACK_BEST_FIT || o->by_area);
    int64_t room = 0, *order = mixes ? shuffled(o->shuffle, n) : NULL;
    *n_pieces = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t d = order ? order[i] : i;
        for (int64_t at = 0, all = inputs(n_tokens[d]); at < all; at += o->seq) {
            GROW(p, *n_pieces, room, 1);
            p[(*n_pieces)++] = (struct pack_piece){d, at, all - at < o->seq ? all - at : o->seq};
        }
    }
    xfree(order);
    return p;
}

/* Sorted by a key below 2^(11 passes), those of one key as they came. */
static int64_t *sorted(const uint64_t *key, int64_t n, uint64_t most)
{
    enum { BITS = 11, BUCKETS = 1 << BITS };
    int64_t *order = xmalloc(to_size(n + 1) * sizeof *order), *other = xmalloc(to_size(n + 1) * sizeof *other),
            *at = xmalloc((BUCKETS + 1) * sizeof *at);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int shift = 0; shift < 64 && most >> shift; shift += BITS) {
        memset(at, 0, (BUCKETS + 1) * sizeof *at);
        for (int64_t i = 0; i < n; i++) at[(key[i] >> shift & (BUCKETS - 1)) + 1]++;
        for (int b = 0; b < BUCKETS; b++) at[b + 1] += at[b];
        for (int64_t i = 0; i < n; i++) other[at[key[order[i]] >> shift & (BUCKETS - 1)]++] = order[i];
        int64_t *swap = order;
        order = other;
        other = swap;
    }
    xfree(other);
    xfree(at);
    return order;
}

/* Pieces from long to short, those of one length as they came. */
static int64_t *from_long(const struct pack_options *o, const struct pack_piece *p, int64_t n)
{
    uint64_t *key = xmalloc(to_size(n + 1) * sizeof *key);
    for (int64_t i = 0; i < n; i++) key[i] = (uint64_t)(o->seq - p[i].n);
    int64_t *order = sorted(key, n, (uint64_t)o->seq);
    xfree(key);
    return order;
}

/* The sample of every piece, pieces of like length together; returns how many there are. */
static int64_t line_up(const struct pack_options *o, const struct pack_piece *p, int64_t n, int64_t *sample)
{
    int64_t n_samples = 0, room = 0, *order = from_long(o, p, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = order[i];
        if (p[k].n > room) {
            n_samples++;
            room = o->seq;
        }
        room -= p[k].n;
        sample[k] = n_samples - 1;
    }
    xfree(order);
    return n_samples;
}

/* The sample of every piece; returns how many there are. */
static int64_t fit(const struct pack_options *o, const struct pack_piece *p, int64_t n, int64_t *sample)
{
    struct rooms r;
    int64_t n_samples = 0, *order = from_long(o, p, n);
    rooms_init(&r, o->seq, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = order[i], room = least(&r, p[k].n);
        sample[k] = room < 0 ? n_samples++ : take(&r, room);
        put(&r, (room < 0 ? o->seq : room) - p[k].n, sample[k]);
    }
    rooms_fini(&r);
    xfree(order);
    return n_samples;
}

/* Numbers samples anew, from little attention to much. */
static void by_area(const struct pack_piece *p, int64_t n, int64_t *sample, int64_t n_samples)
{
    uint64_t *area = xcalloc(to_size(n_samples + 1), sizeof *area), most = 0;
    int64_t *rank = xmalloc(to_size(n_samples + 1) * sizeof *rank);
    for (int64_t i = 0; i < n; i++) area[sample[i]] += (uint64_t)(p[i].n * p[i].n);
    for (int64_t i = 0; i < n_samples; i++) most = area[i] > most ? area[i] : most;
    int64_t *order = sorted(area, n_samples, most);
    for (int64_t i = 0; i < n_samples; i++) rank[order[i]] = i;
    for (int64_t i = 0; i < n; i++) sample[i] = rank[sample[i]];
    xfree(order);
    xfree(rank);
    xfree(area);
}

void pack_documents(struct pack *out, const struct pack_options *o, const int64_t *n_tokens, int64_t n)
{
    CHECK(o->kind != PACK_JOINED && o->seq >= 1, "kind %d, sequences of %lld", o->kind, (long long)o->seq);
    int64_t n_pieces, n_samples;
    struct pack_piece *p = cut(o, n_tokens, n, &n_pieces);
    int64_t *sample = xmalloc(to_size(n_pieces + 1) * sizeof *sample);
    if (o->kind == PACK_BEST_FIT) {
        n_samples = fit(o, p, n_pieces, sample);
    } else if (o->by_area) {
        n_samples = line_up(o, p, n_pieces, sample);
    } else {
        n_samples = n_pieces;
        for (int64_t i = 0; i < n_pieces; i++) sample[i] = i;
    }
    if (o->by_area) by_area(p, n_pieces, sample, n_samples);
    *out = (struct pack){.pieces = xmalloc(to_size(n_pieces + 1) * sizeof *out->pieces),
                         .first = xcalloc(to_size(n_samples + 2), sizeof *out->first),
                         .n_samples = n_samples,
                         .n_pieces = n_pieces};
    int64_t *first = out->first;
    for (int64_t i = 0; i < n_pieces; i++) first[sample[i] + 2]++;
    for (int64_t i = 0; i < n_samples; i++) first[i + 2] += first[i + 1]; /* first[i + 1]: where sample i goes on */
    for (int64_t i = 0; i < n_pieces; i++) out->pieces[first[sample[i] + 1]++] = p[i];
    xfree(sample);
    xfree(p);
}

void pack_fini(struct pack *p)
{
    xfree(p->pieces);
    xfree(p->first);
    *p = (struct pack){0};
}
