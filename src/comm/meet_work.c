/* SPDX-License-Identifier: Apache-2.0 */
/* meet_work.c: collectives in common memory, one pass, zero copies ("direct" for ranks that are threads, and for
 * processes whose buffers lie in blocks).
 *
 * Every rank can read and write the others' buffers, where c->part says. The result is cut into chunks; a chunk is
 * reduced (in rank order, in fp32) or copied straight from where the inputs are to everywhere the result is wanted.
 * Rank r begins with the r-th share of the chunks, so a rank finds its own share in its own cache step after step, and
 * then takes chunks from ranks that have not begun or lag behind: whoever waits works, so a rank that is busy computing
 * slows nobody down. Who does a chunk does not change its bits.
 *
 * Cost of an all-reduce of N bytes over K ranks: K N bytes read and K N written, by all ranks together, and one round
 * of cache lines to meet. A reduce-scatter followed by an all-gather reads and writes 2N more per rank, and meets
 * twice.
 *
 * A chunk that is running while the world fails would touch buffers whose owners give up, so ranks count themselves
 * in the board (busy) around the work, and nobody returns from a wait after a failure while anybody is. A process that
 * dies at work stays busy, by which the others know whom they wait for.
 */
#include <string.h>

#include "comm/impl.h"

#define CHUNK_LEAST (8 << 10)
#define CHUNK_MOST (128 << 10)
#define CHUNK_ALIGN 64 /* elements */
#define CHUNKS_PER_POLL 64

struct work {
    struct comm *c;
    struct op *o;
    int64_t units, chunk, n_chunks; /* elements of all results in a row */
};

static const struct meeting_part *part(const struct work *w, int rank) { return &w->c->part[rank]; }

/* A rank whose part was done by others may be through, and use its own arrays anew, before a slow one has looked at
 * them. Two sets do: a rank comes to the next meeting but one when all have left this one. */
static int64_t *laid_out(const struct comm *c, const struct op *o, int rank)
{
    size_t set = (size_t)(o->meet % 2), cell = (size_t)c->size + 1;
    return c->pieces + (set * (size_t)c->size + (size_t)rank) * 2 * cell;
}

size_t meet_pieces_bytes(int size)
{
    size_t n = (size_t)size;
    return 4 * n * (n + 1) * sizeof(int64_t);
}

void meet_lay_out(struct comm *c, struct op *o)
{
    size_t cell = (size_t)c->size + 1;
    int64_t *at = laid_out(c, o, c->rank);
    memcpy(at, o->coll.in_at, cell * sizeof *at);
    memcpy(at + cell, o->coll.out_at, cell * sizeof *at);
}

void meet_laid_out(struct comm *c, const struct op *o, int rank)
{
    c->part[rank].in_at = laid_out(c, o, rank);
    c->part[rank].out_at = c->part[rank].in_at + c->size + 1;
}

