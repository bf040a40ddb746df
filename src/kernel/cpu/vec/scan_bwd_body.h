/* SPDX-License-Identifier: Apache-2.0 */
/* scan_bwd_body.h: SCAN and SCAN_END backward (scan_body.h has the plan and the forward).
 *
 * States at the beginnings of all chunks are made again; then chunks go from the last to the first, and g is the
 * gradient of the state behind the chunk. With P = dY X^T, W = D * (C B^T) * P and the other names of forward,
 *
 *     dX  = (D * C B^T diag(step))^T dY + diag(leave step) B g^T + skip dY
 *     dC  = E B + sum over heads of diag(enter) dY h        E = sum over heads of D * P diag(step)
 *     dB  = E^T C + sum over heads of diag(leave step) X g
 *     g'  = through g + (diag(enter) dY)^T C
 *     dstep_s = sum over t of W_ts + leave_s z_s            z_s = x_s . (B g^T)_s
 *
 * A log decay l_i is part of cum_t for all t >= i: of what goes from s to t it sees s < i <= t, so
 *
 *     dl_i = sum over t >= i of (r_t + u_t - k_t) + sum over s < i of v_s + through <g, h>
 *     r_t = sum over s < t of W_ts step_s    k_s = step_s sum over t > s of W_ts    u_t = enter_t dy_t . (h c_t)
 *     v_s = leave_s step_s z_s
 *
 * within i's document; u only where a state came in, v and the last term where i is of the chunk's last one. What
 * stands on the diagonal of W is of no decay, and stays out of the difference.
 *
 * dC and dB are of a block of heads: blocks' rows go to scratch, and are added in order when all are there. */
#ifndef TUTTI_KERNEL_CPU_VEC_SCAN_BWD_BODY_H
#define TUTTI_KERNEL_CPU_VEC_SCAN_BWD_BODY_H

#include "kernel/cpu/vec/scan_fwd_body.h"

struct scan_bwd {
    struct scan_fwd f;                             /* h: unused */
    float *starts;                                 /* [chunk][head] states at the chunks' beginnings */
    float *d;                                      /* g, of each head */
    float *pairs, *e, *weights;                    /* chunk x chunk: P, E, what x is multiplied by */
    float *dy, *dx, *bg, *edy;                     /* chunk x A: B g^T, diag(enter) dY */
    float *c, *ch, *dbc;                           /* chunk x N: C, diag(enter) dY h; 2 of them: dB, dC */
    void *dy_rows, *dy_cols, *edy_rows, *edy_cols; /* dY: lanes t; depth t */
    void *x_lanes, *sx_rows, *w_panels, *e_rows, *e_cols;
    void *b_rows, *c_out;
    void *g_a, *g_n, *h_n; /* a state: lanes are its rows, its columns */
};
static int64_t scan_chunks(const struct scan *x)
{
    int64_t longest = piece_at(&x->at->at, 0).n, tail = x->at->at.parts > 1 ? piece_at(&x->at->at, 1).n : 0;
    if (tail > longest) longest = tail;
    return (longest + x->chunk - 1) / x->chunk;
}
static size_t scan_bwd_carve(const struct scan *x, struct scan_bwd *w, void *scratch)
{
    struct carve s = {scratch, 0};
    int64_t T = x->chunk, A = x->A, N = x->N;
    size_t of_fwd = scan_fwd_carve(x, &w->f, scratch);
    s.used = of_fwd;
    w->starts = carve_floats(&s, (scan_chunks(x) + 1) * x->most * scan_state(x));
    w->d = carve_floats(&s, x->most * scan_state(x));
    float **square[] = {&w->pairs, &w->e, &w->weights}, **wide[] = {&w->dy, &w->dx, &w->bg, &w->edy};
    for (int i = 0; i < 3; i++) *square[i] = carve_floats(&s, T * x->chunk_pad);
    for (int i = 0; i < 4; i++) *wide[i] = carve_floats(&s, T * x->a_pad);
    w->c = carve_floats(&s, T * x->n_pad);
    w->ch = carve_floats(&s, T * x->n_pad);
    w->dbc = carve_floats(&s, 2 * T * x->n_pad);
    w->dy_rows = carve_a(&s, x, T, A);
    w->dy_cols = carve_b(&s, x, A, T);
    w->edy_rows = carve_a(&s, x, T, A);
    w->edy_cols = carve_a(&s, x, A, T);
    w->x_lanes = carve_b(&s, x, T, A);
    w->sx_rows = carve_a(&s, x, T, A);
    w->w_panels = carve_a(&s, x, T, T);
    w->e_rows = carve_a(&s, x, T, T);
    w->e_cols = carve_a(&s, x, T, T);
    w->b_rows = carve_a(&s, x, T, N);
    w->c_out = carve_b(&s, x, N, T);
    w->g_a = carve_b(&s, x, A, N);
    w->g_n = carve_b(&s, x, N, A);
    w->h_n = carve_b(&s, x, N, A);
    return s.used;
}

