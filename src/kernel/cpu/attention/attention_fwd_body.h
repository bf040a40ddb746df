/* SPDX-License-Identifier: Apache-2.0 */
/* attention_fwd_body.h: attention forward over blocks of queries and keys.
 *
 * Per (sequence, key head) and range of queries, K and V are packed once and serve all query heads of the group.
 * The running maximum moves only when a block's exceeds it by more than ATTN_SLACK (a factor 256): probabilities up
 * to 256 are as exact as those up to 1, in f32 and in bf16, and O^T is rescaled a few times per row of blocks
 * instead of at each one. P is rounded to the panels' type for P V; its sum is taken before rounding.
 *
 * Cost per pair of query and key: 4 A FLOPs in products and about 14 vector instructions per VL pairs.
 */
#ifndef TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_FWD_BODY_H
#define TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_FWD_BODY_H

#include "kernel/cpu/attention/attention_body.h"

#define ATTN_SLACK 8.0f /* in powers of 2 */

struct attn_fwd {
    char *k, *v, *q, *p; /* panels: K (lanes keys) and V^T (lanes A) of every block; Q and P of one */
    size_t k_block, k_step, v_block, q_step;
    float *s, *o, *factor; /* S^T, O^T, dropout's factors (or NULL) */
    float *max, *sum;      /* per query, max in powers of 2 */
};

static size_t attn_fwd_carve(const struct attn *x, struct attn_fwd *f, void *scratch)
{
    struct carve s = {scratch, 0};
    const struct tile_ops *o = x->o;
    f->k_block = tile_a_bytes(o, x->bk, x->a);
    f->v_block = tile_a_bytes(o, x->a, x->bk);
    f->k_step = tile_a_step(o, x->a);
    f->q_step = tile_b_step(o, x->a);
    f->k = carve(&s, f->k_block * (size_t)x->n_kb);
    f->v = carve(&s, f->v_block * (size_t)x->n_kb);
    f->q = carve(&s, tile_b_bytes(o, ATTN_BQ, x->a));
    f->p = carve(&s, tile_b_bytes(o, ATTN_BQ, x->bk));
    f->s = carve_floats(&s, x->bk * ATTN_BQ);
    f->o = carve_floats(&s, round_up(x->a, o->mr) * ATTN_BQ);
    f->factor = x->drop ? carve_floats(&s, x->bk * ATTN_BQ) : NULL;
    f->max = carve_floats(&s, ATTN_BQ);
    f->sum = carve_floats(&s, ATTN_BQ);
    return s.used;
}

/* Largest score per lane of group g, in powers of 2, hiding what the mask hides on the way. */
VEC_INLINE vf attn_block_max(const struct attn *x, const struct attn_block *k, float *s, int g)
{
    vf top[4], low = vf_set(ATTN_HIDDEN);
    for (int u = 0; u < 4; u++) top[u] = low;
    int64_t j = 0;
    if (k->cut) {
        struct attn_mask m = attn_mask_of(x, k, g);
        for (; j < k->nk; j++) {
            vf v = attn_hide(&m, j, vf_load(s + j * ATTN_BQ));
            vf_store(s + j * ATTN_BQ, v);
            top[0] = vf_max(top[0], v);
        }
    }
    for (; j + 4 <= k->nk; j += 4)
        for (int u = 0; u < 4; u++) top[u] = vf_max(top[u], vf_load(s + (j + u) * ATTN_BQ));
    for (; j < k->nk; j++) top[0] = vf_max(top[0], vf_load(s + j * ATTN_BQ));
    return vf_max(vf_max(top[0], top[1]), vf_max(top[2], top[3])) * vf_set(x->log2_scale);
}

/* exp of rows j and j+1 (the second absent: 0) of lane group g into P's panels; adds them to *sum. */
VEC_INLINE void attn_exp_rows(const float *s, const float *factor, int64_t j, bool second, vf by, vf max, vf *sum,
                              int32_t *unit, int nr, enum dtype panel)
{
    bool rough = panel == DT_BF16;
    vf p0 = v_exp2(vf_load(s + j * ATTN_BQ) * by - max, rough), p1 = vf_zero();
    if (second) p1 = v_exp2(vf_load(s + (j + 1) * ATTN_BQ) * by - max, rough);
    sum[0] += p0;
    sum[1] += p1;
    if (factor) {
        p0 *= vf_load(factor + j * ATTN_BQ);
        if (second) p1 *= vf_load(factor + (j + 1) * ATTN_BQ);
    }
    if (panel == DT_BF16) {
        vi_store(unit, vf_pair_bf16(p0, p1));
    } else {
        vi_store(unit, vf_bits(p0));
        if (second) vi_store(unit + nr, vf_bits(p1));
    }
}

