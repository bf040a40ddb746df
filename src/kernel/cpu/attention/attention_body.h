/* SPDX-License-Identifier: Apache-2.0 */
/* attention_body.h: what forward and backward share: the geometry of a call, masks, products of blocks, dropout,
 * and the way of results back into tensors. See attention.h for the plan.
 *
 * Blocks are ATTN_BQ queries by bk keys, bk the largest multiple of the tile's rows up to 128: S^T takes 32 KB and
 * stays in the core's caches between the product that makes it and the softmax that reads it. Blocks that causality,
 * the window or the documents hide entirely are skipped; masks are applied in blocks they cut.
 */
#ifndef TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_BODY_H
#define TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_BODY_H

#include <math.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "kernel/attention_heads.h"
#include "kernel/cpu/attention/attention.h"
#include "kernel/cpu/vec/philox_body.h"
#include "kernel/cpu/vec/vec_rows.h"
#include "kernel/tanh_body.h"
#include "layout/document_ids.h"
#include "layout/sequence.h"

enum { ATTN_BQ = 64, ATTN_BK = 128, ATTN_GROUPS = ATTN_BQ / VL };
#define ATTN_HIDDEN (-1e30f) /* a score that no exponential sees: far below ATTN_FLOOR also when scaled */
#define ATTN_FLOOR (-1e20f)  /* where running maxima start, in powers of 2 */
#define ATTN_LOG2E 1.44269504088896340736f
#define ATTN_LN2 0.69314718055994530942f

/* A block of rows of a sequence that stand at consecutive places in it. Blocks never cross the chunks of a sequence
 * that is shared out over ranks; else a sequence is one chunk. */
struct attn_span {
    int64_t row, place, n;
};

/* A call taken apart. Query i of a sequence stands at place i + shift among its keys (cached calls: shift > 0); of a
 * part, where layout/sequence.h says. */
struct attn {
    const struct kernel_call *c;
    const struct attention_attrs *at;
    struct attention_attrs own;              /* what at is where the call's attributes are others (ATTENTION_BIASED) */
    const struct attention_part_attrs *part; /* NULL: all rows of the sequences */
    const struct tile_ops *o;
    enum dtype t;                            /* of q, k, v */
    const struct view *q, *k, *v;            /* rows of sequence b: b * n_q + i, b * n_k + j */
    const struct view *out, *lse;            /* lse NULL: not wanted */
    const struct view *sink;                 /* NULL: there is none */
    const int32_t *doc;                      /* per token of all sequences, in order; NULL: none */
    const int32_t *q_doc, *k_doc;            /* per query and per key of all sequences */
    const int32_t *token;                    /* of a window that does not go by places: which token of its sequence */
    const int32_t *q_token, *k_token;        /* stands at each, and is each query and key; NULL: it goes by places */
    const struct attn_span *q_span, *k_span; /* [n_qb], [n_kb] */
    size_t tables;                    /* bytes at the front of scratch: all of these where they are not the caller's */
    int64_t seq;                      /* tokens of a sequence */
    int64_t drop_seq, drop_q, drop_k; /* how dropout counts: tokens of a sequence of the step; queries, keys */
    /* By distance: what is added to scores, [heads][bias_row], and a gradient, [batch][heads][n_kb][far_row]; NULL:
     * none. Place k_seq - 1 - key + query of a row is that pair's, so lanes, which are queries, lie in order. */
    float *bias, *dbias;
    int64_t bias_row, far_row;
    int64_t batch, n_q, n_k, shift;
    int64_t heads, groups, a, a_pad; /* a_pad: head size up to whole vectors of a tile */
    int64_t bk, n_qb, n_kb;
    int64_t window;            /* clamped; n_k + 1: none */
    bool causal, drop, prefix; /* prefix: document ids are marked (layout/document_ids.h) */
    bool by_key, by_query;     /* backward: this pass forms dk and dv, dq */
    float scale, log2_scale;
    float cap; /* of scores; 0: none */
};

static inline float attn_sink_of(const struct view *sink, int64_t h)
{
    if (sink->dtype == DT_F32) return ((const float *)sink->p)[h];
    return sink->dtype == DT_BF16 ? bf16_to_f32(((const bf16 *)sink->p)[h])
                                  : f16_to_f32(((const uint16_t *)sink->p)[h]);
}