/* Sums over pairs of a chunk, of a head. */
struct scan_sums {
    float col[SCAN_CHUNK], row[SCAN_CHUNK]; /* over t > s of W; over s < t of W step */
    float same[SCAN_CHUNK];                 /* the diagonal of W */
    float z[SCAN_CHUNK], u[SCAN_CHUNK];
    float through; /* through <g, h> */
};
static void scan_pairs(const struct scan *x, const struct scan_chunk *k, const struct scan_times *m, struct scan_bwd *w,
                       struct scan_sums *sums)
{
    for (int64_t t = 0; t < k->n; t++) {
        const float *g = w->f.g + t * x->chunk_pad, *p = w->pairs + t * x->chunk_pad;
        float *to = w->weights + t * x->chunk_pad, *e = w->e + t * x->chunk_pad;
        vf sum = vf_zero(), none = vf_zero();
        for (int64_t s = 0; s < x->chunk_pad && s < SCAN_CHUNK; s += VL) {
            if (s > t || s + VL <= k->first[t]) {
                vf_store(to + s, none);
                continue;
            }
            vi at = vi_add(vi_set((uint32_t)s), vi_iota());
            vf d = vf_pick(vi_gt(at, vi_set((uint32_t)t)), none, scan_between(m, m->hi[t], m->lo[t], s));
            d = vf_pick(vi_gt(vi_set((uint32_t)k->first[t]), at), none, d);
            vmask here = vi_gt(vi_set((uint32_t)t + 1), at);
            vf step = vf_load(m->step + s), dg = vf_pick(here, d * vf_load(g + s), none);
            vf pair = vf_pick(here, vf_load(p + s), none);
            vf_store(to + s, dg * step);
            vf_store(e + s, vf_fma(d * step, pair, vf_load(e + s)));
            vf both = vf_pick(vi_eq(at, vi_set((uint32_t)t)), none, dg * pair);
            vf_store(sums->col + s, vf_load(sums->col + s) + both);
            sum = vf_fma(both, step, sum);
        }
        sums->row[t] = vf_sum(sum);
        sums->same[t] = g[t] * p[t];
    }
}

VEC_INLINE float scan_dot(const float *a, const float *b, int64_t n)
{
    vf sum[2] = {vf_zero(), vf_zero()};
    for (int64_t i = 0, j = 0; i < n; i += VL, j ^= 1) sum[j] = vf_fma(vf_load(a + i), vf_load(b + i), sum[j]);
    return vf_sum(sum[0] + sum[1]);
}
static void scan_add(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) vf_store(to + i, vf_load(to + i) + vf_load(from + i));
}

