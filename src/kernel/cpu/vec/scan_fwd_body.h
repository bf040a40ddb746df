/* SPDX-License-Identifier: Apache-2.0 */
/* scan_fwd_body.h: SCAN, SCAN_END and SCAN_CACHED forward (scan_body.h has the plan).
 *
 * A few new tokens of a sequence in SCAN_CACHED are scanned one by one on the state in place, which is read and written
 * once for each: 16 bytes of memory for 5 operations, so a machine's bandwidth is its pace. From SCAN_FEW on they go by
 * chunks. */
#ifndef TUTTI_KERNEL_CPU_VEC_SCAN_FWD_BODY_H
#define TUTTI_KERNEL_CPU_VEC_SCAN_FWD_BODY_H

#include "kernel/cpu/vec/scan_body.h"

enum { SCAN_FEW = 8 };

struct scan_fwd {
    float *h;                  /* states of the heads; a row of b, one of c */
    float *g, *m, *x, *y, *sx; /* chunk x chunk: C B^T, weights; chunk x A: x, y, scaled x */
    void *c_panels, *b_panels, *m_panels, *h_panels, *x_panels; /* of y */
    void *b_out, *sx_panels;                                    /* of the state */
};
static size_t scan_fwd_carve(const struct scan *x, struct scan_fwd *f, void *scratch)
{
    struct carve s = {scratch, 0};
    f->h = carve_floats(&s, x->most * scan_state(x) + 2 * x->n_pad);
    f->g = carve_floats(&s, x->chunk * x->chunk_pad);
    f->m = carve_floats(&s, x->chunk * x->chunk_pad);
    f->x = carve_floats(&s, x->chunk * x->a_pad);
    f->y = carve_floats(&s, x->chunk * x->a_pad);
    f->sx = carve_floats(&s, x->chunk * x->a_pad);
    f->c_panels = carve_a(&s, x, x->chunk, x->N);
    f->b_panels = carve_b(&s, x, x->chunk, x->N);
    f->m_panels = carve_a(&s, x, x->chunk, x->chunk);
    f->h_panels = carve_b(&s, x, x->A, x->N);
    f->x_panels = carve_b(&s, x, x->A, x->chunk);
    f->b_out = carve_b(&s, x, x->N, x->chunk);
    f->sx_panels = carve_a(&s, x, x->A, x->chunk);
    return s.used;
}

/* m = D * g diag(step), of rows that begin with whole vectors of zeros above the diagonal. */
static void scan_weights(const struct scan *x, const struct scan_chunk *k, const struct scan_times *m, const float *g,
                         float *w)
{
    for (int64_t t = 0; t < k->n; t++)
        for (int64_t s = 0; s < x->chunk_pad && s < SCAN_CHUNK; s += VL) {
            vf to = vf_zero();
            if (s <= t && s + VL > k->first[t]) {
                vi at = vi_add(vi_set((uint32_t)s), vi_iota());
                vf d =
                    scan_between(m, m->hi[t], m->lo[t], s) * vf_load(m->step + s) * vf_load(g + t * x->chunk_pad + s);
                to = vf_pick(vi_gt(at, vi_set((uint32_t)t)), to,
                             vf_pick(vi_gt(vi_set((uint32_t)k->first[t]), at), to, d));
            }
            vf_store(w + t * x->chunk_pad + s, to);
        }
}

/* h = through h + x^T diag(leave step) b: b_out and f->x are there. */
static void scan_advance(const struct scan *x, const struct scan_chunk *k, const struct scan_times *m,
                         struct scan_fwd *f, const float *h, float *to)
{
    vf by = vf_set(m->through);
    for (int64_t i = 0; i < scan_state(x); i += VL) vf_store(to + i, by * vf_load(h + i));
    scan_scaled(f->sx, f->x, m->leave, m->step, k->n, x->a_pad);
    x->o->pack_a(f->sx_panels, scan_here(f->sx, x->a_pad, false), x->A, k->n);
    scan_mul(x, to, x->n_pad, f->sx_panels, f->b_out, x->A, k->n, true);
}

