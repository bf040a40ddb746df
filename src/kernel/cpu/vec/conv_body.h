/* SPDX-License-Identifier: Apache-2.0 */
/* conv_body.h: CONV over vec.h (kernel/ref/conv.c has the formulas): channels are lanes, taps lie as rows of floats.
 *
 * Forward is a pass over rows. Backward of the input goes through a piece once for a block of channels: the gradient of
 * what goes into silu is made once for each row and kept in a ring of K rows, from which the K rows that it reached
 * take it. Backward of the taps sums over chunks of rows, then over the chunks in order: the same bits for any team.
 * Rejected: the gradient of all rows in memory, for two plain passes (4 bytes per element that cost more to move than
 * to make). Cost: 2 K multiply-adds and an exp for each element forward, twice that for each of the backward phases. */
#ifndef TUTTI_KERNEL_CPU_VEC_CONV_BODY_H
#define TUTTI_KERNEL_CPU_VEC_CONV_BODY_H

#include "base/mem.h"
#include "kernel/cpu/vec/act_body.h"
#include "kernel/pieces.h"

enum { CONV_MOST = 64 /* taps */, CONV_COLS = 64 /* channels of a block */, CONV_CHUNK = 64 /* rows */ };

/* A call taken apart. taps: row k holds tap k of all channels, row K the bias. */
struct conv {
    const struct kernel_call *c;
    const struct sequence_rows *at;
    int64_t K, C, ld;
    float *taps;
};
static struct conv conv_of(const struct kernel_call *c)
{
    int64_t C = view_cols(&c->in[0]);
    return (struct conv){c, &at_conv(&c->at)->at, c->in[1].n[1], C, round_up(C, VL), c->scratch};
}

/* A row: those that count for it, itself first. */
struct conv_row {
    const void *x[CONV_MOST];
    int64_t n; /* of those before it */
};
static void conv_row_at(const struct conv *o, const struct row_piece *p, int64_t index, int64_t i, struct conv_row *r)
{
    const struct kernel_call *c = o->c;
    bool halo = c->n_in > 4 && c->in[4].p;
    int64_t reach = piece_reach(o->at, &c->in[3], p, i, o->K - 1);
    if (!halo && reach > i) reach = i; /* what is before the piece is zeros */
    for (int64_t j = 0; j <= reach; j++)
        r->x[j] = i >= j ? row_at(&c->in[0], p->row + i - j) : row_at(&c->in[4], (index + 1) * (o->K - 1) + i - j);
    r->n = reach;
}

/* Rows in order, and which piece each is of. */
struct conv_walk {
    struct row_piece p;
    int64_t index;
};
static struct conv_walk conv_walk_from(const struct conv *o) { return (struct conv_walk){piece_at(o->at, 0), 0}; }
static void conv_walk_to(const struct conv *o, struct conv_walk *w, int64_t row, struct conv_row *r)
{
    while (row >= w->p.row + w->p.n) w->p = piece_at(o->at, ++w->index);
    conv_row_at(o, &w->p, w->index, row - w->p.row, r);
}

/* What goes into silu. */
VEC_INLINE vf conv_sum(const struct conv *o, const struct conv_row *r, int64_t ch, int k, enum dtype t)
{
    vf v = vf_load(o->taps + o->K * o->ld + ch);
    for (int64_t j = 0; j <= r->n; j++)
        v = vf_fma(vf_load(o->taps + (o->K - 1 - j) * o->ld + ch), v_get(r->x[j], ch, k, t), v);
    return v;
}
/* Its gradient. */
VEC_INLINE vf conv_grad(const struct conv *o, const struct conv_row *r, const void *dy, int64_t ch, int k, enum dtype t)
{
    vf v = conv_sum(o, r, ch, k, t);
    struct logistic l = logistic_of(v);
    return v_get(dy, ch, k, t) * l.s * vf_fma(v, l.rest, vf_set(1.0f));
}