/* What goes through y inside of the chunk: dx, E, the sums. */
static void scan_back_inside(const struct scan *x, const struct scan_chunk *k, const struct scan_times *m,
                             struct scan_bwd *w, int64_t head, struct scan_sums *sums)
{
    const struct tile_ops *o = x->o;
    const struct view *skip = &x->c->in[3];
    vf by = vf_set(v_get_one(skip->p, head, skip->dtype));
    scan_get(w->dy, x->a_pad, &x->c->dout[0], k->row, head * x->A, k->n, x->A);
    o->pack_a(w->dy_rows, scan_here(w->dy, x->a_pad, true), k->n, x->A);
    o->pack_b(w->x_lanes, scan_here(w->f.x, x->a_pad, true), k->n, x->A);
    scan_mul_below(x, w->pairs, x->chunk_pad, w->dy_rows, w->x_lanes, k->n, x->A);
    scan_pairs(x, k, m, w, sums);
    o->pack_a(w->w_panels, scan_here(w->weights, x->chunk_pad, false), k->n, k->n);
    o->pack_b(w->dy_cols, scan_here(w->dy, x->a_pad, false), x->A, k->n);
    scan_mul(x, w->dx, x->a_pad, w->w_panels, w->dy_cols, k->n, k->n, false);
    for (int64_t i = 0; i < k->n * x->a_pad; i += VL)
        vf_store(w->dx + i, vf_fma(by, vf_load(w->dy + i), vf_load(w->dx + i)));
}

/* What y has of the state before the chunk: dC, and diag(enter) dY, which the state's own gradient is made of. */
static void scan_back_enter(const struct scan *x, const struct scan_chunk *k, const struct scan_times *m,
                            struct scan_bwd *w, const float *h, struct scan_sums *sums)
{
    const struct tile_ops *o = x->o;
    scan_scaled(w->edy, w->dy, m->enter, NULL, k->n, x->a_pad);
    o->pack_a(w->edy_rows, scan_here(w->edy, x->a_pad, true), k->n, x->A);
    o->pack_b(w->h_n, scan_here(h, x->n_pad, false), x->N, x->A);
    scan_mul(x, w->ch, x->n_pad, w->edy_rows, w->h_n, k->n, x->A, false);
    for (int64_t t = 0; t < k->n; t++) sums->u[t] = scan_dot(w->ch + t * x->n_pad, w->c + t * x->n_pad, x->n_pad);
    scan_add(w->dbc + x->chunk * x->n_pad, w->ch, k->n * x->n_pad);
}

/* What comes from the state behind the chunk: dx, dB. */
static void scan_back_leave(const struct scan *x, const struct scan_chunk *k, const struct scan_times *m,
                            struct scan_bwd *w, const float *d, struct scan_sums *sums)
{
    const struct tile_ops *o = x->o;
    o->pack_b(w->g_a, scan_here(d, x->n_pad, true), x->A, x->N);
    scan_mul(x, w->bg, x->a_pad, w->b_rows, w->g_a, k->n, x->N, false);
    for (int64_t s = 0; s < k->n; s++) {
        const int64_t at = s * x->a_pad;
        vf by = vf_set(m->leave[s] * m->step[s]);
        sums->z[s] = scan_dot(w->f.x + at, w->bg + at, x->a_pad);
        for (int64_t i = at; i < at + x->a_pad; i += VL)
            vf_store(w->dx + i, vf_fma(by, vf_load(w->bg + i), vf_load(w->dx + i)));
    }
    scan_scaled(w->f.sx, w->f.x, m->leave, m->step, k->n, x->a_pad);
    o->pack_a(w->sx_rows, scan_here(w->f.sx, x->a_pad, true), k->n, x->A);
    o->pack_b(w->g_n, scan_here(d, x->n_pad, false), x->N, x->A);
    scan_mul(x, w->dbc, x->n_pad, w->sx_rows, w->g_n, k->n, x->A, true);
}