/* y of a head; goes_on: a state comes from before. */
static void scan_read(const struct scan *x, const struct scan_chunk *k, const struct scan_times *m, struct scan_fwd *f,
                      const float *h, int64_t head, bool goes_on)
{
    const struct view *skip = &x->c->in[x->c->op == OP_SCAN ? 3 : 5];
    vf by = vf_set(v_get_one(skip->p, head, skip->dtype));
    goes_on &= k->open > 0;
    if (goes_on) {
        x->o->pack_b(f->h_panels, scan_here(h, x->n_pad, true), x->A, x->N);
        scan_mul(x, f->y, x->a_pad, f->c_panels, f->h_panels, k->n, x->N, false);
        scan_scaled(f->y, f->y, m->enter, NULL, k->n, x->a_pad);
    }
    scan_weights(x, k, m, f->g, f->m);
    x->o->pack_a(f->m_panels, scan_here(f->m, x->chunk_pad, true), k->n, k->n);
    x->o->pack_b(f->x_panels, scan_here(f->x, x->a_pad, false), x->A, k->n);
    scan_mul_lower(x, f->y, x->a_pad, f->m_panels, f->x_panels, k->n, goes_on);
    for (int64_t i = 0; i < k->n * x->a_pad; i += VL)
        vf_store(f->y + i, vf_fma(by, vf_load(f->x + i), vf_load(f->y + i)));
    scan_put(&x->c->out[0], NULL, k->row, head * x->A, f->y, x->a_pad, k->n, x->A);
}

/* All chunks of a run, from the states f->h on. */
static void scan_fwd_run(const struct scan *x, const struct scan_run *r, struct scan_fwd *f, bool goes_on)
{
    struct scan_chunk k;
    struct scan_times m;
    for (int64_t at = 0; at < r->p.n; at += x->chunk, goes_on = true) {
        scan_chunk_at(x, r, at, &k);
        x->o->pack_b(f->b_out, scan_bc(x, 0, k.row, r->group, false), x->N, k.n);
        if (x->reads) {
            x->o->pack_a(f->c_panels, scan_bc(x, 1, k.row, r->group, true), k.n, x->N);
            x->o->pack_b(f->b_panels, scan_bc(x, 0, k.row, r->group, true), k.n, x->N);
            scan_mul_below(x, f->g, x->chunk_pad, f->c_panels, f->b_panels, k.n, x->N);
        }
        for (int64_t i = 0; i < r->heads; i++) {
            float *h = f->h + i * scan_state(x);
            scan_times_at(x, &k, r->head + i, &m);
            scan_get(f->x, x->a_pad, &x->c->in[0], k.row, (r->head + i) * x->A, k.n, x->A);
            if (x->reads) scan_read(x, &k, &m, f, h, r->head + i, goes_on);
            scan_advance(x, &k, &m, f, h, h);
        }
    }
}

/* The states before a run; false: they are 0. */
static bool scan_begin_states(const struct scan *x, const struct scan_run *r, float *h)
{
    const struct view *from = NULL;
    int64_t row = r->index;
    if (x->c->op == OP_SCAN && x->c->n_in > 5 && x->c->in[5].p) from = &x->c->in[5];
    if (x->c->op == OP_SCAN_CACHED) {
        struct cache_run run = cache_run_of(x->c, r->index);
        row = run.state;
        if (run.past) from = &x->c->in[4];
    }
    for (int64_t i = 0; i < r->heads; i++) {
        if (from) scan_get_state(x, h + i * scan_state(x), from, row, r->head + i);
        else memset(h + i * scan_state(x), 0, to_size(scan_state(x)) * sizeof *h);
    }
    return from != NULL;
}

/* What a state before the run is multiplied by on its way to the end. */
static float scan_whole_decay(const struct scan *x, const struct scan_run *r, int64_t head)
{
    double sum = 0;
    for (int64_t i = 0; i < r->p.n; i++) {
        if (piece_begins(&x->at->at, x->docs, &r->p, i)) return 0;
        sum += (double)((const float *)row_at(&x->c->in[2], r->p.row + i))[x->at->heads + head];
    }
    return (float)exp(sum);
}

static void scan_fwd_unit(const struct scan *x, const struct scan_run *r, void *mine)
{
    struct scan_fwd f;
    scan_fwd_carve(x, &f, mine);
    scan_fwd_run(x, r, &f, scan_begin_states(x, r, f.h));
    const struct view *end = &x->c->out[0];
    for (int64_t i = 0; !x->reads && i < r->heads; i++) {
        int64_t head = r->head + i;
        scan_put_state(x, end, NULL, r->index, head, f.h + i * scan_state(x));
        ((float *)row_at(end, r->index))[x->at->heads * x->A * x->N + head] = scan_whole_decay(x, r, head);
    }
}

