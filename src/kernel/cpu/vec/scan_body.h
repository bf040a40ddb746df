/* SPDX-License-Identifier: Apache-2.0 */
/* scan_body.h: the scan of a state space in chunks of tokens (Dao and Gu 2024, section 6): what its directions share.
 *
 * Inside of a chunk a scan is a product with a masked matrix, as attention without softmax; from chunk to chunk a state
 * is passed on. With cum_t the log decays summed up from the chunk's first token on, D_ts = exp(cum_t - cum_s) for
 * s <= t of one document, else 0, enter_t = exp(cum_t) and leave_s = exp(what cum goes on by behind s), 0 where a
 * document begins in between:
 *
 *     y  = (D * C B^T) diag(step) X + diag(enter) C h^T + skip X       C, B: chunk x N of the group; X: chunk x A
 *     h' = through h +   X^T diag(leave step) B                        h: A x N; through: enter of the last token
 *
 * so all that grows with A N is a product of matrices (tile.h), in panels of f32: 2 N + chunk / 2 multiply-adds for
 * each element of x with each, beside the recurrence's 5/2 N that no matrix unit takes. C B^T is made once for a block
 * of heads of a group.
 *
 * Sums of logs are made in double and kept as two floats, so a difference of large sums keeps its digits; log decays
 * below SCAN_LEAST are that: exp of it is 0 in f32. Products, states and sums over tokens are f32 whatever x is.
 *
 * A unit of work is a piece (pieces.h) of one block of SCAN_HEADS heads. Blocks do not follow from the team, so neither
 * does a bit of the result. */
#ifndef TUTTI_KERNEL_CPU_VEC_SCAN_BODY_H
#define TUTTI_KERNEL_CPU_VEC_SCAN_BODY_H

#include <math.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "kernel/cache_runs.h"
#include "kernel/cpu/tile/tile.h"
#include "kernel/cpu/vec/vec_rows.h"
#include "kernel/pieces.h"

enum { SCAN_CHUNK = 64, SCAN_HEADS = 6 };
#define SCAN_LEAST (-200.0)

/* A call taken apart. */
struct scan {
    const struct kernel_call *c;
    const struct scan_attrs *at;
    const struct tile_ops *o;
    enum dtype t;                           /* of x, b and c */
    const struct view *docs;                /* its p NULL: none */
    bool reads;                             /* false: only the state behind the last token is wanted */
    int64_t A, N;                           /* columns of a head, of its state */
    int64_t a_pad, n_pad, chunk, chunk_pad; /* up to whole tiles; tokens of a chunk: whole panels */
    int64_t each, blocks, most;             /* heads of a group, blocks of them, heads of all but the last block */
};
static const struct view scan_no_docs;

static struct scan scan_of(const struct kernel_call *c)
{
    const struct scan_attrs *at = at_scan(&c->at);
    const struct tile_ops *o = tile_ops_get(DT_F32);
    struct scan x = {.c = c,
                     .at = at,
                     .o = o,
                     .t = c->in[0].dtype,
                     .docs = &scan_no_docs,
                     .reads = c->op != OP_SCAN_END,
                     .A = at->head_dim,
                     .N = at->state,
                     .a_pad = round_up(at->head_dim, o->nr),
                     .n_pad = round_up(at->state, o->nr),
                     .chunk = o->mr < SCAN_CHUNK ? SCAN_CHUNK / o->mr * o->mr : SCAN_CHUNK,
                     .each = at->heads / at->groups};
    x.chunk_pad = round_up(x.chunk, o->nr);
    x.blocks = (x.each + SCAN_HEADS - 1) / SCAN_HEADS;
    x.most = x.blocks ? (x.each + x.blocks - 1) / x.blocks : 0;
    if (x.most) x.blocks = (x.each + x.most - 1) / x.most; /* none is empty */
    if (c->op == OP_SCAN) x.docs = &c->in[4];
    if (c->op == OP_SCAN_END) x.docs = &c->in[3];
    return x;
}
static int64_t scan_state(const struct scan *x) { return x->A * x->n_pad; } /* floats of a head's state here */

/* ---- a unit: rows that follow each other, and some heads of a group ---- */
struct scan_run {
    struct row_piece p;
    bool fresh; /* documents may begin in it: false of cached tokens */
    int64_t index, group, head, heads;
};
static struct scan_run scan_run_of(const struct scan *x, int64_t unit)
{
    struct scan_run r = {.group = unit / x->blocks % x->at->groups, .index = unit / x->blocks / x->at->groups};
    int64_t first = unit % x->blocks * x->most;
    r.head = r.group * x->each + first;
    r.heads = x->each - first < x->most ? x->each - first : x->most;
    if (x->c->op == OP_SCAN_CACHED) {
        struct cache_run run = cache_run_of(x->c, r.index);
        r.p = (struct row_piece){.row = run.first, .n = run.n};
    } else {
        r.p = piece_at(&x->at->at, r.index);
        r.fresh = true;
    }
    return r;
}
static int64_t scan_units(const struct scan *x)
{
    int64_t runs = x->c->op == OP_SCAN_CACHED ? x->c->in[3].n[0] : pieces_all(&x->at->at);
    return runs * x->at->groups * x->blocks;
}