VEC_INLINE void conv_get_taps(const struct conv *o, enum dtype t)
{
    const struct kernel_call *c = o->c;
    const void *b = c->n_in > 2 ? c->in[2].p : NULL;
    memset(o->taps, 0, to_size((o->K + 1) * o->ld) * sizeof(float));
    for (int64_t ch = 0; ch < o->C; ch++) {
        for (int64_t k = 0; k < o->K; k++) o->taps[k * o->ld + ch] = v_get_one(row_at(&c->in[1], ch), k, t);
        if (b) o->taps[o->K * o->ld + ch] = v_get_one(b, ch, t);
    }
}
static void conv_run(const struct kernel_call *c, team_fn *member)
{
    struct conv o = conv_of(c);
    V_TYPED(c->in[1].dtype, conv_get_taps, &o);
    team_run_call(member, c);
}

/* ---- forward ---- */
VEC_INLINE void conv_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    struct conv o = conv_of(c);
    struct conv_row r;
    if (lo >= hi) return;
    struct conv_walk w = conv_walk_from(&o);
    for (int64_t row = lo; row < hi; row++) {
        void *y = row_at(&c->out[0], row);
        conv_walk_to(&o, &w, row, &r);
        for (int64_t ch = 0; ch < o.C; ch += VL) {
            int k = v_count(o.C - ch);
            vf v = conv_sum(&o, &r, ch, k, t);
            v_put(y, ch, k, t, v * logistic_of(v).s);
        }
    }
}
static void conv_fwd_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(c->in[0].n[0], member, n_members, &lo, &hi);
    V_TYPED(c->in[0].dtype, conv_fwd_rows, c, lo, hi);
}
static void conv_fwd(const struct kernel_call *c) { conv_run(c, conv_fwd_member); }

/* ---- backward of the input ---- */
static int64_t conv_blocks(const struct conv *o) { return (o->C + CONV_COLS - 1) / CONV_COLS; }

/* A block of channels of a piece. Of row s the gradient goes into the ring; then row i = s - (K - 1), which no later
 * row reaches, has all of its own. */
VEC_INLINE void conv_dx_unit(const struct conv *o, int64_t index, int64_t first, enum dtype t)
{
    const struct kernel_call *c = o->c;
    struct row_piece p = piece_at(o->at, index);
    int64_t K = o->K, end = first + CONV_COLS < o->C ? first + CONV_COLS : o->C, reach[CONV_MOST] = {0};
    float ring[CONV_MOST * CONV_COLS];
    bool halo = c->n_in > 4 && c->din[4].p;
    struct conv_row r;
    for (int64_t s = 0; s < p.n + K - 1; s++) {
        if (s < p.n) {
            conv_row_at(o, &p, index, s, &r);
            reach[s % K] = r.n;
            for (int64_t ch = first; ch < end; ch += VL)
                vf_store(ring + s % K * CONV_COLS + ch - first,
                         conv_grad(o, &r, row_at(&c->dout[0], p.row + s), ch, v_count(end - ch), t));
        }
        int64_t i = s - (K - 1), to = i >= 0 ? p.row + i : (index + 1) * (K - 1) + i;
        int which = i >= 0 ? 0 : 4;
        if (i >= 0 ? !c->din[0].p : !halo) continue;
        for (int64_t ch = first; ch < end; ch += VL) {
            vf dx = v_get_or_zero(row_or_null(&c->acc[which], to), ch, v_count(end - ch), t);
            for (int64_t j = i < 0 ? -i : 0; j < K && i + j < p.n; j++)
                if (reach[(i + j) % K] >= j)
                    dx = vf_fma(vf_load(o->taps + (K - 1 - j) * o->ld + ch),
                                vf_load(ring + (i + j) % K * CONV_COLS + ch - first), dx);
            v_put(row_at(&c->din[which], to), ch, v_count(end - ch), t, dx);
        }
    }
}
static void conv_dx_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    struct conv o = conv_of(c);
    int64_t lo, hi, blocks = conv_blocks(&o);
    team_split(pieces_all(o.at) * blocks, member, n_members, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        V_TYPED(c->in[0].dtype, conv_dx_unit, &o, u / blocks, u % blocks * CONV_COLS);
    }
}
static void conv_bwd_in(const struct kernel_call *c) { conv_run(c, conv_dx_member); }