enum { ATTN_BIAS = 3 }; /* ATTENTION_BIASED's input of that name */

/* Attention of tokens of two kinds in the words of the other. */
static struct attention_attrs attn_biased(const struct attention_biased_attrs *b)
{
    return (struct attention_attrs){.heads = b->heads,
                                    .kv_heads = b->heads,
                                    .head_dim = b->head_dim,
                                    .head_first = b->head_first,
                                    .kv_first = b->head_first,
                                    .group = 1,
                                    .heads_all = b->heads_all,
                                    .batch = b->batch,
                                    .seq = b->q_seq > b->k_seq ? b->q_seq : b->k_seq,
                                    .scale = 1,
                                    .causal = b->causal,
                                    .dropout = b->dropout};
}

/* Before attn_tables. */
static struct attn attn_of(const struct kernel_call *c, const struct tile_ops *o)
{
    const bool biased = c->op == OP_ATTENTION_BIASED;
    const struct attention_attrs own = biased ? attn_biased(at_attention_biased(&c->at)) : *at_heads(&c->at),
                                 *at = &own;
    struct attn x = {.c = c,
                     .at = biased ? NULL : at_heads(&c->at),
                     .own = own,
                     .o = o,
                     .t = c->in[0].dtype,
                     .q = &c->in[0],
                     .k = &c->in[1],
                     .v = &c->in[2],
                     .out = &c->out[0],
                     .lse = &c->out[1],
                     .sink = biased ? NULL : attention_sinks(c),
                     .batch = at->batch,
                     .seq = at->seq,
                     .n_q = at->seq,
                     .n_k = at->seq,
                     .drop_seq = at->seq,
                     .drop_q = at->seq,
                     .drop_k = at->seq,
                     .heads = at->heads,
                     .groups = at->kv_heads,
                     .a = at->head_dim,
                     .causal = at->causal,
                     .prefix = at->prefix && c->op != OP_ATTENTION_CACHED,
                     .scale = at->scale,
                     .cap = at->cap,
                     .log2_scale = at->scale * ATTN_LOG2E};
    if (biased) {
        const struct attention_biased_attrs *b = at_attention_biased(&c->at);
        x.n_q = x.drop_q = b->q_seq;
        x.n_k = x.drop_k = b->k_seq;
        x.drop_seq = b->sample;
    }
    if (c->op != OP_ATTENTION_CACHED && !biased && attention_has_docs(c)) x.doc = c->in[ATTENTION_DOC].p;
    if (at->window) x.token = attention_tokens(c);
    if (c->op == OP_ATTENTION_PART) {
        const struct attention_part_attrs *p = x.part = at_attention_part(&c->at);
        x.n_q = context_rows(x.seq, p->parts, p->q_first, p->q_count);
        x.n_k = context_rows(x.seq, p->parts, p->k_first, p->k_count);
    }
    x.drop = at->dropout.p > 0; /* memory for the mask; step->training decides whether it drops */
    x.a_pad = round_up(x.a, o->nr);
    x.bk = ATTN_BK / o->mr * o->mr;
    return x;
}

/* ---- blocks ---- */

/* Chunk i of the queries or keys; false: there are no more. */
static bool attn_chunk(const struct attn *x, bool keys, int i, int64_t *place, int64_t *n)
{
    const struct attention_part_attrs *p = x->part;
    if (!p) {
        *place = keys ? 0 : x->shift;
        *n = keys ? x->n_k : x->n_q;
        return i == 0;
    }
    int first = keys ? p->k_first : p->q_first, count = keys ? p->k_count : p->q_count;
    if (i >= 2 * count) return false;
    int64_t hi;
    context_chunk(x->seq, p->parts, first + i / 2, i % 2, place, &hi);
    *n = hi - *place;
    return true;
}

/* Cuts the chunks into blocks; `to` NULL: counts. */
static int64_t attn_cut(const struct attn *x, bool keys, struct attn_span *to)
{
    int64_t blocks = 0, row = 0, place, n, size = keys ? x->bk : ATTN_BQ;
    for (int i = 0; attn_chunk(x, keys, i, &place, &n); i++)
        for (int64_t at = 0; at < n; at += size, blocks++) {
            int64_t here = n - at < size ? n - at : size;
            if (to) to[blocks] = (struct attn_span){row, place + at, here};
            row += here;
        }
    return blocks;
}

