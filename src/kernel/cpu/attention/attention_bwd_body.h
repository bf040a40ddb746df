/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bwd_body.h: attention backward, P formed again block by block from the saved lse.
 *
 * With delta_i = do_i . o_i:  dS = P (dP - delta) scale. S^T and dP^T are made with queries as lanes; the same rows
 * then serve as left operands of dV and dK (packed from rows of bf16 or f32) and, written as panels on the way, as
 * right operand of dQ^T, so the only transpositions are those of packing. One unit is one key head of one sequence
 * with all its query heads: dk and dv sum over heads, then blocks of queries; dq over blocks of keys, ascending.
 * Where there are fewer such units than threads, two passes split them, by keys for dk and dv and by queries for dq:
 * scores are formed twice, every sum keeps its order, and so the bits are those of one pass.
 *
 * Cost per pair: 10 A FLOPs in products (14 in two passes), about 25 vector instructions per VL pairs. Memory per
 * thread: about 7 S A elements of panels and 3 S A floats.
 */
#ifndef TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_BWD_BODY_H
#define TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_BWD_BODY_H

#include "kernel/cpu/attention/attention_body.h"

struct attn_bwd {
    /* left panels per block of keys: K and V (lanes keys), K^T (lanes A) */
    char *k, *v, *kt;
    size_t key_block, key_step, kt_block, kt_step;
    /* right panels per block of queries: Q and dO (lanes queries), and again with lanes A */
    char *q, *g, *qd, *gd;
    size_t q_block, q_step, qd_block, qd_step;
    /* one block: S^T (then nothing), dP^T; P^T and dS^T as rows of the panels' type, then packed */
    float *s, *dp, *factor;
    char *p_rows, *ds_rows, *left, *ds_right;
    float *lse, *delta;  /* per query; lse in powers of 2 */
    float *dq, *dk, *dv; /* dQ^T per block of queries; dK and dV (a_pad wide) */
};

static size_t attn_bwd_carve(const struct attn *x, struct attn_bwd *w, void *scratch)
{
    struct carve s = {scratch, 0};
    const struct tile_ops *o = x->o;
    size_t n_kb = (size_t)x->n_kb, n_qb = (size_t)x->n_qb, each = dtype_bytes(o->panel);
    w->key_block = tile_a_bytes(o, x->bk, x->a);
    w->key_step = tile_a_step(o, x->a);
    w->kt_block = tile_a_bytes(o, x->a, x->bk);
    w->kt_step = tile_a_step(o, x->bk);
    w->q_block = tile_b_bytes(o, ATTN_BQ, x->a);
    w->q_step = tile_b_step(o, x->a);
    w->qd_block = tile_b_bytes(o, x->a, ATTN_BQ);
    w->qd_step = tile_b_step(o, ATTN_BQ);
    w->k = carve(&s, w->key_block * n_kb);
    w->v = carve(&s, w->key_block * n_kb);
    w->kt = carve(&s, w->kt_block * n_kb);
    w->q = carve(&s, w->q_block * n_qb);
    w->g = carve(&s, w->q_block * n_qb);
    w->qd = carve(&s, w->qd_block * n_qb);
    w->gd = carve(&s, w->qd_block * n_qb);
    w->s = carve_floats(&s, x->bk * ATTN_BQ);
    w->dp = carve_floats(&s, x->bk * ATTN_BQ);
    w->factor = x->drop ? carve_floats(&s, x->bk * ATTN_BQ) : NULL;
    w->p_rows = carve(&s, (size_t)(x->bk * ATTN_BQ) * each);
    w->ds_rows = carve(&s, (size_t)(x->bk * ATTN_BQ) * each);
    w->left = carve(&s, tile_a_bytes(o, x->bk, ATTN_BQ));
    w->ds_right = carve(&s, tile_b_bytes(o, ATTN_BQ, x->bk));
    w->lse = carve_floats(&s, x->n_qb * ATTN_BQ);
    w->delta = carve_floats(&s, x->n_qb * ATTN_BQ);
    w->dq = carve_floats(&s, x->n_qb * ATTN_BQ * round_up(x->a, o->mr));
    w->dk = carve_floats(&s, x->n_kb * x->bk * x->a_pad);
    w->dv = carve_floats(&s, x->n_kb * x->bk * x->a_pad);
    return s.used;
}