/* One block's scores (at f->s) to probabilities (in f->p), for lane group g. */
VEC_INLINE void attn_softmax_group(const struct attn *x, struct attn_fwd *f, const struct attn_block *k, int g,
                                   bool first, bool dropping, enum dtype panel)
{
    float *s = f->s + g * VL;
    const float *factor = dropping ? f->factor + g * VL : NULL;
    const int per = panel == DT_BF16 ? 2 : 1;
    size_t p_step = tile_b_step(x->o, k->nk);
    vf top = attn_block_max(x, k, s, g);
    vf max = first ? vf_set(ATTN_FLOOR) : vf_load(f->max + g * VL), sum[2] = {vf_zero(), vf_zero()};
    if (!first) sum[0] = vf_load(f->sum + g * VL);
    vmask raise = vf_gt(top, max + vf_set(ATTN_SLACK));
    if (vm_any(raise)) {
        vf next = vf_pick(raise, top, max), shrink = v_exp2(max - next, 0);
        sum[0] *= shrink;
        for (int64_t d = 0; d < x->a && !first; d++) {
            float *o = f->o + d * ATTN_BQ + g * VL;
            vf_store(o, vf_load(o) * shrink);
        }
        max = next;
    }
    int64_t j = 0;
    int32_t *unit = attn_unit(x->o, f->p, p_step, g, 0, per);
    const int nr = x->o->nr;
    vf by = vf_set(x->log2_scale);
    for (; j + 2 <= k->nk; j += 2, unit += 2 / per * nr)
        attn_exp_rows(s, factor, j, true, by, max, sum, unit, nr, panel);
    if (j < k->nk) attn_exp_rows(s, factor, j, false, by, max, sum, unit, nr, panel);
    attn_zero_depth(x->o, f->p, p_step, g, k->nk, per);
    vf_store(f->max + g * VL, max);
    vf_store(f->sum + g * VL, sum[0] + sum[1]);
}

static void attn_softmax(const struct attn *x, struct attn_fwd *f, const struct attn_block *k, bool first,
                         bool dropping)
{
    for (int g = 0; g * VL < k->nq_pad; g++) {
        if (x->o->panel == DT_BF16) attn_softmax_group(x, f, k, g, first, dropping, DT_BF16);
        else attn_softmax_group(x, f, k, g, first, dropping, DT_F32);
    }
}

/* The sink of the block's head joins each softmax: a score that has no value. */
static void attn_fwd_sink(const struct attn *x, struct attn_fwd *f, const struct attn_block *k)
{
    const vf s = vf_set(attn_sink_of(x->sink, k->h) * ATTN_LOG2E);
    for (int64_t i = 0; i < k->nq_pad; i += VL) {
        vf max = vf_load(f->max + i), next = vf_max(max, s), shrink = v_exp2(max - next, 0);
        vf_store(f->max + i, next);
        vf_store(f->sum + i, vf_fma(vf_load(f->sum + i), shrink, v_exp2(s - next, 0)));
        for (int64_t d = 0; d < x->a; d++) vf_store(f->o + d * ATTN_BQ + i, vf_load(f->o + d * ATTN_BQ + i) * shrink);
    }
}

/* o = O^T / sum, lse = log(sum exp) in nats. */
static void attn_fwd_finish(const struct attn *x, struct attn_fwd *f, const struct attn_block *k)
{
    int64_t row = k->b * x->n_q + k->i0;
    if (x->sink) attn_fwd_sink(x, f, k);
    if (x->lse)
        for (int64_t i = 0; i < k->nq; i++)
            ((float *)row_at(x->lse, row + i))[k->h] = f->max[i] * ATTN_LN2 + logf(f->sum[i]);
    for (int64_t i = 0; i < k->nq_pad; i += VL) vf_store(f->sum + i, vf_set(1.0f) / vf_load(f->sum + i));
    V_TYPED(x->t, attn_put_transposed, x->out, NULL, row, k->h * x->a, f->o, f->sum, k->nq, x->a);
}

/* The same where other keys' results may be there already, or a sink, and these keys may hide from some queries, or
 * (none) from all. */
static void attn_fwd_join(const struct attn *x, struct attn_fwd *f, const struct attn_block *k, bool none)
{
    int64_t row = k->b * x->n_q + k->i0, col = k->h * x->a;
    bool more = x->part->more;
    if (none && more) return;
    for (int64_t i = 0; i < k->nq_pad; i++) {
        bool real = i < k->nq, seen = !none && real && f->max[i] > 0.5f * ATTN_FLOOR;
        float here = seen ? f->max[i] * ATTN_LN2 + logf(f->sum[i]) : -INFINITY, was = -INFINITY, keep = 0, lse;
        float *o = real ? (float *)row_at(x->out, row + i) + col : NULL,
              *at = real ? (float *)row_at(x->lse, row + i) + k->h : NULL;
        if (real && more) was = *at;
        else if (x->sink) was = attn_sink_of(x->sink, k->h);
        float top = here > was ? here : was;
        lse = top > -INFINITY ? top + logf(expf(here - top) + expf(was - top)) : -INFINITY;
        if (was > -INFINITY) keep = expf(was - lse);
        f->sum[i] = seen ? expf(here - lse) / f->sum[i] : 0;
        if (!real) continue;
        *at = lse;
        for (int64_t d = 0; d < x->a; d++) o[d] = more && keep > 0 ? o[d] * keep : 0;
    }
    if (!none) attn_put_transposed(x->out, x->out, row, col, f->o, f->sum, k->nq, x->a, DT_F32);
}