/* Gradients of steps and log decays. whole_log: what each log decay has beside. */
static void scan_put_times(const struct scan *x, const struct scan_chunk *k, const struct scan_times *m, int64_t head,
                           const struct scan_sums *sums, double whole_log)
{
    const struct kernel_call *c = x->c;
    if (!c->din[2].p) return;
    double ahead[SCAN_CHUNK], sum = 0;
    int64_t last = k->first[k->n - 1];
    for (int64_t i = k->n - 1; i >= 0; i--) { /* over t >= i of i's document */
        if (i + 1 < k->n && k->first[i] != k->first[i + 1]) sum = 0;
        sum += (double)sums->row[i] - (double)m->step[i] * (double)sums->col[i] + (double)sums->u[i];
        ahead[i] = sum;
    }
    sum = k->open == k->n ? (double)sums->through : 0;
    for (int64_t i = 0; i < k->n; i++) {
        bool begins = k->first[i] == i && i >= k->open;
        float *to = row_at(&c->din[2], k->row + i);
        const float *acc = row_or_null(&c->acc[2], k->row + i);
        double leave = (double)m->leave[i] * (double)sums->z[i];
        double ds = (double)sums->col[i] + (double)sums->same[i] + leave, dl = ahead[i] + whole_log;
        if (i >= last) dl += sum, sum += (double)m->step[i] * leave;
        if (begins) dl = whole_log;
        to[head] = (float)(ds + (acc ? (double)acc[head] : 0));
        to[x->at->heads + head] = (float)(dl + (acc ? (double)acc[x->at->heads + head] : 0));
    }
}

/* A head of a chunk; h: the state before it, d: the gradient of the one behind it, then of that before. later: d is
 * not 0. */
static void scan_back_head(const struct scan *x, const struct scan_chunk *k, struct scan_bwd *w, int64_t head,
                           const float *h, float *d, bool later, double whole_log)
{
    struct scan_times m;
    struct scan_sums sums;
    memset(&sums, 0, sizeof sums);
    scan_times_at(x, k, head, &m);
    scan_get(w->f.x, x->a_pad, &x->c->in[0], k->row, head * x->A, k->n, x->A);
    if (x->reads) scan_back_inside(x, k, &m, w, head, &sums);
    else memset(w->dx, 0, to_size(k->n * x->a_pad) * sizeof *w->dx);
    if (later) scan_back_leave(x, k, &m, w, d, &sums);
    sums.through = m.through * scan_dot(d, h, scan_state(x));
    for (int64_t i = 0; i < scan_state(x); i += VL) vf_store(d + i, vf_set(m.through) * vf_load(d + i));
    if (x->reads && k->open) {
        scan_back_enter(x, k, &m, w, h, &sums);
        x->o->pack_a(w->edy_cols, scan_here(w->edy, x->a_pad, false), x->A, k->n);
        scan_mul(x, d, x->n_pad, w->edy_cols, w->c_out, x->A, k->n, true);
    }
    if (x->c->din[0].p) scan_put(&x->c->din[0], &x->c->acc[0], k->row, head * x->A, w->dx, x->a_pad, k->n, x->A);
    scan_put_times(x, k, &m, head, &sums, whole_log);
}

/* Rows of a block's dB and dC: [block][row][2 groups N], of all blocks. */
static float *scan_part(const struct scan *x, int64_t block, int64_t row)
{
    return (float *)x->c->scratch + (block * x->c->in[0].n[0] + row) * 2 * x->at->groups * x->N;
}
static size_t scan_part_bytes(const struct scan *x)
{
    return to_size(round_up(x->blocks * x->c->in[0].n[0] * 2 * x->at->groups * x->N, 16)) * sizeof(float);
}

static void scan_put_part(const struct scan *x, const struct scan_chunk *k, const struct scan_run *r, int64_t block,
                          const struct scan_bwd *w)
{
    for (int64_t t = 0; t < k->n; t++)
        for (int i = 0; i < 2; i++)
            memcpy(scan_part(x, block, k->row + t) + (i * x->at->groups + r->group) * x->N,
                   w->dbc + (i * x->chunk + t) * x->n_pad, to_size(x->N) * sizeof(float));
}