VEC_INLINE float attn_row_dot(const void *p, const void *q, int64_t at, int64_t n, enum dtype t)
{
    vf s = vf_zero();
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        s = vf_fma(v_get(p, at + i, k, t), v_get(q, at + i, k, t), s);
    }
    return vf_sum(s);
}

static void attn_bwd_pack_keys(const struct attn *x, struct attn_bwd *w, int64_t b, int64_t g)
{
    const struct tile_ops *o = x->o;
    for (int64_t kb = 0; kb < x->n_kb; kb++) {
        int64_t row = b * x->n_k + x->k_span[kb].row, n = attn_keys(x, kb);
        o->pack_a(w->k + (size_t)kb * w->key_block, attn_rows(x->k, row, g, x->a, true), n, x->a);
        o->pack_a(w->v + (size_t)kb * w->key_block, attn_rows(x->v, row, g, x->a, true), n, x->a);
        o->pack_a(w->kt + (size_t)kb * w->kt_block, attn_rows(x->k, row, g, x->a, false), x->a, n);
    }
}
static void attn_bwd_pack_queries(const struct attn *x, struct attn_bwd *w, int64_t b, int64_t h)
{
    const struct tile_ops *o = x->o;
    const struct view *g = &x->c->dout[0];
    for (int64_t qb = 0; qb < x->n_qb; qb++) {
        int64_t i0 = qb * ATTN_BQ, row = b * x->n_q + x->q_span[qb].row, n = x->q_span[qb].n;
        o->pack_b(w->q + (size_t)qb * w->q_block, attn_rows(x->q, row, h, x->a, true), n, x->a);
        o->pack_b(w->g + (size_t)qb * w->q_block, attn_rows(g, row, h, x->a, true), n, x->a);
        o->pack_b(w->qd + (size_t)qb * w->qd_block, attn_rows(x->q, row, h, x->a, false), x->a, n);
        o->pack_b(w->gd + (size_t)qb * w->qd_block, attn_rows(g, row, h, x->a, false), x->a, n);
        for (int64_t i = 0; i < ATTN_BQ; i++) { /* lanes past the end: probability 1 on rows of zeros */
            const void *og = i < n ? row_at(x->out, row + i) : NULL, *gg = i < n ? row_at(g, row + i) : NULL;
            w->lse[i0 + i] = i < n ? ((const float *)row_at(x->lse, row + i))[h] * ATTN_LOG2E : 0;
            w->delta[i0 + i] = i >= n            ? 0
                               : x->t == DT_BF16 ? attn_row_dot(og, gg, h * x->a, x->a, DT_BF16)
                               : x->t == DT_F16  ? attn_row_dot(og, gg, h * x->a, x->a, DT_F16)
                                                 : attn_row_dot(og, gg, h * x->a, x->a, DT_F32);
        }
    }
}

/* P and dS at row j of lane group g: p what multiplies dO, ds the gradient of q.k. */
VEC_INLINE void attn_bwd_pair(const struct attn *x, const struct attn_bwd *w, const struct attn_mask *mask, int64_t j,
                              int g, const float *factor, vf lse, vf delta, vf *p, vf *ds, enum dtype panel)
{
    int64_t at = j * ATTN_BQ + g * VL;
    vf raw = vf_load(w->s + at), s = raw * vf_set(x->log2_scale);
    if (mask) s = attn_hide(mask, j, s);
    vf dp = vf_load(w->dp + at);
    *p = v_exp2(s - lse, panel == DT_BF16);
    vf dropped = *p;
    if (factor) {
        vf f = vf_load(factor + at);
        dp *= f;
        dropped *= f;
    }
    *ds = *p * (dp - delta) * vf_set(x->scale);
    if (x->cap > 0) *ds *= attn_cap_slope(x, raw);
    *p = dropped;
}
/* Gradients by distance of one block of keys of a head. Each block has a row of its own, so that their sum has one
 * order whoever forms them. */
static float *attn_far(const struct attn *x, int64_t b, int64_t h, int64_t kb)
{
    return x->dbias + ((b * x->heads + h) * x->n_kb + kb) * x->far_row;
}

