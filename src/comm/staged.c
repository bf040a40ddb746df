/* SPDX-License-Identifier: Apache-2.0 */
/* staged.c: the direct algorithm between processes of one host, through a shared window, round by round.
 *
 * A round of an all_reduce over K ranks: (in) each rank copies the K-1 slices that others reduce to its stage; (work)
 * it reduces its own slice, from its own buffer and the others' stages in rank order, into its own result buffer and to
 * the window; (out) it copies the other slices from the window. What a rank reduces itself never travels. Other
 * operations are the same with a part left out: see the table at the end.
 *
 *     in(k)    needs every rank to have worked on k-2: stage k % 2 is free
 *     work(k)  needs every rank to have put in k, and taken out k-2: result k % 2 is free
 *     out(k)   needs every rank to have worked on k
 *
 * A rank puts in k+1 before it works on k, so copies cover the others' delays. The first round goes in before ranks
 * meet, so small vectors need no more than the meeting and, up to SMALL_BYTES, a fold by every rank for itself.
 *
 * Cost per rank and byte of the vector, K ranks: (K-1)/K copied in, 1 read and 1/K reduced, (K-1)/K copied out, in
 * stages that stay in cache. Rejected: reading the peers' memory through the kernel (process_vm_readv), a system call
 * per peer and round and forbidden in many containers.
 */
#include "comm/staged.h"

#include <string.h>

#include "base/thread.h"

#define SMALL_BYTES (8 << 10)

_Static_assert(SMALL_BYTES <= STAGE_LOCAL, "a small operation is one round");

static size_t lines_at(int size) { return (meet_bytes(size) + 63) / 64 * 64; }

size_t staged_bytes(int size, size_t stage)
{
    size_t n = (size_t)size;
    return lines_at(size) + n * sizeof(struct staged_line) + 4096 + (2 * n + 2) * stage;
}

static struct staged_line *lines(struct meet *window, int size)
{
    return (struct staged_line *)(void *)((char *)window + lines_at(size));
}

void staged_init(struct meet *window, int size)
{
    meet_init(window, size);
    memset(lines(window, size), 0, (size_t)size * sizeof(struct staged_line));
}

struct round {
    struct comm *c;
    struct op *o;
    int64_t k, number; /* in the operation; in the life of the group */
    size_t each;       /* bytes of an element */
    int64_t room;      /* elements of a stage */
};

static struct staged_line *line(const struct comm *c, int rank) { return lines(c->meet, c->size) + rank; }

static char *areas(const struct comm *c)
{
    size_t at = lines_at(c->size) + (size_t)c->size * sizeof(struct staged_line);
    return (char *)c->meet + (at + 4095) / 4096 * 4096;
}

static char *stage(const struct round *r, int rank, int64_t element)
{
    return areas(r->c) + (size_t)(2 * rank + r->number % 2) * r->c->stage_bytes + (size_t)element * r->each;
}

static char *result(const struct round *r, int64_t element)
{
    return areas(r->c) + (size_t)(2 * r->c->size + r->number % 2) * r->c->stage_bytes + (size_t)element * r->each;
}

static char *in(const struct round *r, int64_t i) { return (char *)(uintptr_t)r->o->in + (size_t)i * r->each; }

static char *out(const struct round *r, int64_t i) { return (char *)r->o->out + (size_t)i * r->each; }