/* ---- a chunk of it ---- */
struct scan_chunk {
    int64_t row, n;            /* its rows */
    int64_t open;              /* so many of them go on from before the chunk */
    int32_t first[SCAN_CHUNK]; /* of each: the first one in the chunk of its document */
};
static void scan_chunk_at(const struct scan *x, const struct scan_run *r, int64_t at, struct scan_chunk *k)
{
    k->row = r->p.row + at;
    k->n = r->p.n - at < x->chunk ? r->p.n - at : x->chunk;
    k->open = k->n;
    for (int64_t t = 0, first = 0; t < k->n; t++) {
        if (r->fresh && piece_begins(&x->at->at, x->docs, &r->p, at + t)) {
            first = t;
            if (k->open > t) k->open = t;
        }
        k->first[t] = (int32_t)first;
    }
}

/* A head's times in a chunk; what is past its rows is 0. */
struct scan_times {
    float hi[SCAN_CHUNK], lo[SCAN_CHUNK]; /* their sum: cum */
    float step[SCAN_CHUNK], enter[SCAN_CHUNK], leave[SCAN_CHUNK];
    float through; /* of the state before the chunk, what is left behind it */
};
VEC_INLINE vf scan_between(const struct scan_times *m, float hi, float lo, int64_t s)
{
    return v_exp((vf_set(hi) - vf_load(m->hi + s)) + (vf_set(lo) - vf_load(m->lo + s)));
}
static void scan_times_at(const struct scan *x, const struct scan_chunk *k, int64_t head, struct scan_times *m)
{
    double sum = 0;
    memset(m, 0, sizeof *m);
    for (int64_t t = 0; t < k->n; t++) {
        const float *s = row_at(&x->c->in[2], k->row + t);
        double l = (double)s[x->at->heads + head];
        sum += l < SCAN_LEAST ? SCAN_LEAST : l;
        m->step[t] = s[head];
        m->hi[t] = (float)sum;
        m->lo[t] = (float)(sum - (double)m->hi[t]);
    }
    for (int64_t t = 0; t < k->open; t += VL) vf_store(m->enter + t, v_exp(vf_load(m->hi + t) + vf_load(m->lo + t)));
    for (int64_t t = k->open; t < round_up(k->open, VL); t++) m->enter[t] = 0;
    if (k->open == k->n) m->through = m->enter[k->n - 1];
    int64_t last = k->n - 1, from = k->first[last];
    for (int64_t s = from / VL * VL; s < k->n; s += VL)
        vf_store(m->leave + s, scan_between(m, m->hi[last], m->lo[last], s));
    for (int64_t s = from / VL * VL; s < from; s++) m->leave[s] = 0;
    for (int64_t s = k->n; s < round_up(k->n, VL); s++) m->leave[s] = 0;
}

/* ---- memory ---- */

/* rows x cols of v, from (row, col) on, as floats in rows of ld; columns past them are 0. */
VEC_INLINE void scan_get_typed(float *to, int64_t ld, const struct view *v, int64_t row, int64_t col, int64_t rows,
                               int64_t cols, enum dtype t)
{
    for (int64_t r = 0; r < rows; r++, to += ld)
        for (int64_t i = 0; i < ld; i += VL) {
            int n = i < cols ? v_count(cols - i) : 0;
            vf_store(to + i, n ? v_get(row_at(v, row + r), col + i, n, t) : vf_zero());
        }
}
static void scan_get(float *to, int64_t ld, const struct view *v, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    V_TYPED(v->dtype, scan_get_typed, to, ld, v, row, col, rows, cols);
}
/* And back, on top of acc (its p NULL: 0) if it is given. */
VEC_INLINE void scan_put_typed(const struct view *v, const struct view *acc, int64_t row, int64_t col,
                               const float *from, int64_t ld, int64_t rows, int64_t cols, enum dtype t)
{
    for (int64_t r = 0; r < rows; r++, from += ld)
        for (int64_t i = 0; i < cols; i += VL) {
            int n = v_count(cols - i);
            vf was = acc ? v_get_or_zero(row_or_null(acc, row + r), col + i, n, t) : vf_zero();
            v_put(row_at(v, row + r), col + i, n, t, was + vf_load(from + i));
        }
}
static void scan_put(const struct view *v, const struct view *acc, int64_t row, int64_t col, const float *from,
                     int64_t ld, int64_t rows, int64_t cols)
{
    V_TYPED(v->dtype, scan_put_typed, v, acc, row, col, from, ld, rows, cols);
}
/* The state of a head in a row of states, dense there. */
static void scan_get_state(const struct scan *x, float *to, const struct view *v, int64_t row, int64_t head)
{
    for (int64_t a = 0; a < x->A; a++) scan_get(to + a * x->n_pad, x->n_pad, v, row, (head * x->A + a) * x->N, 1, x->N);
}
static void scan_put_state(const struct scan *x, const struct view *v, const struct view *acc, int64_t row,
                           int64_t head, const float *from)
{
    for (int64_t a = 0; a < x->A; a++)
        scan_put(v, acc, row, (head * x->A + a) * x->N, from + a * x->n_pad, x->n_pad, 1, x->N);
}