/* ---- backward of the taps ---- */
static int64_t conv_chunks(const struct kernel_call *c) { return (c->in[0].n[0] + CONV_CHUNK - 1) / CONV_CHUNK; }
static float *conv_sums(const struct conv *o, int64_t chunk) { return o->taps + (chunk + 1) * (o->K + 1) * o->ld; }

VEC_INLINE void conv_dw_chunk(const struct conv *o, int64_t chunk, enum dtype t)
{
    const struct kernel_call *c = o->c;
    int64_t rows = c->in[0].n[0], lo = chunk * CONV_CHUNK, hi = lo + CONV_CHUNK < rows ? lo + CONV_CHUNK : rows;
    float *sum = conv_sums(o, chunk), *bias = sum + o->K * o->ld;
    struct conv_walk w = conv_walk_from(o);
    struct conv_row r;
    memset(sum, 0, to_size((o->K + 1) * o->ld) * sizeof *sum);
    for (int64_t row = lo; row < hi; row++) {
        const void *dy = row_at(&c->dout[0], row);
        conv_walk_to(o, &w, row, &r);
        for (int64_t ch = 0; ch < o->C; ch += VL) {
            int k = v_count(o->C - ch);
            vf dv = conv_grad(o, &r, dy, ch, k, t);
            vf_store(bias + ch, vf_load(bias + ch) + dv);
            for (int64_t j = 0; j <= r.n; j++) {
                float *at = sum + (o->K - 1 - j) * o->ld + ch;
                vf_store(at, vf_fma(dv, v_get(r.x[j], ch, k, t), vf_load(at)));
            }
        }
    }
}
/* The chunks in order, of VL channels of a tap (K: of the bias). */
VEC_INLINE vf conv_total(const struct conv *o, int64_t tap, int64_t ch)
{
    vf s = vf_zero();
    for (int64_t q = 0; q < conv_chunks(o->c); q++) s += vf_load(conv_sums(o, q) + tap * o->ld + ch);
    return s;
}
static void conv_dw_put(const struct conv *o, int64_t ch)
{
    const struct kernel_call *c = o->c;
    float some[VL], *b = c->n_in > 2 ? c->din[2].p : NULL;
    int n = v_count(o->C - ch);
    for (int64_t k = 0; c->din[1].p && k < o->K; k++) {
        vf_store(some, conv_total(o, k, ch));
        for (int i = 0; i < n; i++) {
            const float *acc = row_or_null(&c->acc[1], ch + i);
            ((float *)row_at(&c->din[1], ch + i))[k] = some[i] + (acc ? acc[k] : 0);
        }
    }
    if (b) v_put(b, ch, n, DT_F32, conv_total(o, o->K, ch) + v_get_or_zero(c->acc[2].p, ch, n, DT_F32));
}
static void conv_dw_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    struct conv o = conv_of(c);
    int64_t lo, hi;
    team_split(conv_chunks(c), member, n_members, &lo, &hi);
    for (int64_t q = lo; q < hi; q++) {
        V_TYPED(c->in[0].dtype, conv_dw_chunk, &o, q);
    }
    team_barrier(kernel_team(c));
    team_split(o.ld / VL, member, n_members, &lo, &hi);
    for (int64_t v = lo; v < hi; v++) conv_dw_put(&o, v * VL);
}
static void conv_bwd_w(const struct kernel_call *c) { conv_run(c, conv_dw_member); }

static size_t conv_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    struct conv o = conv_of(c);
    int64_t tables = 1 + (c->phase == KERNEL_BWD_W ? conv_chunks(c) : 0);
    return to_size(tables * (o.K + 1) * o.ld) * sizeof(float);
}

#endif