static void scan_back_chunk(const struct scan *x, const struct scan_run *r, struct scan_bwd *w, int64_t at,
                            const double *whole_log, bool later)
{
    const struct tile_ops *o = x->o;
    struct scan_chunk k;
    scan_chunk_at(x, r, at, &k);
    float *db = w->dbc, *dc = db + x->chunk * x->n_pad;
    memset(w->dbc, 0, to_size(2 * x->chunk * x->n_pad) * sizeof *db);
    memset(w->e, 0, to_size(x->chunk * x->chunk_pad) * sizeof *w->e);
    o->pack_a(w->b_rows, scan_bc(x, 0, k.row, r->group, true), k.n, x->N);
    if (x->reads) {
        scan_get(w->c, x->n_pad, &x->c->in[1], k.row, (x->at->groups + r->group) * x->N, k.n, x->N);
        o->pack_a(w->f.c_panels, scan_here(w->c, x->n_pad, true), k.n, x->N);
        o->pack_b(w->f.b_panels, scan_bc(x, 0, k.row, r->group, true), k.n, x->N);
        o->pack_b(w->c_out, scan_here(w->c, x->n_pad, false), x->N, k.n);
        scan_mul_below(x, w->f.g, x->chunk_pad, w->f.c_panels, w->f.b_panels, k.n, x->N);
    }
    for (int64_t i = 0; i < r->heads; i++) {
        const float *h = w->starts + (at / x->chunk * x->most + i) * scan_state(x);
        scan_back_head(x, &k, w, r->head + i, h, w->d + i * scan_state(x), later, whole_log[i]);
    }
    if (x->reads) {
        o->pack_b(w->f.b_out, scan_bc(x, 0, k.row, r->group, false), x->N, k.n);
        o->pack_a(w->e_rows, scan_here(w->e, x->chunk_pad, true), k.n, k.n);
        o->pack_a(w->e_cols, scan_here(w->e, x->chunk_pad, false), k.n, k.n);
        scan_mul_lower(x, dc, x->n_pad, w->e_rows, w->f.b_out, k.n, true);
        scan_mul(x, db, x->n_pad, w->e_cols, w->c_out, k.n, k.n, true);
    }
    scan_put_part(x, &k, r, (r->head - r->group * x->each) / x->most, w);
}

/* States at the beginnings of all chunks. */
static void scan_make_starts(const struct scan *x, const struct scan_run *r, struct scan_bwd *w)
{
    struct scan_chunk k;
    struct scan_times m;
    scan_begin_states(x, r, w->starts);
    for (int64_t at = 0; at + x->chunk < r->p.n; at += x->chunk) {
        scan_chunk_at(x, r, at, &k);
        x->o->pack_b(w->f.b_out, scan_bc(x, 0, k.row, r->group, false), x->N, k.n);
        for (int64_t i = 0; i < r->heads; i++) {
            float *h = w->starts + (at / x->chunk * x->most + i) * scan_state(x);
            scan_times_at(x, &k, r->head + i, &m);
            scan_get(w->f.x, x->a_pad, &x->c->in[0], k.row, (r->head + i) * x->A, k.n, x->A);
            scan_advance(x, &k, &m, &w->f, h, h + x->most * scan_state(x));
        }
    }
}

static void scan_bwd_unit(const struct scan *x, const struct scan_run *r, void *mine)
{
    const struct kernel_call *c = x->c;
    struct scan_bwd w;
    double whole_log[SCAN_HEADS] = {0};
    scan_bwd_carve(x, &w, mine);
    scan_make_starts(x, r, &w);
    memset(w.d, 0, to_size(x->most * scan_state(x)) * sizeof *w.d);
    for (int64_t i = 0; !x->reads && i < r->heads; i++) {
        const float *of = row_at(&c->dout[0], r->index);
        scan_get_state(x, w.d + i * scan_state(x), &c->dout[0], r->index, r->head + i);
        whole_log[i] =
            (double)scan_whole_decay(x, r, r->head + i) * (double)of[x->at->heads * x->A * x->N + r->head + i];
    }
    bool later = !x->reads;
    for (int64_t at = (r->p.n - 1) / x->chunk * x->chunk; at >= 0 && r->p.n; at -= x->chunk, later = true)
        scan_back_chunk(x, r, &w, at, whole_log, later);
    for (int64_t i = 0; x->reads && c->n_in > 5 && c->din[5].p && i < r->heads; i++)
        scan_put_state(x, &c->din[5], &c->acc[5], r->index, r->head + i, w.d + i * scan_state(x));
}