/* ---- new tokens after what a sequence has had ---- */
/* Row a of a head's state, one token further; its part of y. */
VEC_INLINE float scan_step(float *h, float decay, float put, const float *b, const float *c, int64_t n)
{
    vf sum = vf_zero(), q = vf_set(decay), s = vf_set(put);
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        vf v = vf_fma(s, vf_load(b + i), q * v_get(h, i, k, DT_F32));
        v_put(h, i, k, DT_F32, v);
        sum = vf_fma(v, vf_load(c + i), sum);
    }
    return vf_sum(sum);
}
static void scan_few(const struct scan *x, const struct scan_run *r, struct scan_fwd *f)
{
    const struct kernel_call *c = x->c;
    struct cache_run run = cache_run_of(c, r->index);
    float *b = f->h + x->most * scan_state(x), *read = b + x->n_pad, *state = row_at(&c->in[4], run.state);
    for (int64_t row = r->p.row; row < r->p.row + r->p.n; row++) {
        const float *s = row_at(&c->in[2], row);
        scan_get(b, x->n_pad, &c->in[1], row, r->group * x->N, 1, x->N);
        scan_get(read, x->n_pad, &c->in[1], row, (x->at->groups + r->group) * x->N, 1, x->N);
        for (int64_t h = r->head; h < r->head + r->heads; h++) {
            float decay = expf(s[x->at->heads + h]), skip = v_get_one(c->in[5].p, h, c->in[5].dtype);
            float *of = state + h * x->A * x->N;
            if (row == r->p.row && !run.past) memset(of, 0, to_size(x->A * x->N) * sizeof *of);
            scan_get(f->x, x->a_pad, &c->in[0], row, h * x->A, 1, x->A);
            for (int64_t a = 0; a < x->A; a++)
                f->y[a] = skip * f->x[a] + scan_step(of + a * x->N, decay, s[h] * f->x[a], b, read, x->N);
            scan_put(&c->out[0], NULL, row, h * x->A, f->y, x->a_pad, 1, x->A);
        }
    }
}
static void scan_cached_unit(const struct scan *x, const struct scan_run *r, void *mine)
{
    struct scan_fwd f;
    scan_fwd_carve(x, &f, mine);
    if (r->p.n <= SCAN_FEW) {
        scan_few(x, r, &f);
        return;
    }
    scan_fwd_run(x, r, &f, scan_begin_states(x, r, f.h));
    int64_t row = cache_run_of(x->c, r->index).state;
    for (int64_t i = 0; i < r->heads; i++)
        scan_put_state(x, &x->c->in[4], NULL, row, r->head + i, f.h + i * scan_state(x));
}
/* Rows of no run. */
static void scan_zero_others(const struct kernel_call *c)
{
    int64_t at = 0, rows = c->out[0].n[0];
    for (int64_t s = 0; s <= c->in[3].n[0]; s++) {
        struct cache_run run = {.first = rows, .n = 1};
        if (s < c->in[3].n[0]) run = cache_run_of(c, s);
        if (!run.n) continue;
        for (; at < run.first; at++)
            memset(row_at(&c->out[0], at), 0, to_size(c->out[0].n[1]) * dtype_bytes(c->out[0].dtype));
        at = run.first + run.n;
    }
}

static void scan_fwd_member(void *arg, int member, int n_members)
{
    (void)n_members;
    scan_take_units(arg, member);
}
static void scan_fwd(const struct kernel_call *c)
{
    struct scan x = scan_of(c);
    struct scan_fwd f;
    struct scan_job job = {.x = &x,
                           .scratch = c->scratch,
                           .each = scan_fwd_carve(&x, &f, NULL),
                           .n_units = scan_units(&x),
                           .unit = c->op == OP_SCAN_CACHED ? scan_cached_unit : scan_fwd_unit};
    if (c->op == OP_SCAN_CACHED) {
        cache_states_check(c);
        scan_zero_others(c);
    }
    atomic_init(&job.next, 0);
    team_run(kernel_team(c), scan_fwd_member, &job);
}
static size_t scan_fwd_scratch(const struct kernel_call *c, int n_threads)
{
    struct scan x = scan_of(c);
    struct scan_fwd f;
    return (size_t)n_threads * scan_fwd_carve(&x, &f, NULL);
}

#endif