static void copy(const struct round *r, void *to, const void *from, int64_t n)
{
    if (to != from && n > 0) memcpy(to, from, (size_t)n * r->each);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Elements [*lo, *lo + returned) of the vector belong to this round. */
static int64_t span(const struct round *r, int64_t *lo)
{
    *lo = r->k * r->room;
    return least(r->room, r->o->coll.n - *lo);
}

/* The part of a piece of n elements that belongs to this round; pieces of all ranks move on together. */
static int64_t part(const struct round *r, int64_t n, int64_t *lo)
{
    int64_t room = r->room / r->c->size;
    *lo = least(r->k * room, n);
    return least(room, n - *lo);
}

/* Own elements at `own`, the others' at `at` of their stages, into n_dst places of c->dst. */
static void fold(const struct round *r, const void *own, int64_t at, int64_t n, int n_dst)
{
    struct comm *c = r->c;
    for (int p = 0; p < c->size; p++) c->src[p] = p == c->rank ? own : stage(r, p, at);
    fold_run(c->w->folds, r->o->coll.dtype, r->o->coll.red,
             &(struct fold){.dst = c->dst,
                            .n_dst = n_dst,
                            .src = c->src,
                            .n_src = c->size,
                            .n = n,
                            .divisor = r->o->coll.red == COMM_AVG ? c->size : 1});
}

/* ---- all_reduce, reduce ------------------------------------------------------------------------------------- */

static bool small(const struct op *o) { return o->coll.n * (int64_t)dtype_bytes(o->coll.dtype) <= SMALL_BYTES; }

static void reduce_in(const struct round *r)
{
    int64_t lo, n = span(r, &lo), a, b;
    bool all = small(r->o);
    for (int p = 0; p < r->c->size; p++) {
        team_split(n, p, r->c->size, &a, &b);
        if (all || p != r->c->rank) copy(r, stage(r, r->c->rank, a), in(r, lo + a), b - a);
    }
}

/* Every rank that wants the result has it in `out`. */
static bool wants(const struct round *r) { return r->o->coll.op == COMM_ALL_REDUCE || r->c->rank == r->o->coll.root; }

static void reduce_work(const struct round *r)
{
    int64_t lo, n = span(r, &lo), a, b;
    struct comm *c = r->c;
    if (small(r->o)) {
        c->dst[0] = out(r, 0);
        if (wants(r)) fold(r, in(r, 0), 0, n, 1);
        return;
    }
    team_split(n, c->rank, c->size, &a, &b);
    int n_dst = 0;
    c->dst[n_dst++] = result(r, a);
    if (wants(r)) c->dst[n_dst++] = out(r, lo + a);
    fold(r, in(r, lo + a), a, b - a, n_dst);
}

static void reduce_out(const struct round *r)
{
    int64_t lo, n = span(r, &lo), a, b;
    for (int p = 0; wants(r) && !small(r->o) && p < r->c->size; p++) {
        team_split(n, p, r->c->size, &a, &b);
        if (p != r->c->rank) copy(r, out(r, lo + a), result(r, a), b - a);
    }
}

/* ---- the others --------------------------------------------------------------------------------------------- */

static void broadcast_in(const struct round *r)
{
    int64_t lo, n = span(r, &lo);
    if (r->c->rank == r->o->coll.root) copy(r, stage(r, r->c->rank, 0), in(r, lo), n);
}

static void broadcast_work(const struct round *r)
{
    int64_t lo, n = span(r, &lo);
    if (r->c->rank != r->o->coll.root) copy(r, out(r, lo), stage(r, r->o->coll.root, 0), n);
}

/* What this rank sends to p is at p * room / size of its stage. */
static void pieces_in(const struct round *r)
{
    const int64_t *at = r->o->coll.in_at;
    for (int p = 0; p < r->c->size; p++) {
        int64_t lo, n = part(r, at[p + 1] - at[p], &lo);
        if (p != r->c->rank) copy(r, stage(r, r->c->rank, p * (r->room / r->c->size)), in(r, at[p] + lo), n);
    }
}

static void scatter_work(const struct round *r)
{
    const int64_t *at = r->o->coll.in_at;
    int me = r->c->rank;
    int64_t lo, n = part(r, at[me + 1] - at[me], &lo);
    r->c->dst[0] = out(r, lo);
    fold(r, in(r, at[me] + lo), me * (r->room / r->c->size), n, 1);
}

static void to_all_work(const struct round *r)
{
    const int64_t *from = r->o->coll.in_at, *to = r->o->coll.out_at;
    int me = r->c->rank;
    for (int p = 0; p < r->c->size; p++) {
        int64_t lo, n = part(r, to[p + 1] - to[p], &lo);
        copy(r, out(r, to[p] + lo), p == me ? in(r, from[p] + lo) : stage(r, p, me * (r->room / r->c->size)), n);
    }
}

static void gather_in(const struct round *r)
{
    const int64_t *at = r->o->coll.out_at;
    int me = r->c->rank;
    int64_t lo, n = part(r, at[me + 1] - at[me], &lo);
    copy(r, stage(r, me, 0), in(r, lo), n);
    copy(r, out(r, at[me] + lo), in(r, lo), n);
}

static void gather_work(const struct round *r)
{
    const int64_t *at = r->o->coll.out_at;
    for (int p = 0; p < r->c->size; p++) {
        int64_t lo, n = part(r, at[p + 1] - at[p], &lo);
        if (p != r->c->rank) copy(r, out(r, at[p] + lo), stage(r, p, 0), n);
    }
}

typedef void part_fn(const struct round *r);
static const struct {
    part_fn *in, *work, *out;
} parts[COMM_OP_N] = {
    [COMM_ALL_REDUCE] = {reduce_in, reduce_work, reduce_out}, [COMM_REDUCE] = {reduce_in, reduce_work, reduce_out},
    [COMM_BROADCAST] = {broadcast_in, broadcast_work, NULL},  [COMM_REDUCE_SCATTER] = {pieces_in, scatter_work, NULL},
    [COMM_ALL_GATHER] = {gather_in, gather_work, NULL},       [COMM_ALL_TO_ALL] = {pieces_in, to_all_work, NULL},
};

/* ---- rounds ------------------------------------------------------------------------------------------------- */

static struct round round_of(struct comm *c, struct op *o, int64_t k)
{
    size_t each = dtype_bytes(o->coll.dtype);
    return (struct round){.c = c,
                          .o = o,
                          .k = k,
                          .number = c->rounds + k,
                          .each = each,
                          .room = (int64_t)(c->stage_bytes / each)};
}

/* The largest piece that any rank sends to any other, from the seats. */
static int64_t widest(struct comm *c, const struct op *o)
{
    int64_t most = 0;
    for (int p = 0; p < c->size; p++) {
        int64_t n = meet_seat(c->meet, o->meet, p)->most;
        if (n > most) most = n;
    }
    return most;
}

static int64_t n_rounds(struct comm *c, const struct op *o)
{
    int64_t room = (int64_t)(c->stage_bytes / dtype_bytes(o->coll.dtype)), n = o->coll.n;
    bool in_pieces = o->coll.in_at || o->coll.out_at;
    if (in_pieces) room /= c->size, n = widest(c, o);
    return (n + room - 1) / room;
}

enum counter { COUNT_IN, COUNT_WORKED, COUNT_OUT };

static atomic_llong *counter(struct comm *c, int rank, enum counter which)
{
    struct staged_line *l = line(c, rank);
    return which == COUNT_IN ? &l->in : which == COUNT_WORKED ? &l->worked : &l->out;
}

static bool all_have(struct comm *c, enum counter which, int64_t rounds)
{
    for (int p = 0; p < c->size; p++)
        if (atomic_load_explicit(counter(c, p, which), memory_order_acquire) < rounds) return false;
    return true;
}

/* Rounds of the group's life that this rank has been through, up to and with this one. */
static void tell(const struct round *r, enum counter which)
{
    atomic_store_explicit(counter(r->c, r->c->rank, which), r->number + 1, memory_order_release);
}

static bool try_in(const struct round *r)
{
    if (!all_have(r->c, COUNT_WORKED, r->number - 1)) return false;
    parts[r->o->coll.op].in(r);
    tell(r, COUNT_IN);
    return true;
}

static bool try_work(const struct round *r)
{
    if (!all_have(r->c, COUNT_IN, r->number + 1) || !all_have(r->c, COUNT_OUT, r->number - 1)) return false;
    parts[r->o->coll.op].work(r);
    tell(r, COUNT_WORKED);
    return true;
}

static bool try_out(const struct round *r)
{
    part_fn *take_out = parts[r->o->coll.op].out;
    if (take_out && !(small(r->o)) && !all_have(r->c, COUNT_WORKED, r->number + 1)) return false;
    if (take_out) take_out(r);
    tell(r, COUNT_OUT);
    return true;
}

bool staged_prepare(struct comm *c, struct op *o)
{
    struct round first = round_of(c, o, 0);
    bool empty = !o->coll.in_at && !o->coll.out_at && o->coll.n == 0;
    return empty || try_in(&first);
}

bool staged_small(const struct comm *c, const struct op *o)
{
    bool same_n = o->coll.op != COMM_ALL_TO_ALL; /* there ranks differ in what they send */
    return c->size > 1 && same_n && small(o);
}

/* at_work counts the parts done after the first `in`: in(1), work(0), out(0), in(2), work(1), ... */
bool staged_work(struct comm *c, struct op *o)
{
    int64_t rounds = n_rounds(c, o);
    bool empty_pieces = rounds == 0 && (o->coll.in_at || o->coll.out_at);
    if (empty_pieces) rounds = 1; /* the first `in` was counted already */
    while (o->at_work < 3 * rounds) {
        int64_t k = o->at_work / 3;
        struct round r = round_of(c, o, k), next = round_of(c, o, k + 1);
        bool went = o->at_work % 3 == 0   ? k + 1 >= rounds || try_in(&next)
                    : o->at_work % 3 == 1 ? try_work(&r)
                                          : try_out(&r);
        if (!went || board_failed(c->w->board)) return false;
        o->at_work++;
    }
    c->rounds += rounds;
    return true;
}

bool staged_behind(struct comm *c, int rank)
{
    for (int which = COUNT_IN; which <= COUNT_OUT; which++)
        if (atomic_load(counter(c, rank, (enum counter)which)) < atomic_load(counter(c, c->rank, (enum counter)which)))
            return true;
    return false;
}