VEC_INLINE void attn_bwd_group(const struct attn *x, struct attn_bwd *w, const struct attn_block *k, int g,
                               bool dropping, enum dtype panel)
{
    const int per = panel == DT_BF16 ? 2 : 1;
    size_t step = tile_b_step(x->o, k->nk), each = dtype_bytes(panel);
    struct attn_mask hide, *mask = NULL;
    if (k->cut) {
        hide = attn_mask_of(x, k, g);
        mask = &hide;
    }
    const float *factor = dropping ? w->factor : NULL;
    float *far = x->dbias && x->by_key ? attn_far(x, k->b, k->h, k->kb) + x->bk - 1 + k->at_q + g * VL : NULL;
    vf lse = vf_load(w->lse + k->qb * ATTN_BQ + g * VL), delta = vf_load(w->delta + k->qb * ATTN_BQ + g * VL);
    for (int64_t j = 0; j < k->nk; j += per) {
        vf p[2], ds[2] = {vf_zero(), vf_zero()};
        for (int u = 0; u < per && j + u < k->nk; u++) {
            size_t at = (size_t)((j + u) * ATTN_BQ + g * VL) * each;
            attn_bwd_pair(x, w, mask, j + u, g, factor, lse, delta, &p[u], &ds[u], panel);
            if (far) vf_store(far - j - u, vf_load(far - j - u) + ds[u]);
            if (panel == DT_BF16) {
                vf_narrow_bf16((uint16_t *)(void *)(w->p_rows + at), p[u]);
                vf_narrow_bf16((uint16_t *)(void *)(w->ds_rows + at), ds[u]);
            } else {
                vf_store((float *)(void *)(w->p_rows + at), p[u]);
                vf_store((float *)(void *)(w->ds_rows + at), ds[u]);
            }
        }
        int32_t *unit = attn_unit(x->o, w->ds_right, step, g, j, per);
        if (panel == DT_BF16) vi_store(unit, vf_pair_bf16(ds[0], ds[1]));
        else vi_store(unit, vf_bits(ds[0]));
    }
    attn_zero_depth(x->o, w->ds_right, step, g, k->nk, per);
}

static void attn_bwd_block(const struct attn *x, struct attn_bwd *w, const struct attn_block *k, bool dropping)
{
    const struct tile_ops *o = x->o;
    size_t kb = (size_t)k->kb, qb = (size_t)k->qb;
    tile_panels(o, w->s, ATTN_BQ, w->k + kb * w->key_block, w->key_step, w->q + qb * w->q_block, w->q_step, k->nk,
                k->nq_pad, x->a, false);
    attn_cap(x, k, w->s);
    attn_add_bias(x, k, w->s);
    tile_panels(o, w->dp, ATTN_BQ, w->v + kb * w->key_block, w->key_step, w->g + qb * w->q_block, w->q_step, k->nk,
                k->nq_pad, x->a, false);
    if (dropping) attn_dropout(x, k, w->factor);
    for (int g = 0; g * VL < k->nq_pad; g++) {
        if (o->panel == DT_BF16) attn_bwd_group(x, w, k, g, dropping, DT_BF16);
        else attn_bwd_group(x, w, k, g, dropping, DT_F32);
    }
    if (x->by_query)
        tile_panels(o, w->dq + k->qb * ATTN_BQ * round_up(x->a, o->mr), ATTN_BQ, w->kt + kb * w->kt_block,
                    tile_a_step(o, attn_keys(x, k->kb)), w->ds_right, tile_b_step(o, k->nk), x->a, k->nq_pad, k->nk,
                    true);
    if (!x->by_key) return;
    struct tile_src rows = {.p = w->p_rows, .dtype = o->panel, .stride = ATTN_BQ, .depth_dense = true};
    int64_t key_rows = k->kb * x->bk * x->a_pad;
    o->pack_a(w->left, rows, k->nk, k->nq);
    tile_panels(o, w->dv + key_rows, x->a_pad, w->left, tile_a_step(o, k->nq), w->gd + qb * w->qd_block,
                tile_b_step(o, k->nq), k->nk, x->a_pad, k->nq, true);
    rows.p = w->ds_rows;
    o->pack_a(w->left, rows, k->nk, k->nq);
    tile_panels(o, w->dk + key_rows, x->a_pad, w->left, tile_a_step(o, k->nq), w->qd + qb * w->qd_block,
                tile_b_step(o, k->nq), k->nk, x->a_pad, k->nq, true);
}

