/* SPDX-License-Identifier: Apache-2.0 */
/* One forward, one backward: after a warm-up just long enough that the first gradient arrives when it is over, each
 * forward is followed by the backward of the oldest microbatch. The bubble is GPipe's, (p-1)(F+B+W), but rank r holds
 * p-r microbatches instead of all.
 *
 * Interleaved: rank r has the stages r, r+p, r+2p, ...; microbatches go in rounds of N through all chunks before the
 * next round starts, which divides the bubble by the number of chunks and multiplies messages by it. Both are one rule:
 * warm-up of w forwards, then pairs, then the backwards that are left. (Narayanan et al., "Efficient large-scale
 * language model training on GPU clusters", 2021, figures 3 and 4, where N = p; "The Llama 3 herd of models", 2024,
 * section 3.3.2, where N is free.)
 *
 * The rule wants rounds of p or more: a microbatch that has left a chunk comes back for the next one p steps later. So
 * a shorter round (the last one, or all where N < p) is filled up to p with microbatches that do not exist, and their
 * actions are left out. What is left of lists that cannot wait in a circle cannot either: every way from one action to
 * another through it was there before. Rejected: pairing off a short round as it is, which does wait in a circle from
 * four ranks on.
 */
#include "schedule/generator.h"

static int max(int a, int b) { return a > b ? a : b; }

struct rounds {
    int p, v, m;
    int size, n;     /* microbatches of a round, rounds */
    int width, last; /* places in a round and in the last one, taken or not */
};

static struct rounds rounds_of(int p, int v, int m, int size)
{
    struct rounds r = {.p = p, .v = v, .m = m, .size = size, .n = (m + size - 1) / size};
    int least = v > 1 ? p : 1; /* with one chunk nothing comes back */
    r.width = max(size, least);
    r.last = max(m - (r.n - 1) * size, least);
    return r;
}

/* The k-th forward (or backward) of a rank, and *place: how many come before it when all places are taken. */
static struct action nth(const struct rounds *r, enum action_kind kind, int k, int rank, int64_t *place)
{
    int round = k / (r->size * r->v), last = r->n - 1;
    if (round > last) round = last;
    int begin = round * r->size, size = round < last ? r->size : r->m - begin;
    int in_round = k - begin * r->v, chunk = in_round / size, i = in_round % size;
    *place = (int64_t)round * r->width * r->v + chunk * (round < last ? r->width : r->last) + i;
    if (kind != ACTION_F) chunk = r->v - 1 - chunk;
    return action_of(kind, chunk * r->p + rank, begin + i);
}

/* Place by place, the forward there and then the backward that is `warm_up` places behind. */
static struct schedule *one_forward_one_backward(const char *kind, const struct rounds *n)
{
    struct schedule *s = schedule_new(kind, n->p, n->p * n->v, n->m);
    int total = n->m * n->v, first = n->n > 1 ? n->width : n->last;
    for (int r = 0; r < n->p; r++) {
        int warm_up = n->v == 1 ? n->p - 1 - r : 2 * (n->p - 1 - r) + (n->v - 1) * first;
        for (int f = 0, b = 0; b < total;) {
            int64_t at_f, at_b;
            struct action forward = nth(n, ACTION_F, f, r, &at_f), backward = nth(n, ACTION_BW, b, r, &at_b);
            bool next = f < total && at_f <= at_b + warm_up;
            schedule_push(s, r, next ? forward : backward);
            f += next;
            b += !next;
        }
    }
    return s;
}

struct schedule *schedule_gen_1f1b(int n_ranks, int n_microbatches, int n_chunks)
{
    struct rounds one = rounds_of(n_ranks, n_chunks, n_microbatches, n_microbatches);
    return one_forward_one_backward("1f1b", &one);
}

struct schedule *schedule_gen_interleaved(int n_ranks, int n_microbatches, int n_chunks, int round)
{
    struct rounds r = rounds_of(n_ranks, n_chunks, n_microbatches, round);
    return one_forward_one_backward("interleaved", &r);
}