/* What is told of each place, by the rows that are here. */
static void attn_rows_of(const struct attn *x, const int32_t *from, int32_t *to, const struct attn_span *span,
                         int64_t n_blocks, int64_t rows)
{
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t k = 0; k < n_blocks; k++)
            memcpy(to + b * rows + span[k].row, from + b * x->seq + span[k].place, (size_t)span[k].n * sizeof *to);
}

/* Room for it, of queries and of keys. */
static void attn_rows_carve(const struct attn *x, struct carve *s, int32_t *to[2])
{
    to[0] = carve(s, (size_t)(x->batch * x->n_q) * sizeof **to);
    to[1] = carve(s, (size_t)(x->batch * x->n_k) * sizeof **to);
}

/* Room for what is added by distance; the rows backwards, so that queries follow each other. */
static void attn_bias_tables(struct attn *x, struct carve *s, bool fill)
{
    if (x->c->op != OP_ATTENTION_BIASED || x->c->n_in <= ATTN_BIAS) return;
    int64_t far = x->n_q + x->n_k - 1;
    x->bias_row = far + ATTN_BQ;
    x->far_row = x->bk + x->n_q + ATTN_BQ;
    x->bias = carve_floats(s, x->heads * x->bias_row);
    if (x->c->phase != KERNEL_FWD) x->dbias = carve_floats(s, x->batch * x->heads * x->n_kb * x->far_row);
    for (int64_t h = 0; fill && h < x->heads; h++) {
        const float *d = row_at(&x->c->in[ATTN_BIAS], h);
        for (int64_t r = 0; r < far; r++) x->bias[h * x->bias_row + r] = d[far - 1 - r];
    }
    if (x->c->phase != KERNEL_FWD && !x->c->din[ATTN_BIAS].p) x->dbias = NULL;
}

/* After the sizes are final, of the struct where it stays: blocks and documents by row, at the front of scratch; with
 * scratch NULL it counts. */
static void attn_tables(struct attn *x, void *scratch)
{
    struct carve s = {scratch, 0};
    if (!x->at) x->at = &x->own;
    x->n_qb = attn_cut(x, false, NULL);
    x->n_kb = attn_cut(x, true, NULL);
    int64_t w = x->at->window;
    x->window = w > 0 && w <= x->seq ? w : (x->seq > x->n_k ? x->seq : x->n_k) + 1;
    struct attn_span *q = carve(&s, (size_t)x->n_qb * sizeof *q), *k = carve(&s, (size_t)x->n_kb * sizeof *k);
    int32_t *doc[2] = {NULL, NULL}, *token[2] = {NULL, NULL};
    bool docs = x->part && attention_has_docs(x->c),
         tokens = x->part && x->at->window && x->c->n_in > ATTENTION_TOKEN && x->c->in[ATTENTION_TOKEN].nd;
    if (docs) attn_rows_carve(x, &s, doc);
    if (tokens) attn_rows_carve(x, &s, token);
    attn_bias_tables(x, &s, scratch != NULL);
    x->tables = s.used;
    x->q_span = q;
    x->k_span = k;
    x->q_doc = docs ? doc[0] : x->doc;
    x->k_doc = docs ? doc[1] : x->doc;
    x->q_token = token[0];
    x->k_token = token[1];
    if (!scratch) return;
    attn_cut(x, false, q);
    attn_cut(x, true, k);
    for (int i = 0; docs && i < 2; i++)
        attn_rows_of(x, x->doc, doc[i], i ? k : q, i ? x->n_kb : x->n_qb, i ? x->n_k : x->n_q);
    for (int i = 0; tokens && i < 2; i++)
        attn_rows_of(x, x->token, token[i], i ? k : q, i ? x->n_kb : x->n_qb, i ? x->n_k : x->n_q);
}

/* Keys in block kb. */
static int64_t attn_keys(const struct attn *x, int64_t kb) { return x->k_span[kb].n; }