/* Rows n_rows of dk or dv from `sum` (a_pad wide): din = acc + sum. */
VEC_INLINE void attn_put_rows(const struct kernel_call *c, int i, const float *sum, int64_t row, int64_t col,
                              int64_t n_rows, int64_t a, int64_t a_pad, enum dtype t)
{
    if (!c->din[i].p) return;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t d = 0; d < a; d += VL) {
            int n = v_count(a - d);
            vf before = v_get_or_zero(row_or_null(&c->acc[i], row + r), col + d, n, t);
            v_put(row_at(&c->din[i], row + r), col + d, n, t, before + vf_load(sum + r * a_pad + d));
        }
}
static void attn_put_dkv(const struct attn *x, const struct attn_bwd *w, int64_t b, int64_t g, int64_t lo, int64_t hi)
{
    for (int i = 1; i < 3; i++)
        for (int64_t kb = lo; kb < hi; kb++) {
            const float *sum = (i == 1 ? w->dk : w->dv) + kb * x->bk * x->a_pad;
            int64_t row = b * x->n_k + x->k_span[kb].row, n = attn_keys(x, kb);
            V_TYPED(x->c->din[i].dtype, attn_put_rows, x->c, i, sum, row, g * x->a, n, x->a, x->a_pad);
        }
}
static void attn_put_dq(const struct attn *x, const struct attn_bwd *w, int64_t b, int64_t h, int64_t lo, int64_t hi)
{
    const struct view *d = &x->c->din[0], *acc = &x->c->acc[0];
    for (int64_t qb = lo; qb < hi && d->p; qb++) {
        int64_t n = x->q_span[qb].n, row = b * x->n_q + x->q_span[qb].row;
        const float *sum = w->dq + qb * ATTN_BQ * round_up(x->a, x->o->mr);
        V_TYPED(d->dtype, attn_put_transposed, d, acc, row, h * x->a, sum, NULL, n, x->a);
    }
}

/* Part `part` of a pass over one key head: its blocks of keys (for dk, dv) or of queries (for dq alone). */
static void attn_bwd_unit(struct attn *x, int64_t b, int64_t g, int64_t part, int64_t n_parts, void *scratch)
{
    struct attn_bwd w;
    attn_bwd_carve(x, &w, scratch);
    bool dropping = x->drop && dropout_active(&x->at->dropout, x->c->step);
    int64_t hlo, hhi, klo = 0, khi = x->n_kb, qlo = 0, qhi = x->n_qb;
    if (x->by_key) team_split(x->n_kb, (int)part, (int)n_parts, &klo, &khi);
    else team_split(x->n_qb, (int)part, (int)n_parts, &qlo, &qhi);
    size_t key_bytes = (size_t)(x->n_kb * x->bk * x->a_pad) * sizeof(float);
    memset(w.dk, 0, key_bytes);
    memset(w.dv, 0, key_bytes);
    attn_bwd_pack_keys(x, &w, b, g);
    attention_heads_of(x->at, g, &hlo, &hhi);
    for (int64_t h = hlo; h < hhi && x->dbias && x->by_key; h++)
        memset(attn_far(x, b, h, klo), 0, (size_t)((khi - klo) * x->far_row) * sizeof(float));
    for (int64_t h = hlo; h < hhi; h++) {
        attn_bwd_pack_queries(x, &w, b, h);
        memset(w.dq, 0, (size_t)(x->n_qb * ATTN_BQ * round_up(x->a, x->o->mr)) * sizeof(float));
        for (int64_t kb = klo; kb < khi; kb++)
            for (int64_t qb = qlo; qb < qhi; qb++) {
                struct attn_block k = attn_block_at(x, b, h, qb, kb);
                if (k.seen) attn_bwd_block(x, &w, &k, dropping);
            }
        if (x->by_query) attn_put_dq(x, &w, b, h, qlo, qhi);
    }
    if (x->by_key) attn_put_dkv(x, &w, b, g, klo, khi);
}
static void attn_bwd_member(void *arg, int member, int n_members)
{
    (void)n_members;
    attn_take_units(arg, member, attn_bwd_unit);
}
static void attn_bwd_pass(const struct attn *x, bool by_key, bool by_query, int64_t split)
{
    struct attn_bwd w;
    struct attn_job job = {.x = *x, .each = attn_bwd_carve(x, &w, NULL), .split = split};
    job.n_units = x->batch * x->groups * split;
    job.x.by_key = by_key;
    job.x.by_query = by_query;
    atomic_init(&job.next, 0);
    team_run(kernel_team(x->c), attn_bwd_member, &job);
}