static struct work work_plan(struct comm *c, struct op *o)
{
    struct work w = {.c = c, .o = o, .units = o->coll.n};
    if (o->coll.op == COMM_ALL_GATHER) w.units *= c->size;
    if (o->coll.op == COMM_ALL_TO_ALL) {
        w.units = 0;
        for (int r = 0; r < c->size; r++) w.units += part(&w, r)->out_at[c->size];
    }
    int64_t bytes = (int64_t)dtype_bytes(o->coll.dtype), want = w.units * bytes / c->size;
    want = want < CHUNK_LEAST ? CHUNK_LEAST : want > CHUNK_MOST ? CHUNK_MOST : want;
    w.chunk = (want / bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
    w.n_chunks = (w.units + w.chunk - 1) / w.chunk;
    return w;
}

static char *at(const struct work *w, const void *p, int64_t i)
{
    return (char *)(uintptr_t)p + (size_t)i * dtype_bytes(w->o->coll.dtype);
}

static void copy(const struct work *w, void *to, const void *from, int64_t n)
{
    if (to != from && n > 0) memcpy(to, from, (size_t)n * dtype_bytes(w->o->coll.dtype));
}

/* [lo, hi) of all inputs is folded into n_dst places. */
static void fold(const struct work *w, int64_t lo, int64_t hi, int n_dst)
{
    struct comm *c = w->c;
    for (int r = 0; r < c->size; r++) c->src[r] = at(w, part(w, r)->in, lo);
    fold_run(c->w->folds, w->o->coll.dtype, w->o->coll.red,
             &(struct fold){.dst = c->dst,
                            .n_dst = n_dst,
                            .src = c->src,
                            .n_src = c->size,
                            .n = hi - lo,
                            .divisor = w->o->coll.red == COMM_AVG ? c->size : 1});
}

static void all_reduce(const struct work *w, int64_t lo, int64_t hi)
{
    for (int r = 0; r < w->c->size; r++) w->c->dst[r] = at(w, part(w, r)->out, lo);
    fold(w, lo, hi, w->c->size);
}

static void reduce(const struct work *w, int64_t lo, int64_t hi)
{
    w->c->dst[0] = at(w, part(w, w->o->coll.root)->out, lo);
    fold(w, lo, hi, 1);
}

static void broadcast(const struct work *w, int64_t lo, int64_t hi)
{
    const void *from = at(w, part(w, w->o->coll.root)->out, lo);
    for (int r = 0; r < w->c->size; r++) copy(w, at(w, part(w, r)->out, lo), from, hi - lo);
}

/* The part of [lo, hi) that lies in [from, to), as [*a, *b). */
static bool overlap(int64_t lo, int64_t hi, int64_t from, int64_t to, int64_t *a, int64_t *b)
{
    *a = lo > from ? lo : from;
    *b = hi < to ? hi : to;
    return *a < *b;
}

static void reduce_scatter(const struct work *w, int64_t lo, int64_t hi)
{
    const int64_t *in_at = w->o->coll.in_at;
    int64_t a, b;
    for (int r = 0; r < w->c->size; r++) {
        if (!overlap(lo, hi, in_at[r], in_at[r + 1], &a, &b)) continue;
        w->c->dst[0] = at(w, part(w, r)->out, a - in_at[r]);
        fold(w, a, b, 1);
    }
}

/* Units: the outputs of rank 0, of rank 1, ... */
static void all_gather(const struct work *w, int64_t lo, int64_t hi)
{
    const int64_t *out_at = w->o->coll.out_at;
    int64_t n = w->o->coll.n, a, b;
    for (int64_t r = lo / n; r * n < hi; r++)
        for (int p = 0; p < w->c->size; p++)
            if (overlap(lo - r * n, hi - r * n, out_at[p], out_at[p + 1], &a, &b))
                copy(w, at(w, part(w, (int)r)->out, a), at(w, part(w, p)->in, a - out_at[p]), b - a);
}

static void all_to_all(const struct work *w, int64_t lo, int64_t hi)
{
    int size = w->c->size;
    int64_t base = 0, a, b;
    for (int r = 0; r < size; r++) {
        const struct meeting_part *to = part(w, r);
        for (int p = 0; p < size; p++)
            if (overlap(lo - base, hi - base, to->out_at[p], to->out_at[p + 1], &a, &b)) {
                const struct meeting_part *from = part(w, p);
                copy(w, at(w, to->out, a), at(w, from->in, from->in_at[r] + a - to->out_at[p]), b - a);
            }
        base += to->out_at[size];
    }
}

typedef void chunk_fn(const struct work *w, int64_t lo, int64_t hi);
static chunk_fn *const chunks[COMM_OP_N] = {
    [COMM_BROADCAST] = broadcast,   [COMM_REDUCE] = reduce,         [COMM_ALL_REDUCE] = all_reduce,
    [COMM_ALL_GATHER] = all_gather, [COMM_ALL_TO_ALL] = all_to_all, [COMM_REDUCE_SCATTER] = reduce_scatter,
};

#define LAG 4 /* chunks left in a share that make it worth helping */
#define PATIENT_TRIES 20

/* Another rank's chunks lie in its cache: leave them to it unless it has not begun, has many left, or seems to
 * sleep. */
static bool may_take(const struct work *w, int rank, int64_t next, int64_t end)
{
    return rank == w->c->rank || next == 0 || end - next >= LAG || w->o->tries > PATIENT_TRIES;
}

/* Takes chunks from one rank's share; returns how many it did. */
static int64_t take_from(const struct work *w, int rank, int64_t most)
{
    int64_t first = w->n_chunks * rank / w->c->size, end = w->n_chunks * (rank + 1) / w->c->size - first, n = 0;
    atomic_llong *next = &meet_share(w->c->meet, w->o->meet, rank)->next;
    while (n < most && !board_failed(w->c->w->board)) {
        int64_t i = atomic_load_explicit(next, memory_order_relaxed);
        if (i >= end || !may_take(w, rank, i, end)) break;
        i = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
        if (i >= end) break;
        int64_t lo = (first + i) * w->chunk, hi = lo + w->chunk;
        chunks[w->o->coll.op](w, lo, hi < w->units ? hi : w->units);
        n++;
    }
    return n;
}

/* Chunks done by all ranks. */
static int64_t done_by_all(const struct work *w)
{
    int64_t n = 0;
    for (int r = 0; r < w->c->size; r++)
        n += atomic_load_explicit(&meet_share(w->c->meet, w->o->meet, r)->done, memory_order_acquire);
    return n;
}

/* all_to_all: what p sends to r is what r expects from p. */
static bool pieces_fit(const struct work *w)
{
    struct comm *c = w->c;
    for (int p = 0; w->o->coll.op == COMM_ALL_TO_ALL && p < c->size; p++)
        for (int r = 0; r < c->size; r++) {
            const int64_t *in = part(w, p)->in_at + r, *out = part(w, r)->out_at + p;
            if (in[1] - in[0] == out[1] - out[0]) continue;
            struct err e;
            char text[DESC_TEXT];
            err_set(&e, ERR_IO, "%s: rank %d sends %lld elements to rank %d, which expects %lld",
                    desc_print(text, &w->o->desc), c->world_rank[p], (long long)(in[1] - in[0]), c->world_rank[r],
                    (long long)(out[1] - out[0]));
            world_fail(c->w, &e);
            return false;
        }
    return true;
}

bool meet_work(struct comm *c, struct op *o)
{
    struct work w = work_plan(c, o);
    struct board_row *mine = &c->w->board->row[c->w->row];
    if (o->tries++ == 0 && !pieces_fit(&w)) return false;
    if (w.n_chunks == 0) return true;
    int64_t did = 0;
    atomic_store(&mine->busy, 1);
    for (int d = 0; d < c->size && did < CHUNKS_PER_POLL; d++)
        did += take_from(&w, (c->rank + d) % c->size, CHUNKS_PER_POLL - did);
    o->at_work += did; /* of this rank: it alone stores `done` */
    if (did) atomic_store_explicit(&meet_share(c->meet, o->meet, c->rank)->done, o->at_work, memory_order_release);
    atomic_store_explicit(&mine->busy, 0, memory_order_release);
    if (done_by_all(&w) < w.n_chunks) return false;
    atomic_fetch_add_explicit(&c->one_pass, 1, memory_order_relaxed);
    return true;
}