/* ---- which pairs are seen ---- */
struct attn_block {
    int64_t b, h, qb, kb;   /* sequence, query head, blocks */
    int64_t i0, nq, j0, nk; /* first row of queries and keys and how many; keys after the last query are left out */
    int64_t at_q, at_k;     /* where these rows stand in the sequence */
    int64_t nq_pad;         /* lanes computed */
    bool cut;               /* some pairs are hidden */
    bool seen;              /* false: all are */
};
/* The least and the largest id; mark: bits of it that are none of the document's. */
static void doc_range(const int32_t *doc, int64_t n, int32_t mark, int32_t *lo, int32_t *hi)
{
    *lo = *hi = doc[0] & ~mark;
    for (int64_t i = 1; i < n; i++) {
        int32_t id = doc[i] & ~mark;
        *lo = id < *lo ? id : *lo;
        *hi = id > *hi ? id : *hi;
    }
}
static bool doc_any(const int32_t *doc, int64_t n, bool prefix) /* whether one is in a prefix, or not in one */
{
    while (n > 0 && document_in_prefix(doc[n - 1]) != prefix) n--;
    return n > 0;
}
/* Keys of n up to the last that is in a prefix, of documents [lo, hi] (their marks off). */
static int64_t attn_prefix_keys(const int32_t *doc, int64_t n, int32_t lo, int32_t hi)
{
    while (n > 0 && !(document_in_prefix(doc[n - 1]) && (doc[n - 1] & ~1) >= lo && (doc[n - 1] & ~1) <= hi)) n--;
    return n;
}
/* What a window leaves of a block: by places, or by which tokens stand there. */
static void attn_window_of(const struct attn *x, struct attn_block *k)
{
    int64_t q_least = k->at_q, q_most = k->at_q + k->nq - 1, k_least = k->at_k, k_most = k->at_k + k->nk - 1;
    if (x->q_token) {
        int32_t range[4];
        doc_range(x->q_token + k->b * x->n_q + k->i0, k->nq, 0, &range[0], &range[1]);
        doc_range(x->k_token + k->b * x->n_k + k->j0, k->nk, 0, &range[2], &range[3]);
        q_least = range[0], q_most = range[1], k_least = range[2], k_most = range[3];
    }
    k->seen = k_most > q_least - x->window;
    k->cut |= k_least <= q_most - x->window;
}

static struct attn_block attn_block_at(const struct attn *x, int64_t b, int64_t h, int64_t qb, int64_t kb)
{
    const struct attn_span *q = &x->q_span[qb], *key = &x->k_span[kb];
    struct attn_block k = {.b = b,
                           .h = h,
                           .qb = qb,
                           .kb = kb,
                           .i0 = q->row,
                           .nq = q->n,
                           .j0 = key->row,
                           .nk = key->n,
                           .at_q = q->place,
                           .at_k = key->place};
    k.nq_pad = round_up(k.nq, x->o->nr);
    int64_t first = k.at_q, last = first + k.nq - 1;
    const int32_t *q_doc = x->q_doc ? x->q_doc + b * x->n_q + k.i0 : NULL,
                  *k_doc = x->q_doc ? x->k_doc + b * x->n_k + k.j0 : NULL;
    int32_t mark = x->prefix, qlo = 0, qhi = 0, klo, khi;
    if (x->prefix) doc_range(q_doc, k.nq, mark, &qlo, &qhi);
    if (x->causal) {
        int64_t before = last - k.at_k + 1, ahead = 0;
        if (k.nk > before && x->prefix) ahead = attn_prefix_keys(k_doc, k.nk, qlo, qhi);
        if (k.nk > before) k.nk = before > ahead ? before : ahead;
        k.cut = k.at_k + k.nk - 1 > first;
    }
    k.seen = k.nk > 0;
    if (k.seen) attn_window_of(x, &k);
    if (q_doc && k.seen) {
        if (!x->prefix) doc_range(q_doc, k.nq, mark, &qlo, &qhi);
        doc_range(k_doc, k.nk, mark, &klo, &khi);
        k.seen = qlo <= khi && klo <= qhi;
        k.cut |= qlo != qhi || klo != khi || qlo != klo;
        if (!x->prefix || !k.seen || !doc_any(q_doc, k.nq, true)) return k;
        k.cut |= doc_any(k_doc, k.nk, false);
        k.seen = doc_any(q_doc, k.nq, false) || doc_any(k_doc, k.nk, true);
    }
    return k;
}