/* Sinks: of each head a sum over all queries, row by row, by one member. */
static void attn_sinks_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    const struct attention_attrs *at = at_heads(&c->at);
    const struct view *sink = attention_sinks(c);
    int64_t lo, hi, a = at->head_dim;
    team_split(at->heads, member, n_members, &lo, &hi);
    for (int64_t h = lo; h < hi; h++) {
        float s = attn_sink_of(sink, h);
        double sum = 0;
        for (int64_t t = 0; t < c->in[0].n[0]; t++) {
            const void *o = row_at(&c->out[0], t), *g = row_at(&c->dout[0], t);
            float delta = c->out[0].dtype == DT_BF16  ? attn_row_dot(o, g, h * a, a, DT_BF16)
                          : c->out[0].dtype == DT_F16 ? attn_row_dot(o, g, h * a, a, DT_F16)
                                                      : attn_row_dot(o, g, h * a, a, DT_F32);
            sum -= (double)(expf(s - ((const float *)row_at(&c->out[1], t))[h]) * delta);
        }
        float before = c->acc[ATTENTION_SINK].p ? ((const float *)c->acc[ATTENTION_SINK].p)[h] : 0;
        ((float *)c->din[ATTENTION_SINK].p)[h] = before + (float)sum;
    }
}

/* A head's gradient by distance: of all sequences' blocks of keys, in order. */
static void attn_far_member(void *arg, int member, int n_members)
{
    const struct attn *x = arg;
    const struct view *d = &x->c->din[ATTN_BIAS];
    int64_t lo, hi, far = x->n_q + x->n_k - 1;
    team_split(x->heads, member, n_members, &lo, &hi);
    for (int64_t h = lo; h < hi; h++) {
        float *to = row_at(d, h);
        const float *before = row_or_null(&x->c->acc[ATTN_BIAS], h);
        for (int64_t r = 0; r < far; r++) to[r] = before ? before[r] : 0;
        for (int64_t b = 0; b < x->batch; b++)
            for (int64_t kb = 0; kb < x->n_kb;
                 kb++) { /* place p of a row is far from the end as many as key and query say */
                const float *from = attn_far(x, b, h, kb);
                int64_t shift = x->n_k - x->k_span[kb].place - x->bk;
                for (int64_t p = shift < 0 ? -shift : 0; p < x->far_row && p + shift < far; p++)
                    to[far - 1 - p - shift] += from[p];
            }
    }
}

static void attention_bwd(const struct kernel_call *c, const struct tile_ops *o)
{
    struct attn x = attn_of(c, o);
    attn_tables(&x, c->scratch);
    int64_t pairs = x.batch * x.groups, size = team_size(kernel_team(c));
    if (x.sink && c->din[ATTENTION_SINK].p) team_run_call(attn_sinks_member, c);
    if (pairs == 0 || pairs >= size || x.n_kb <= 1 || x.n_qb <= 1) {
        attn_bwd_pass(&x, true, true, 1);
        if (x.dbias) team_run(kernel_team(c), attn_far_member, &x);
        return;
    }
    int64_t split = (2 * size + pairs - 1) / pairs;
    attn_bwd_pass(&x, true, false, split < x.n_kb ? split : x.n_kb);
    attn_bwd_pass(&x, false, true, split < x.n_qb ? split : x.n_qb);
    if (x.dbias) team_run(kernel_team(c), attn_far_member, &x);
}

#endif