/* dB and dC of a row: the blocks in order. */
VEC_INLINE void scan_join_rows(const struct scan *x, int64_t lo, int64_t hi, enum dtype t)
{
    const struct view *to = &x->c->din[1];
    for (int64_t row = lo; row < hi; row++)
        for (int64_t i = 0; i < to->n[1]; i += VL) {
            int n = v_count(to->n[1] - i);
            vf sum = v_get_or_zero(row_or_null(&x->c->acc[1], row), i, n, t);
            for (int64_t b = 0; b < x->blocks; b++) sum += v_get(scan_part(x, b, row), i, n, DT_F32);
            v_put(row_at(to, row), i, n, t, sum);
        }
}

static void scan_bwd_member(void *arg, int member, int n_members)
{
    struct scan_job *j = arg;
    const struct kernel_call *c = j->x->c;
    int64_t lo, hi;
    scan_take_units(j, member);
    team_barrier(kernel_team(c));
    if (!c->din[1].p) return;
    team_split(c->in[0].n[0], member, n_members, &lo, &hi);
    V_TYPED(c->din[1].dtype, scan_join_rows, j->x, lo, hi);
}
static void scan_bwd(const struct kernel_call *c)
{
    struct scan x = scan_of(c);
    struct scan_bwd w;
    struct scan_job job = {.x = &x,
                           .scratch = (char *)c->scratch + scan_part_bytes(&x),
                           .each = scan_bwd_carve(&x, &w, NULL),
                           .n_units = scan_units(&x),
                           .unit = scan_bwd_unit};
    atomic_init(&job.next, 0);
    team_run(kernel_team(c), scan_bwd_member, &job);
}
static size_t scan_bwd_scratch(const struct kernel_call *c, int n_threads)
{
    struct scan x = scan_of(c);
    struct scan_bwd w;
    return scan_part_bytes(&x) + (size_t)n_threads * scan_bwd_carve(&x, &w, NULL);
}

/* ---- skip: rows in chunks, then the chunks in order ---- */
static int64_t scan_skip_chunks(const struct kernel_call *c) { return (c->in[0].n[0] + SCAN_CHUNK - 1) / SCAN_CHUNK; }
static size_t scan_skip_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return to_size(scan_skip_chunks(c) * at_scan(&c->at)->heads) * sizeof(float);
}
VEC_INLINE void scan_skip_rows(const struct kernel_call *c, int64_t lo, int64_t hi, float *to, enum dtype t)
{
    const struct scan_attrs *at = at_scan(&c->at);
    for (int64_t h = 0; h < at->heads; h++) {
        vf sum = vf_zero();
        for (int64_t row = lo; row < hi; row++)
            for (int64_t a = 0; a < at->head_dim; a += VL) {
                int n = v_count(at->head_dim - a);
                sum = vf_fma(v_get(row_at(&c->in[0], row), h * at->head_dim + a, n, t),
                             v_get(row_at(&c->dout[0], row), h * at->head_dim + a, n, t), sum);
            }
        to[h] = vf_sum(sum);
    }
}
static void scan_skip_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi, heads = at_scan(&c->at)->heads, chunks = scan_skip_chunks(c), rows = c->in[0].n[0];
    float *part = c->scratch, *to = c->din[3].p;
    team_split(chunks, member, n_members, &lo, &hi);
    for (int64_t q = lo; q < hi; q++) {
        int64_t end = (q + 1) * SCAN_CHUNK < rows ? (q + 1) * SCAN_CHUNK : rows;
        V_TYPED(c->in[0].dtype, scan_skip_rows, c, q * SCAN_CHUNK, end, part + q * heads);
    }
    team_barrier(kernel_team(c));
    if (!to) return;
    team_split(heads, member, n_members, &lo, &hi);
    for (int64_t h = lo; h < hi; h++) {
        float sum = c->acc[3].p ? ((const float *)c->acc[3].p)[h] : 0;
        for (int64_t q = 0; q < chunks; q++) sum += part[q * heads + h];
        to[h] = sum;
    }
}
static void scan_skip(const struct kernel_call *c) { team_run_call(scan_skip_member, c); }

#endif