/* Lanes g*VL .. of the block's queries that may not see key j0 + j become ATTN_HIDDEN. */
struct attn_mask {
    vi place, doc, token; /* of the queries; token: where the window goes by them, else the place */
    const int32_t *key_doc, *key_token;
    bool causal, window;
    int32_t j0, reach, mark; /* mark: 1 where ids are marked */
};
VEC_INLINE struct attn_mask attn_mask_of(const struct attn *x, const struct attn_block *k, int g)
{
    int64_t lane = g * VL;
    struct attn_mask m = {.place = vi_add(vi_set((uint32_t)(k->at_q + lane)), vi_iota()),
                          .causal = x->causal,
                          .window = x->at->window > 0,
                          .j0 = (int32_t)k->at_k,
                          .reach = (int32_t)x->window - 1,
                          .mark = x->prefix};
    m.token = m.place;
    if (x->q_token) {
        int left = v_count(k->nq - lane > 0 ? k->nq - lane : 0);
        m.key_token = x->k_token + k->b * x->n_k + k->j0;
        m.token = vi_load_n(x->q_token + k->b * x->n_q + k->i0 + (left ? lane : 0), left);
    }
    if (x->q_doc) {
        m.key_doc = x->k_doc + k->b * x->n_k + k->j0;
        int left = v_count(k->nq - lane > 0 ? k->nq - lane : 0);
        m.doc = vi_load_n(x->q_doc + k->b * x->n_q + k->i0 + (left ? lane : 0), left);
        if (m.mark) { /* what is in a prefix sees no other key, wherever it stands */
            m.place = vi_pick(vi_gt(vi_and(m.doc, vi_set(1)), vi_set(0)), vi_set(UINT32_MAX), m.place);
            m.doc = vi_and(m.doc, vi_set(~(uint32_t)1));
        }
    }
    return m;
}
VEC_INLINE vf attn_hide(const struct attn_mask *m, int64_t j, vf s)
{
    const vf hidden = vf_set(ATTN_HIDDEN);
    vi at = vi_set((uint32_t)(m->j0 + (int32_t)j));
    bool ahead = m->mark && document_in_prefix(m->key_doc[j]);
    if (m->causal && !ahead) s = vf_pick(vi_gt(at, m->place), hidden, s);
    if (m->key_token) at = vi_set((uint32_t)m->key_token[j]);
    if (m->window) s = vf_pick(vi_gt(m->token, vi_add(at, vi_set((uint32_t)m->reach))), hidden, s);
    if (m->key_doc) s = vf_pick(vi_eq(m->doc, vi_set((uint32_t)(m->key_doc[j] & ~m->mark))), s, hidden);
    return s;
}

/* ---- products ---- */

/* One head's columns of rows `row` .. of a tensor. */
static struct tile_src attn_rows(const struct view *v, int64_t row, int64_t head, int64_t a, bool depth_dense)
{
    struct tile_src s = {.p = v->p, .dtype = v->dtype, .stride = v->stride, .depth_dense = depth_dense};
    s.p = (const char *)v->p + (size_t)(row * v->stride + head * a) * dtype_bytes(v->dtype);
    return s;
}

/* Where lane group g of depth (row of S^T) j stands in B-panels of queries. */
VEC_INLINE int32_t *attn_unit(const struct tile_ops *o, void *panels, size_t b_step, int g, int64_t j, int per)
{
    int64_t lane = g * VL;
    return (int32_t *)((char *)panels + (size_t)(lane / o->nr) * b_step) + j / per * o->nr + lane % o->nr;
}
/* The panels' rows between the block's keys and the tile's step: zero. */
VEC_INLINE void attn_zero_depth(const struct tile_ops *o, void *panels, size_t b_step, int g, int64_t nk, int per)
{
    for (int64_t j = round_up(nk, per); j < tile_depth(o, nk); j += per)
        vi_store(attn_unit(o, panels, b_step, g, j, per), vi_set(0));
}