/* All blocks of keys for one block of queries of head h. */
static void attn_fwd_queries(struct attn *x, struct attn_fwd *f, int64_t b, int64_t h, int64_t qb)
{
    const struct tile_ops *o = x->o;
    const struct attn_span *q = &x->q_span[qb];
    bool first = true, dropping = x->drop && dropout_active(&x->at->dropout, x->c->step);
    o->pack_b(f->q, attn_rows(x->q, b * x->n_q + q->row, h, x->a, true), q->n, x->a);
    for (int64_t kb = 0; kb < x->n_kb; kb++) {
        struct attn_block k = attn_block_at(x, b, h, qb, kb);
        if (!k.seen) continue;
        tile_panels(o, f->s, ATTN_BQ, f->k + (size_t)kb * f->k_block, f->k_step, f->q, f->q_step, k.nk, k.nq_pad, x->a,
                    false);
        attn_cap(x, &k, f->s);
        attn_add_bias(x, &k, f->s);
        if (dropping) attn_dropout(x, &k, f->factor);
        attn_softmax(x, f, &k, first, dropping);
        tile_panels(o, f->o, ATTN_BQ, f->v + (size_t)kb * f->v_block, tile_a_step(o, attn_keys(x, kb)), f->p,
                    tile_b_step(o, k.nk), x->a, k.nq_pad, k.nk, !first);
        first = false;
    }
    struct attn_block k = {.b = b, .h = h, .i0 = q->row, .nq = q->n, .nq_pad = round_up(q->n, o->nr)};
    if (x->part) attn_fwd_join(x, f, &k, first);
    else attn_fwd_finish(x, f, &k);
}

/* Places from the first to the last of blocks of queries [lo, hi). */
static void attn_reach(const struct attn *x, int64_t lo, int64_t hi, int64_t *first, int64_t *last)
{
    *first = INT64_MAX;
    *last = -1;
    for (int64_t qb = lo; qb < hi; qb++) {
        const struct attn_span *q = &x->q_span[qb];
        if (q->place < *first) *first = q->place;
        if (q->place + q->n - 1 > *last) *last = q->place + q->n - 1;
    }
}

static void attn_fwd_unit(struct attn *x, int64_t b, int64_t g, int64_t part, int64_t n_parts, void *scratch)
{
    struct attn_fwd f;
    attn_fwd_carve(x, &f, scratch);
    int64_t lo, hi, hlo, hhi, first, last;
    attention_heads_of(x->at, g, &hlo, &hhi);
    if (hlo == hhi) return;
    team_split(x->n_qb, (int)part, (int)n_parts, &lo, &hi);
    attn_reach(x, lo, hi, &first, &last);
    for (int64_t kb = 0; kb < x->n_kb && lo < hi; kb++) { /* what no query here can see is not needed */
        const struct attn_span *k = &x->k_span[kb];
        bool far = !x->q_token && k->place + k->n - 1 <= first - x->window;
        if ((x->causal && !x->prefix && k->place > last) || far) continue;
        int64_t row = b * x->n_k + k->row;
        x->o->pack_a(f.k + (size_t)kb * f.k_block, attn_rows(x->k, row, g, x->a, true), k->n, x->a);
        x->o->pack_a(f.v + (size_t)kb * f.v_block, attn_rows(x->v, row, g, x->a, false), x->a, k->n);
    }
    for (int64_t h = hlo; h < hhi; h++)
        for (int64_t qb = lo; qb < hi; qb++) attn_fwd_queries(x, &f, b, h, qb);
}

static void attn_fwd_member(void *arg, int member, int n_members)
{
    (void)n_members;
    attn_take_units(arg, member, attn_fwd_unit);
}
/* About four units per member, so that unequal ones even out; each packs the keys it sees again. */
static void attn_fwd_run(struct attn *x)
{
    struct attn_fwd f;
    struct attn_job job = {.x = *x, .each = attn_fwd_carve(x, &f, NULL)};
    int64_t pairs = x->batch * x->groups, want = 4 * team_size(kernel_team(x->c));
    job.split = team_size(kernel_team(x->c)) == 1 || !pairs ? 1 : (want + pairs - 1) / pairs;
    if (job.split > (x->n_qb + 3) / 4) job.split = (x->n_qb + 3) / 4; /* packing pays from 256 queries */
    if (job.split < 1) job.split = 1;
    job.n_units = pairs * job.split;
    atomic_init(&job.next, 0);
    team_run(kernel_team(x->c), attn_fwd_member, &job);
}

static void attention_fwd(const struct kernel_call *c, const struct tile_ops *o)
{
    struct attn x = attn_of(c, o);
    attn_tables(&x, c->scratch);
    attn_fwd_run(&x);
}

#endif