/* to = f_r from, of each row; times g_r if that is given. */
static void scan_scaled(float *to, const float *from, const float *f, const float *g, int64_t rows, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++) {
        vf by = vf_set(g ? f[r] * g[r] : f[r]);
        for (int64_t i = r * ld; i < (r + 1) * ld; i += VL) vf_store(to + i, by * vf_load(from + i));
    }
}

/* ---- operands of products: views of b (0) and c (1) of a group, and of what is here ---- */
static struct tile_src scan_bc(const struct scan *x, int which, int64_t row, int64_t group, bool depth_is_state)
{
    const struct view *v = &x->c->in[1];
    int64_t col = (which * x->at->groups + group) * x->N;
    return (struct tile_src){.p = (const char *)row_at(v, row) + (size_t)col * dtype_bytes(v->dtype),
                             .dtype = v->dtype,
                             .stride = v->stride,
                             .depth_dense = depth_is_state};
}
static struct tile_src scan_here(const float *p, int64_t ld, bool depth_dense)
{
    return (struct tile_src){.p = p, .dtype = DT_F32, .stride = ld, .depth_dense = depth_dense};
}
static void *carve_a(struct carve *s, const struct scan *x, int64_t lanes, int64_t depth)
{
    return carve(s, tile_a_bytes(x->o, lanes, depth));
}
static void *carve_b(struct carve *s, const struct scan *x, int64_t lanes, int64_t depth)
{
    return carve(s, tile_b_bytes(x->o, lanes, depth));
}

/* c (m rows, ldc) = or += a b, columns of whole tiles. */
static void scan_mul(const struct scan *x, float *c, int64_t ldc, const void *a, const void *b, int64_t m,
                     int64_t depth, bool add)
{
    tile_block(x->o, c, ldc, a, b, m, ldc, depth, add);
}
/* The tiles of c = a b that have something on or below the diagonal; of rows and columns n. */
static void scan_mul_below(const struct scan *x, float *c, int64_t ldc, const void *a, const void *b, int64_t n,
                           int64_t depth)
{
    const struct tile_ops *o = x->o;
    for (int64_t i = 0; i < n; i += o->mr, a = (const char *)a + tile_a_step(o, depth)) {
        int64_t rows = n - i < o->mr ? n - i : o->mr;
        tile_block(o, c + i * ldc, ldc, a, b, rows, round_up(i + rows, o->nr), depth, false);
    }
}
/* c = or += a b, of a nothing is above the diagonal: n deep. */
static void scan_mul_lower(const struct scan *x, float *c, int64_t ldc, const void *a, const void *b, int64_t n,
                           bool add)
{
    const struct tile_ops *o = x->o;
    for (int64_t i = 0; i < n; i += o->mr, a = (const char *)a + tile_a_step(o, n)) {
        int64_t rows = n - i < o->mr ? n - i : o->mr;
        tile_panels(o, c + i * ldc, ldc, a, 0, b, tile_b_step(o, n), rows, ldc, i + rows, add);
    }
}

/* ---- units to members: each takes the next, by scratch of its own ---- */
struct scan_job {
    const struct scan *x;
    char *scratch; /* of member 0 */
    size_t each;
    int64_t n_units;
    _Atomic int64_t next;
    void (*unit)(const struct scan *x, const struct scan_run *r, void *mine);
};
static void scan_take_units(struct scan_job *j, int member)
{
    j->x->o->begin();
    for (int64_t u; (u = atomic_fetch_add(&j->next, 1)) < j->n_units;) {
        struct scan_run r = scan_run_of(j->x, u);
        j->unit(j->x, &r, j->scratch + (size_t)member * j->each);
    }
    j->x->o->end();
}

#endif