/* ---- soft caps: q.k of a block becomes what, times scale, is cap tanh(scale q.k / cap) ---- */
static void attn_cap(const struct attn *x, const struct attn_block *k, float *s)
{
    if (x->cap <= 0) return;
    const vf in = vf_set(x->scale / x->cap), out = vf_set(x->cap / x->scale);
    for (int64_t j = 0; j < k->nk; j++)
        for (int64_t i = 0; i < k->nq_pad; i += VL) {
            float *at = s + j * ATTN_BQ + i;
            vf_store(at, out * v_tanh(in * vf_load(at)));
        }
}
/* ---- a bias by distance: added to q.k, which is not scaled where there is one ---- */
static void attn_add_bias(const struct attn *x, const struct attn_block *k, float *s)
{
    for (int64_t j = 0; x->bias && j < k->nk; j++) {
        const float *d = x->bias + k->h * x->bias_row + x->n_k - 1 - (k->at_k + j) + k->at_q;
        for (int64_t i = 0; i < k->nq; i += VL) {
            float *at = s + j * ATTN_BQ + i;
            vf_store(at, vf_load(at) + v_get(d, i, v_count(k->nq - i), DT_F32));
        }
    }
}
/* The slope of the cap, from what is under it. */
VEC_INLINE vf attn_cap_slope(const struct attn *x, vf s)
{
    vf th = s * vf_set(x->scale / x->cap);
    return vf_fma(vf_zero() - th, th, vf_set(1.0f));
}

/* ---- dropout: the factor of every pair of a block, laid out like S^T ---- */
static void attn_dropout(const struct attn *x, const struct attn_block *k, float *factor)
{
    const struct kernel_call *c = x->c;
    struct chance_mask m;
    mask_init(&m, &x->at->dropout, c->step);
    uint64_t n = (uint64_t)x->drop_k, sequence = c->step->first_token / (uint64_t)x->drop_seq + (uint64_t)k->b;
    uint64_t base = attention_drop_row(x->at, sequence, (uint64_t)k->h) * (uint64_t)x->drop_q + (uint64_t)k->at_q;
    for (int64_t i = 0; i < k->nq_pad; i += VL)
        for (int64_t j = 0; j < k->nk; j += VL) {
            vf r[VL];
            for (int l = 0; l < VL; l++) {
                uint64_t query = base + (uint64_t)(i + l < k->nq ? i + l : 0);
                r[l] = mask_apply(&m, mask_words(&m, query * n + (uint64_t)(k->at_k + j), VL), vf_set(1.0f));
            }
            vf_transpose(r);
            for (int l = 0; l < VL && j + l < k->nk; l++) vf_store(factor + (j + l) * ATTN_BQ + i, r[l]);
        }
}

/* ---- results ---- */

/* n_rows x a elements whose transpose stands in t (row length ATTN_BQ), lane l times f[l] (NULL: 1): into rows of
 * dst, added to acc where that is there. */
VEC_INLINE void attn_put_transposed(const struct view *dst, const struct view *acc, int64_t row, int64_t col,
                                    const float *t, const float *f, int64_t n_rows, int64_t a, enum dtype type)
{
    for (int64_t i = 0; i < n_rows; i += VL)
        for (int64_t d = 0; d < a; d += VL) {
            vf r[VL];
            int n = v_count(a - d);
            for (int l = 0; l < VL; l++) {
                r[l] = vf_zero();
                if (l < n) r[l] = vf_load(t + (d + l) * ATTN_BQ + i);
                if (f) r[l] *= vf_load(f + i);
            }
            vf_transpose(r);
            for (int l = 0; l < VL && i + l < n_rows; l++) {
                const void *before = acc ? row_or_null(acc, row + i + l) : NULL;
                v_put(row_at(dst, row + i + l), col + d, n, type, r[l] + v_get_or_zero(before, col + d, n, type));
            }
        }
}

/* Work is handed out one unit at a time, since causality makes units unequal; results do not depend on who takes
 * which (invariant 1). */
struct attn_job {
    struct attn x;
    atomic_llong next;
    int64_t n_units, split; /* split: units per (sequence, key head) */
    size_t each;            /* scratch of one member */
};
typedef void attn_unit_fn(struct attn *x, int64_t b, int64_t g, int64_t part, int64_t n_parts, void *scratch);
static inline void attn_take_units(struct attn_job *job, int member, attn_unit_fn *fn)
{
    void *mine = (char *)job->x.c->scratch + job->x.tables + (size_t)member * job->each;
    job->x.o->begin();
    for (int64_t u; (u = atomic_fetch_add(&job->next, 1)) < job->n_units;) {
        int64_t pair = u % (job->x.batch * job->x.groups), part = u / (job->x.batch * job->x.groups);
        fn(&job->x, pair / job->x.groups, pair % job->x.groups, job->split - 1 - part, job->split, mine);
    }
    job->x.o->end();
}

#endif
