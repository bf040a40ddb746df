/* SPDX-License-Identifier: Apache-2.0 */
/* harness.h: random calls of kernel rows, for tests of any family.
 *
 *   struct kcase k;
 *   kcase_random(&k, OP_LINEAR, DT_BF16, seed);        shapes, attributes, inputs, gradients of outputs
 *   kcase_forward(&k, &kernel_family_ref, 2);          fills k.out (2 threads)
 *   kcase_backward(&k, &kernel_family_ref, 2);         fills k.din from k.dout, k.acc
 *   kcase_free(&k);
 *
 * Every tensor is its own allocation (AddressSanitizer sees overruns), lies at an odd element offset, and most
 * have rows wider than their columns; the gap holds a pattern that kcase_check_gaps verifies. Scratch is full of
 * NaNs and guarded. The case is a function of (op, dtype, seed) only. */
#ifndef TUTTI_TESTS_KERNEL_HARNESS_H
#define TUTTI_TESTS_KERNEL_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/cache_runs.h"
#include "kernel/kernel.h"
#include "kernel/pictures.h"
#include "kernel/pieces.h"

enum { KCASE_BLOCKS = 96, KCASE_GUARD = 64 };

struct kcase {
    enum op op;
    enum dtype dtype;
    uint64_t seed, drawn;
    bool large; /* every sixth case: beyond the blocks of blocked kernels */
    struct op_attrs at;
    struct step_info step;
    int n_in, n_out;
    struct view in[KERNEL_MAX_IN], out[KERNEL_MAX_OUT];
    struct view dout[KERNEL_MAX_OUT], din[KERNEL_MAX_IN], acc[KERNEL_MAX_IN];
    void *block[KCASE_BLOCKS];
    int n_blocks;
};

static const enum dtype kcase_dtypes[] = {DT_F32, DT_BF16, DT_F16};

/* ---- numbers ---- */

static inline double view_get(const struct view *v, int64_t r, int64_t c)
{
    int64_t i = r * v->stride + c;
    switch (v->dtype) {
    case DT_F32: return ((const float *)v->p)[i];
    case DT_BF16: return bf16_to_f32(((const bf16 *)v->p)[i]);
    case DT_F16: return f16_to_f32(((const uint16_t *)v->p)[i]);
    case DT_F64: return ((const double *)v->p)[i];
    case DT_I32: return ((const int32_t *)v->p)[i];
    default: fail_msg("no element of %s", dtype_name(v->dtype)); return 0;
    }
}

static inline void view_set(const struct view *v, int64_t r, int64_t c, double x)
{
    int64_t i = r * v->stride + c;
    switch (v->dtype) {
    case DT_F32: ((float *)v->p)[i] = (float)x; break;
    case DT_BF16: ((bf16 *)v->p)[i] = bf16_from_f32((float)x); break;
    case DT_F16: ((uint16_t *)v->p)[i] = f16_from_f32((float)x); break;
    case DT_F64: ((double *)v->p)[i] = x; break;
    case DT_I32: ((int32_t *)v->p)[i] = (int32_t)x; break;
    default: fail_msg("no element of %s", dtype_name(v->dtype));
    }
}

/* An integer in [lo, hi], the next of the case's own sequence. */
static inline int64_t kcase_int(struct kcase *k, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(rng_u64(k->seed, rng_stream("kcase/int"), k->drawn++) % (uint64_t)(hi - lo + 1));
}

static inline void view_fill(const struct view *v, uint64_t seed, uint64_t stream, double scale)
{
    int64_t n = view_cols(v);
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < n; c++)
            view_set(v, r, c, scale * (double)rng_normal(seed, stream, (uint64_t)(r * n + c)));
}

static inline void view_fill_zero(const struct view *v)
{
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < view_cols(v); c++) view_set(v, r, c, 0);
}

static inline void view_copy(const struct view *to, const struct view *from)
{
    for (int64_t r = 0; r < view_rows(from); r++)
        for (int64_t c = 0; c < view_cols(from); c++) view_set(to, r, c, view_get(from, r, c));
}

static inline double view_max(const struct view *v)
{
    double m = 0;
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < view_cols(v); c++) m = fmax(m, fabs(view_get(v, r, c)));
    return m;
}

/* The largest difference, as a part of the largest element of b; NaN counts as infinite. */
static inline double view_distance(const struct view *a, const struct view *b)
{
    double worst = 0, scale = fmax(view_max(b), 1e-30);
    for (int64_t r = 0; r < view_rows(b); r++)
        for (int64_t c = 0; c < view_cols(b); c++) {
            double d = fabs(view_get(a, r, c) - view_get(b, r, c));
            worst = isnan(d) ? INFINITY : fmax(worst, d);
        }
    return worst / scale;
}

static inline bool view_same_bits(const struct view *a, const struct view *b)
{
    for (int64_t r = 0; r < view_rows(b); r++)
        if (memcmp((const char *)a->p + (size_t)(r * a->stride) * dtype_bytes(a->dtype),
                   (const char *)b->p + (size_t)(r * b->stride) * dtype_bytes(b->dtype),
                   (size_t)view_cols(b) * dtype_bytes(b->dtype)) != 0)
            return false;
    return true;
}

/* ---- tensors of a case ---- */

/* Memory of a view whose shape is set: a fresh block, an odd offset, the pattern in every gap. */
static inline void kcase_memory(struct kcase *k, struct view *v)
{
    size_t each = dtype_bytes(v->dtype), offset = each * (size_t)kcase_int(k, 0, 3);
    size_t span = view_rows(v) ? (size_t)((view_rows(v) - 1) * v->stride + view_cols(v)) : 0;
    assert_true(k->n_blocks < KCASE_BLOCKS);
    char *p = xmalloc(offset + span * each + 1);
    memset(p, 0xa5, offset + span * each);
    k->block[k->n_blocks++] = p;
    v->p = p + offset;
}

/* A tensor with n0 rows (0 dims: n1 = 0 makes a vector of n0), sometimes strided. */
static inline struct view kcase_tensor(struct kcase *k, enum dtype t, int64_t n0, int64_t n1)
{
    struct view v = {.dtype = t, .nd = n1 ? 2 : 1, .n = {n0, n1}};
    v.stride = view_cols(&v) + (n1 && kcase_int(k, 0, 2) ? kcase_int(k, 1, 9) : 0);
    kcase_memory(k, &v);
    return v;
}

static inline struct view kcase_floats(struct kcase *k, int64_t n0, int64_t n1, double scale)
{
    struct view v = kcase_tensor(k, k->dtype, n0, n1);
    view_fill(&v, k->seed, rng_stream("kcase/float") + k->drawn++, scale);
    return v;
}

static inline struct view kcase_ints(struct kcase *k, int64_t n, int64_t lo, int64_t hi)
{
    struct view v = kcase_tensor(k, DT_I32, n, 0);
    for (int64_t i = 0; i < n; i++) view_set(&v, 0, i, (double)kcase_int(k, lo, hi));
    return v;
}

/* The same values in memory of their own. */
static inline struct view kcase_clone(struct kcase *k, const struct view *v)
{
    struct view w = *v;
    kcase_memory(k, &w);
    view_copy(&w, v);
    return w;
}

static inline void kcase_free(struct kcase *k)
{
    for (int i = 0; i < k->n_blocks; i++) xfree(k->block[i]);
    memset(k, 0, sizeof *k);
}

static inline void view_check_gap(const struct view *v, const char *what)
{
    if (!v->p) return;
    size_t each = dtype_bytes(v->dtype);
    for (int64_t r = 0; r + 1 < view_rows(v); r++)
        for (size_t b = (size_t)view_cols(v) * each; b < (size_t)v->stride * each; b++)
            if (((const unsigned char *)v->p)[(size_t)(r * v->stride) * each + b] != 0xa5)
                fail_msg("%s: byte %zu after the end of row %lld was written", what, b, (long long)r);
}

static inline void kcase_check_gaps(const struct kcase *k)
{
    for (int i = 0; i < k->n_out; i++) view_check_gap(&k->out[i], op_row(k->op)->name);
    for (int i = 0; i < k->n_in; i++) view_check_gap(&k->din[i], op_row(k->op)->name);
    for (int i = 0; i < k->n_in; i++) view_check_gap(&k->in[i], op_row(k->op)->name);
}

static inline char *kcase_text(char out[200], const struct kcase *k)
{
    int n =
        snprintf(out, 200, "%s %s seed %llu:", op_row(k->op)->name, dtype_name(k->dtype), (unsigned long long)k->seed);
    for (int i = 0; i < k->n_in; i++)
        n += snprintf(out + n, (size_t)(200 - n), " [%lld%s%.0lld]", (long long)k->in[i].n[0],
                      k->in[i].nd > 1 ? "," : "", (long long)(k->in[i].nd > 1 ? k->in[i].n[1] : 0));
    return out;
}

/* ---- random cases, one builder per row ---- */

static inline void kcase_tokens(struct kcase *k, int64_t *t, int64_t *d)
{
    *t = k->large ? kcase_int(k, 34, 140) : kcase_int(k, 1, 33);
    *d = k->large ? kcase_int(k, 76, 400) : kcase_int(k, 1, 75);
}

static inline void build_embed(struct kcase *k)
{
    int64_t t, d, v = kcase_int(k, 1, 40);
    kcase_tokens(k, &t, &d);
    k->in[0] = kcase_ints(k, t, 0, v - 1);
    if (kcase_int(k, 0, 2) == 0) edit_vocab(&k->at)->scale = 1.75f;
    k->in[1] = kcase_floats(k, v, d, 1);
    k->n_in = 2;
}

static inline void build_linear(struct kcase *k)
{
    int64_t t, features, out_features = kcase_int(k, 1, k->large ? 250 : 70);
    kcase_tokens(k, &t, &features);
    k->in[0] = kcase_floats(k, t, features, 1);
    k->in[1] = kcase_floats(k, out_features, features, 0.2);
    k->n_in = 2 + (int)kcase_int(k, 0, 1);
    if (k->n_in > 2) k->in[2] = kcase_floats(k, out_features, 0, 0.5);
}

static inline void build_norm(struct kcase *k)
{
    int64_t t, d;
    kcase_tokens(k, &t, &d);
    d += 2; /* a row of one element has no variance: its gradient is all cancellation */
    edit_norm(&k->at)->eps = 1e-5f;
    k->in[0] = kcase_floats(k, t, d, 1.5);
    k->in[1] = kcase_floats(k, d, 0, 1);
    k->n_in = k->op == OP_LAYERNORM ? 3 : 2;
    if (k->op != OP_LAYERNORM && kcase_int(k, 0, 2) == 0) edit_norm(&k->at)->plus = 1;
    if (k->op == OP_HEADNORM) {
        edit_norm(&k->at)->heads = (int)kcase_int(k, 1, 4);
        k->in[0] = kcase_floats(k, t, edit_norm(&k->at)->heads * d, 1.5);
    }
    if (k->n_in > 2) k->in[2] = kcase_floats(k, d, 0, 1);
}

static inline void build_squares(struct kcase *k)
{
    int64_t t, d;
    kcase_tokens(k, &t, &d);
    k->in[0] = kcase_floats(k, t, d, 1);
    k->n_in = 1;
    if (k->op == OP_SQUARES) return;
    edit_norm(&k->at)->eps = 1e-5f;
    edit_norm(&k->at)->whole = d + kcase_int(k, 0, 9);
    if (kcase_int(k, 0, 2) == 0) edit_norm(&k->at)->plus = 1;
    k->in[1] = kcase_tensor(k, DT_F32, t, 1);
    for (int64_t i = 0; i < t; i++) view_set(&k->in[1], i, 0, 0.5 + (double)kcase_int(k, 0, 40) / 8);
    k->in[2] = kcase_floats(k, d, 0, 1);
    k->n_in = 3;
}

static inline void build_rotary(struct kcase *k)
{
    struct rotary_attrs *at = edit_rotary(&k->at);
    int64_t t = kcase_int(k, 1, 20), positions = kcase_int(k, 1, 50);
    at->heads = (int)kcase_int(k, 1, 5);
    at->head_dim = 2 * (int)kcase_int(k, 1, 20);
    int64_t wide = at->head_dim;
    if (kcase_int(k, 0, 2) == 0) { /* a part of each head */
        at->head_dim += (int)kcase_int(k, 0, 1);
        wide = at->dim = 2 * (int)kcase_int(k, 1, at->head_dim / 2);
        at->at = (int)kcase_int(k, 0, at->head_dim - at->dim);
    }
    at->pairs = kcase_int(k, 0, 2) == 0;
    int64_t half = wide / 2;
    k->in[0] = kcase_floats(k, t, at->heads * at->head_dim, 1);
    k->in[1] = kcase_ints(k, t, 0, positions - 1);
    k->in[2] = kcase_tensor(k, DT_F32, positions, wide);
    for (int64_t p = 0; p < positions; p++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)p * pow(10000, -(double)i / (double)half);
            view_set(&k->in[2], p, i, cos(angle));
            view_set(&k->in[2], p, half + i, sin(angle));
        }
    k->n_in = 3;
}

static inline struct attention_attrs *kcase_heads(struct kcase *k)
{
    return (struct attention_attrs *)at_heads(&k->at);
}

static inline void build_heads(struct kcase *k)
{
    struct attention_attrs *at = kcase_heads(k);
    at->kv_heads = (int)kcase_int(k, 1, 3);
    at->heads = at->kv_heads * (int)kcase_int(k, 1, 3);
    at->head_dim = (int)kcase_int(k, 1, 36);
    at->scale = 1 / sqrtf((float)at->head_dim);
    at->causal = true;
}

static inline void build_qkv(struct kcase *k, int64_t t)
{
    struct attention_attrs *at = kcase_heads(k);
    for (int i = 0; i < 3; i++) k->in[i] = kcase_floats(k, t, (i ? at->kv_heads : at->heads) * at->head_dim, 1);
    k->n_in = 3;
}

/* The first tokens of each document, up to all of them, are its prefix (layout/document_ids.h), or any of them: they
 * may stand anywhere. */
static inline void kcase_mark(struct kcase *k, int64_t seq)
{
    int64_t n = k->in[3].n[0], left = 0, was = -1, anywhere = kcase_int(k, 0, 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t id = (int64_t)view_get(&k->in[3], 0, i);
        if (id != was || i % seq == 0) left = kcase_int(k, 0, 9);
        was = id;
        view_set(&k->in[3], 0, i, (double)(2 * id + (anywhere ? kcase_int(k, 0, 2) == 0 : left-- > 0)));
    }
}

static inline void build_attention(struct kcase *k)
{
    struct attention_attrs *at = kcase_heads(k);
    at->dropout.stream = 5;
    build_heads(k);
    at->batch = kcase_int(k, 1, 3);
    at->seq = k->large ? kcase_int(k, 65, 150) : kcase_int(k, 1, 45);
    at->causal = kcase_int(k, 0, 3) > 0;
    if (at->causal && kcase_int(k, 0, 2) == 0) at->window = kcase_int(k, 1, at->seq);
    if (kcase_int(k, 0, 2) == 0) at->dropout.p = 0.25f;
    if (kcase_int(k, 0, 2) == 0) at->cap = 0.75f;
    int64_t t = at->batch * at->seq;
    build_qkv(k, t);
    if (kcase_int(k, 0, 1)) { /* documents: runs of equal ids */
        k->in[3] = kcase_tensor(k, DT_I32, t, 0);
        k->n_in = 4;
        int64_t id = 0;
        for (int64_t i = 0; i < t; i++) view_set(&k->in[3], 0, i, (double)(id += kcase_int(k, 0, 5) == 0));
        at->prefix = at->causal && !at->window && kcase_int(k, 0, 1);
        if (at->prefix) kcase_mark(k, at->seq);
    }
    k->step.first_token = (uint64_t)(kcase_int(k, 0, 5) * at->seq);
    if (kcase_int(k, 0, 1)) return;
    k->in[ATTENTION_SINK] = kcase_floats(k, at->heads, 0, 1.5);
    k->n_in = ATTENTION_SINK + 1;
}

/* All parts on both sides, in the order of parts. What single parts make together is test_context.c's. */
static inline void build_attention_part(struct kcase *k)
{
    struct attention_part_attrs *p = edit_attention_part(&k->at);
    build_attention(k);
    p->parts = p->q_count = p->k_count = (int)kcase_int(k, 1, 4);
}

static inline void build_attention_cached(struct kcase *k)
{
    int64_t runs = kcase_int(k, 1, 4), page = CACHE_PAGE, pages = k->large ? 20 : 3, t = kcase_int(k, 0, 2), n[4],
            past[4];
    build_heads(k);
    if (kcase_int(k, 0, 2) == 0) kcase_heads(k)->window = kcase_int(k, 1, page * pages);
    if (kcase_int(k, 0, 2) == 0) kcase_heads(k)->cap = 0.75f;
    for (int64_t s = 0; s < runs; s++) {
        n[s] = kcase_int(k, 0, page * pages < 12 ? page * pages : 12); /* short ones, long ones, none */
        past[s] = kcase_int(k, 0, page * pages - n[s]);
        t += n[s] + 1;
    }
    build_qkv(k, t);
    k->in[3] = kcase_tensor(k, DT_I32, runs, RUN_PAGES + pages);
    for (int64_t s = 0, at = 0; s < runs; at += n[s++] + 1) {
        view_set(&k->in[3], s, RUN_FIRST, (double)at);
        view_set(&k->in[3], s, RUN_ROWS, (double)n[s]);
        view_set(&k->in[3], s, RUN_PAST, (double)past[s]);
        view_set(&k->in[3], s, RUN_BOTH, kcase_heads(k)->window ? 0 : (double)kcase_int(k, 0, 1));
        for (int64_t i = 0; i < pages; i++) /* in order, or backwards */
            view_set(&k->in[3], s, RUN_PAGES + i, (double)(s * pages + (s % 2 ? pages - 1 - i : i)));
    }
    k->in[4] = kcase_floats(k, runs * pages * page, k->in[1].n[1], 1);
    k->in[5] = kcase_floats(k, runs * pages * page, k->in[1].n[1], 1);
    k->n_in = 6 + (int)kcase_int(k, 0, 1);
    if (k->n_in > CACHED_SINK) k->in[CACHED_SINK] = kcase_floats(k, kcase_heads(k)->heads, 0, 1.5);
}

static inline void build_act(struct kcase *k)
{
    int64_t t, f;
    kcase_tokens(k, &t, &f);
    edit_act(&k->at)->kind = (enum act_kind)kcase_int(k, 0, ACT_N - 1);
    k->in[0] = kcase_floats(k, t, act_gated(at_act(&k->at)->kind) ? 2 * f : f, 2);
    edit_act(&k->at)->cap = 1.5f;
    k->n_in = 1;
    bool squared = at_act(&k->at)->kind == ACT_RELU2, bent = at_act(&k->at)->kind == ACT_RELU;
    for (int64_t r = 0; (squared || bent) && r < t;
         r++) /* differences want to be away from where slopes bend or jump */
        for (int64_t c = 0; c < f; c++) {
            double x = view_get(&k->in[0], r, c);
            if (fabs(x) < 0.05) view_set(&k->in[0], r, c, x < 0 ? x - 0.125 : x + 0.125);
        }
    bool clamped = at_act(&k->at)->kind == ACT_CLAMPED;
    for (int64_t r = 0; clamped && r < t; r++)
        for (int64_t c = 0; c < 2 * f; c++) {
            double x = view_get(&k->in[0], r, c);
            if (fabs(fabs(x) - 1.5) < 0.05) view_set(&k->in[0], r, c, x < 0 ? x - 0.125 : x + 0.125);
        }
}

static inline void build_add(struct kcase *k)
{
    int64_t t, d;
    kcase_tokens(k, &t, &d);
    edit_dropout(&k->at)->stream = 5;
    if (kcase_int(k, 0, 1)) edit_dropout(&k->at)->p = 0.3f;
    k->n_in = k->op == OP_ADD ? 2 : 1;
    for (int i = 0; i < k->n_in; i++) k->in[i] = kcase_floats(k, t, d, 1);
}

static inline void build_xent(struct kcase *k)
{
    int64_t t = kcase_int(k, 1, 20), v = kcase_int(k, 1, k->large ? 3000 : 90);
    k->in[0] = kcase_floats(k, t, v, 2);
    k->in[1] = kcase_ints(k, t, -1, v - 1);
    int kind = k->op == OP_XENT ? (int)kcase_int(k, 0, 3) : 0; /* usual, what is right, each by itself, scores */
    if (kind == 1) edit_vocab(&k->at)->right = true;
    if (kind == 3) edit_vocab(&k->at)->plain = true;
    k->n_in = 2;
    if (kind != 2) return;
    edit_vocab(&k->at)->at = kcase_int(k, 0, 3);
    edit_vocab(&k->at)->each = t + edit_vocab(&k->at)->at + kcase_int(k, 0, 3);
    struct view factor = kcase_tensor(k, DT_F32, t, 0);
    view_fill(&factor, k->seed, rng_stream("kcase/factor"), 1);
    k->in[k->n_in++] = factor;
}

static inline void build_copy(struct kcase *k)
{
    int64_t t, d;
    kcase_tokens(k, &t, &d);
    k->in[0] = kcase_floats(k, t, d, 1);
    k->n_in = 1;
    k->out[0].dtype = kcase_dtypes[kcase_int(k, 0, 2)];
}

/* ---- experts ---- */

struct choice {
    struct tokens_at tokens;
    int experts, top_k;
};

static inline struct choice kcase_choice(struct kcase *k, int64_t *tokens)
{
    struct choice c = {.tokens.batch = kcase_int(k, 1, 3)};
    c.tokens.seq = k->large ? kcase_int(k, 17, 60) : kcase_int(k, 1, 9);
    *tokens = c.tokens.batch * c.tokens.seq;
    c.experts = (int)kcase_int(k, 1, 9);
    c.top_k = (int)kcase_int(k, 1, c.experts < 4 ? c.experts : 4);
    return c;
}

/* Logits of a token are a random order of values at some distance from each other, so that a small step in any
 * direction changes no choice; a bias decides the order alone. */
static inline struct view kcase_logits(struct kcase *k, int64_t t, int n)
{
    struct view v = kcase_tensor(k, k->dtype, t, n);
    int order[64];
    for (int64_t r = 0; r < t; r++) {
        for (int e = 0; e < n; e++) order[e] = e;
        for (int e = n - 1; e > 0; e--) {
            int other = (int)kcase_int(k, 0, e), was = order[e];
            order[e] = order[other];
            order[other] = was;
        }
        for (int e = 0; e < n; e++) view_set(&v, r, order[e], 0.25 * e + 0.013 * e * e - 1.5);
    }
    return v;
}

static inline struct view kcase_picks(struct kcase *k, int64_t t, struct choice c)
{
    struct view v = kcase_tensor(k, DT_I32, t, c.top_k);
    for (int64_t r = 0; r < t; r++)
        for (int j = 0; j < c.top_k; j++)
            for (bool again = true; again;) {
                view_set(&v, r, j, (double)kcase_int(k, 0, c.experts - 1));
                again = false;
                for (int i = 0; i < j; i++) again |= view_get(&v, r, i) == view_get(&v, r, j);
            }
    return v;
}

static inline void build_router(struct kcase *k)
{
    int64_t t;
    struct choice c = kcase_choice(k, &t);
    struct router_attrs *at = edit_router(&k->at);
    *at = (struct router_attrs){.experts = c.experts,
                                .top_k = c.top_k,
                                .score = (enum moe_score)kcase_int(k, 0, 1),
                                .gate_scale = 1.5f};
    at->norm_topk = kcase_int(k, 0, 1);
    if (kcase_int(k, 0, 1)) {
        at->groups = (int)kcase_int(k, 2, 4);
        at->experts = at->groups * (int)kcase_int(k, 2, 3);
        at->top_groups = (int)kcase_int(k, 1, at->groups);
        at->top_k = (int)kcase_int(k, 1, 2);
        at->group_pairs = kcase_int(k, 0, 1);
    }
    k->in[0] = kcase_logits(k, t, at->experts);
    k->n_in = 1 + (int)kcase_int(k, 0, 1);
    if (k->n_in == 1) return;
    k->in[1] = kcase_tensor(k, k->dtype, at->experts, 0);
    for (int e = 0; e < at->experts; e++) view_set(&k->in[1], 0, e, (double)(1 << (e * 5 % at->experts) % 13));
}

static inline void build_load(struct kcase *k)
{
    int64_t t;
    struct choice c = kcase_choice(k, &t);
    c.tokens.first = kcase_int(k, 0, t - 1);
    t -= c.tokens.first;
    k->at = ATTRS(load, c.experts, c.top_k, c.tokens);
    k->in[0] = kcase_picks(k, t, c);
    k->in[1] = kcase_ints(k, t, -1, 3);
    k->n_in = 2;
}

static inline void build_balance(struct kcase *k)
{
    int64_t t;
    struct choice c = kcase_choice(k, &t);
    enum moe_score score = (enum moe_score)kcase_int(k, 0, 1);
    float z = kcase_int(k, 0, 1) ? 0.3f : 0;
    k->at = ATTRS(balance, c.experts, c.top_k, score, 2.0f, z, c.tokens);
    k->in[0] = kcase_floats(k, t, c.experts, 1);
    k->in[1] = kcase_picks(k, t, c);
    k->in[2] = kcase_ints(k, t, -1, 3);
    k->in[3] = kcase_tensor(k, DT_F32, c.tokens.batch, c.experts + 1);
    for (int64_t s = 0; s < c.tokens.batch; s++)
        for (int e = 0; e <= c.experts; e++)
            view_set(&k->in[3], s, e, (double)(e < c.experts ? kcase_int(k, 0, c.tokens.seq) : c.tokens.seq));
    k->n_in = 4;
}

static inline void build_permute(struct kcase *k)
{
    int64_t t, d = kcase_int(k, 1, 90);
    struct choice c = kcase_choice(k, &t);
    struct permute_attrs *at = edit_permute(&k->at);
    *at = (struct permute_attrs){.experts = c.experts, .top_k = c.top_k, .tokens = c.tokens};
    int64_t own = t;
    if (kcase_int(k, 0, 1)) { /* picks of whole sequences, x some of their rows */
        at->capacity = kcase_int(k, 1, 1 + c.tokens.seq);
        at->parts = (int)kcase_int(k, 0, 4);
        at->tokens.first = kcase_int(k, 0, t - 1);
        own = kcase_int(k, 1, t - at->tokens.first);
    }
    if (kcase_int(k, 0, 1)) { /* rows are counted by heads and tails of sequences */
        at->order = (struct source_order){to_int(c.tokens.batch), (int)kcase_int(k, 2, 4), (int)kcase_int(k, 1, 3)};
        at->rows = c.tokens.seq;
        at->head = kcase_int(k, 0, c.tokens.seq);
        at->at = kcase_int(k, 0, t - own);
    }
    k->in[0] = kcase_floats(k, own, d, 1);
    k->in[1] = kcase_picks(k, t, c);
    k->n_in = 2;
}

static inline void build_grouped(struct kcase *k)
{
    int64_t experts = kcase_int(k, 1, 5), used = 0, n = kcase_int(k, 1, k->large ? 150 : 40),
            d = kcase_int(k, 1, k->large ? 400 : 60);
    k->in[2] = kcase_tensor(k, DT_I32, experts, 0);
    for (int64_t e = 0; e < experts; e++) {
        int64_t rows = kcase_int(k, 0, 3) ? kcase_int(k, 0, k->large ? 70 : 12) : 0;
        view_set(&k->in[2], 0, e, (double)rows);
        used += rows;
    }
    k->in[0] = kcase_floats(k, used + kcase_int(k, 0, 3) + (used == 0), d, 1);
    k->in[1] = kcase_floats(k, experts * n, d, 0.2);
    k->n_in = 3;
}

static inline struct view kcase_bytes(struct kcase *k, int64_t rows, int64_t cols)
{
    struct view v = {.dtype = DT_U8, .nd = 2, .n = {rows, cols}, .stride = cols};
    kcase_memory(k, &v);
    for (int64_t i = 0; i < rows * cols; i++) ((uint8_t *)v.p)[i] = (uint8_t)kcase_int(k, 0, 255);
    return v;
}

/* Scales that are powers of two near 1, or near a mean of 0.2 that all have. */
static inline void kcase_scales(struct kcase *k, const struct coded_attrs *a, int64_t times)
{
    int64_t n = 0, at = 0;
    for (int p = 0; p < a->n_parts; p++) n += a->part[p].n_groups;
    if (!n) {
        for (int64_t i = 0; i < k->in[2].n[0] * k->in[2].n[1]; i++)
            ((uint8_t *)k->in[2].p)[i] = (uint8_t)kcase_int(k, a->packing == PACKING_INT8 ? 116 : 121, 126);
        return;
    }
    k->in[CODED_GROUPS] = kcase_tensor(k, DT_F32, n * times, 0);
    for (int64_t e = 0; e < times; e++)
        for (int p = 0; p < a->n_parts; p++)
            for (int64_t g = 0; g < a->part[p].n_groups; g++)
                view_set(&k->in[CODED_GROUPS], 0, at++, g + 1 < a->part[p].n_groups ? 0.15 + 0.01 * (double)g : 0.2);
}

/* Boxes of matrices: several in one product, rows and columns from the middle, of experts or of all. */
static inline void build_coded(struct kcase *k)
{
    struct coded_attrs a = {.packing = (enum packing)kcase_int(k, 1, PACKING_N - 1), .bias_off = !kcase_int(k, 0, 4)};
    int64_t t = kcase_int(k, 1, k->large ? 90 : 14), d = kcase_int(k, 1, k->large ? 400 : 150), n = 0;
    int64_t times = kcase_int(k, 0, 2) ? 1 : kcase_int(k, 1, 4);
    if (packing_row(a.packing)->per_byte == 2) d += d % 2;
    const int64_t blocks = packing_row_blocks(a.packing, d);
    a.row_blocks = blocks + kcase_int(k, 0, 2);
    a.n_parts = (int)kcase_int(k, 1, 3);
    for (int p = 0; p < a.n_parts; p++) {
        struct coded_part *x = &a.part[p];
        x->rows = kcase_int(k, p ? 0 : 1, k->large ? 120 : 30);
        x->first = kcase_int(k, 0, 600);
        if (packing_row(a.packing)->grouped)
            x->n_groups = (x->first + x->rows * a.row_blocks) / PACKING_GROUP + 2 + kcase_int(k, 0, 2);
        n += x->rows;
    }
    k->in[1] = kcase_bytes(k, n * times, packing_row_bytes(a.packing, d));
    k->in[2] = kcase_bytes(k, n * times, blocks);
    kcase_scales(k, &a, times);
    k->n_in = 6;
    if (times > 1) {
        k->in[CODED_ROWS] = kcase_tensor(k, DT_I32, times, 0);
        for (int64_t e = 0, left = t; e < times; e++) {
            int64_t rows = kcase_int(k, 0, 2) ? kcase_int(k, 0, left) : 0;
            view_set(&k->in[CODED_ROWS], 0, e, (double)rows);
            left -= rows;
        }
    } else if (kcase_int(k, 0, 1)) {
        k->in[CODED_BIAS] = kcase_floats(k, n, 0, 0.5);
    }
    k->in[0] = kcase_floats(k, t, d, 1);
    k->at = attrs_coded(a);
}

static inline void build_expert_bias(struct kcase *k)
{
    build_grouped(k);
    k->in[1] = kcase_floats(k, view_cols(&k->in[2]) * k->in[0].n[1], 0, 0.5);
}

static inline void build_unpermute(struct kcase *k)
{
    int64_t t, used = 0, d = kcase_int(k, 1, 90);
    int top_k = kcase_choice(k, &t).top_k;
    int64_t n = t * top_k;
    edit_unpermute(&k->at)->top_k = top_k;
    k->in[2] = kcase_tensor(k, DT_I32, t, top_k);
    for (int64_t i = 0; i < n; i++) /* a tenth is dropped; the others in a scattered order */
        view_set(&k->in[2], i / top_k, i % top_k, kcase_int(k, 0, 9) ? (double)used++ : -1);
    for (int64_t i = 0; i < n; i++) {
        int64_t other = kcase_int(k, 0, n - 1), a = i / top_k, b = other / top_k;
        double x = view_get(&k->in[2], a, i % top_k), y = view_get(&k->in[2], b, other % top_k);
        view_set(&k->in[2], a, i % top_k, y);
        view_set(&k->in[2], b, other % top_k, x);
    }
    k->in[0] = kcase_floats(k, used + 1 + kcase_int(k, 0, 2), d, 1);
    k->in[1] = kcase_tensor(k, DT_F32, t, top_k);
    view_fill(&k->in[1], k->seed, 11, 0.5);
    k->n_in = 3;
}

static inline void build_mla(struct kcase *k)
{
    int64_t t = kcase_int(k, 1, 20);
    int heads = (int)kcase_int(k, 1, 4), nope = (int)kcase_int(k, 1, 20), head_dim = nope + (int)kcase_int(k, 1, 12),
        value = (int)kcase_int(k, 1, head_dim);
    if (k->op == OP_TRIM) {
        k->at = ATTRS(trim, heads, head_dim, value);
        k->in[0] = kcase_floats(k, t, heads * head_dim, 1);
        k->n_in = 1;
        return;
    }
    k->at = ATTRS(mla_kv, heads, head_dim, nope, value);
    k->in[0] = kcase_floats(k, t, heads * (nope + value), 1);
    k->in[1] = kcase_floats(k, t, head_dim - nope, 1);
    k->n_in = 2;
}

static inline void build_join(struct kcase *k)
{
    int64_t t = kcase_int(k, 1, 20);
    k->in[0] = kcase_floats(k, t, kcase_int(k, 1, 40), 1);
    k->in[1] = kcase_floats(k, t, kcase_int(k, 1, 40), 1);
    k->n_in = 2;
}

static inline struct picture_rows build_picture_rows(struct kcase *k, int64_t seq)
{
    struct picture_rows a = {.batch = kcase_int(k, 1, 5), .seq = seq, .parts = (int)kcase_int(k, 1, 3)};
    a.part = (int)kcase_int(k, 0, a.parts - 1);
    int64_t all = a.batch * picture_rows_each(&a); /* none, where pictures have fewer places than there are parts */
    a.first = all ? kcase_int(k, 0, all - 1) : 0;
    a.rows = all ? kcase_int(k, 1, all - a.first) : 0;
    if (kcase_int(k, 0, 1)) a.first = 0, a.rows = all;
    return a;
}

static inline void build_patches(struct kcase *k)
{
    int64_t side = kcase_int(k, 1, 4), patch = kcase_int(k, 1, 5), channels = kcase_int(k, 1, 3);
    struct picture_rows rows = build_picture_rows(k, side * side + (side == 1 || kcase_int(k, 0, 3)));
    k->at = ATTRS(patches, rows, channels, side * patch, patch);
    k->in[0] = kcase_tensor(k, DT_F32, rows.batch, channels * side * side * patch * patch);
    view_fill(&k->in[0], k->seed, 3, 1);
    k->out[0].dtype = k->dtype;
    k->n_in = 1;
}

static inline void build_pool(struct kcase *k)
{
    struct picture_rows rows = build_picture_rows(k, kcase_int(k, 2, 20));
    k->at = ATTRS(pool, rows, (enum pool_kind)kcase_int(k, 0, POOL_N - 1));
    k->in[0] = kcase_floats(k, rows.rows, kcase_int(k, 1, 70), 1);
    k->n_in = 1;
}

static inline void build_insert(struct kcase *k)
{
    int64_t each = kcase_int(k, 1, 9), d = kcase_int(k, 1, 40);
    struct picture_rows rows = build_picture_rows(k, kcase_int(k, 1, 14));
    k->at = attrs_insert((struct insert_attrs){rows});
    k->in[0] = kcase_floats(k, rows.rows, d, 1);
    k->in[1] = kcase_ints(k, rows.rows, -1, -1);
    int64_t last = -1, picture = -1;
    for (int64_t t = 0; t < rows.rows; t++) { /* rising in each sequence, with gaps */
        int64_t of = picture_place_of(&rows, t).picture;
        if (of != picture) last = -1;
        picture = of;
        if (kcase_int(k, 0, 2) && last + 1 < each)
            view_set(&k->in[1], 0, t, (double)(last = kcase_int(k, last + 1, each - 1)));
    }
    k->in[2] = kcase_floats(k, rows.batch * each, d, 1);
    k->n_in = 3;
}

static inline void build_pick(struct kcase *k)
{
    struct pick_attrs a = {.batch = kcase_int(k, 1, 4), .seq = kcase_int(k, 1, 20)};
    a.first = kcase_int(k, 0, a.seq - 1);
    a.n = kcase_int(k, 1, a.seq - a.first);
    k->at = attrs_pick(a);
    k->in[0] = kcase_ints(k, a.batch * a.seq, 0, 1000);
    k->n_in = 1;
}

static inline void build_distances(struct kcase *k)
{
    int64_t buckets = 2 * kcase_int(k, 2, 9), q = kcase_int(k, 1, k->large ? 150 : 20);
    k->at = attrs_distances(
        (struct distances_attrs){q, kcase_int(k, 1, 40), buckets / 2 + kcase_int(k, 1, 30), kcase_int(k, 0, 1) > 0});
    k->in[0] = kcase_floats(k, buckets, kcase_int(k, 1, 5), 1);
    k->n_in = 1;
}

static inline void build_attention_biased(struct kcase *k)
{
    struct attention_biased_attrs *at = edit_attention_biased(&k->at);
    int64_t q = k->large ? kcase_int(k, 65, 100) : kcase_int(k, 1, 20);
    *at = (struct attention_biased_attrs){.batch = kcase_int(k, 1, 3), .q_seq = q, .k_seq = kcase_int(k, 1, 30)};
    at->heads = (int)kcase_int(k, 1, 3);
    at->head_dim = (int)kcase_int(k, 1, 12);
    at->head_first = (int)kcase_int(k, 0, 2);
    at->heads_all = at->heads + at->head_first;
    at->causal = kcase_int(k, 0, 1);
    if (at->causal) at->k_seq = q;
    at->sample = q + at->k_seq;
    if (kcase_int(k, 0, 2) == 0) at->dropout = (struct dropout_attrs){.p = 0.25f, .stream = 5};
    int64_t cols = (int64_t)at->heads * at->head_dim;
    k->in[0] = kcase_floats(k, at->batch * q, cols, 0.5);
    for (int i = 1; i < 3; i++) k->in[i] = kcase_floats(k, at->batch * at->k_seq, cols, 0.5);
    k->n_in = 3 + (int)kcase_int(k, 0, 2);
    bool biased = k->n_in == 4 || (k->n_in == 5 && kcase_int(k, 0, 1));
    if (biased) k->in[3] = kcase_tensor(k, DT_F32, at->heads, q + at->k_seq - 1);
    if (biased) view_fill(&k->in[3], k->seed, 13, 1);
    if (k->n_in == 5) { /* keys behind an end are not there, nor some before it; the first one is */
        int64_t there = kcase_int(k, 1, at->k_seq);
        k->in[4] = kcase_ints(k, at->batch * at->k_seq, 0, 3);
        for (int64_t t = 0; t < at->batch * at->k_seq; t++)
            if (t % at->k_seq >= there || t % at->k_seq % 5 == 3) view_set(&k->in[4], 0, t, -1);
    }
    k->step.first_token = (uint64_t)(kcase_int(k, 0, 5) * at->sample);
}

/* Of the decoder's own tokens, or of what was read: then no keys come, and a run may see more than it has rows. */
static inline void build_attention_cached_biased(struct kcase *k)
{
    struct attention_cached_biased_attrs *at = edit_attention_cached_biased(&k->at);
    int64_t runs = kcase_int(k, 1, 4), page = CACHE_PAGE, pages = k->large ? 20 : 3, t = kcase_int(k, 0, 2), n[4];
    int64_t buckets = kcase_int(k, 2, 9);
    bool stores = kcase_int(k, 0, 2) > 0;
    *at = (struct attention_cached_biased_attrs){(int)kcase_int(k, 1, 3), (int)kcase_int(k, 1, 12),
                                                 buckets / 2 + kcase_int(k, 1, 30)};
    for (int64_t s = 0; s < runs; s++) t += 1 + (n[s] = kcase_int(k, 0, 12)); /* and rows of no run */
    int64_t cols = (int64_t)at->heads * at->head_dim;
    for (int i = 0; i < (stores ? 3 : 1); i++) k->in[i] = kcase_floats(k, t, cols, 0.5);
    k->in[3] = kcase_tensor(k, DT_I32, runs, RUN_PAGES + pages);
    for (int64_t s = 0, row = 0; s < runs; row += n[s++] + 1) {
        view_set(&k->in[3], s, RUN_FIRST, (double)row);
        view_set(&k->in[3], s, RUN_ROWS, (double)n[s]);
        view_set(&k->in[3], s, RUN_PAST, (double)kcase_int(k, 0, page * pages - (stores ? n[s] : 0)));
        view_set(&k->in[3], s, RUN_STATE, 0);
        for (int64_t i = 0; i < pages; i++)
            view_set(&k->in[3], s, RUN_PAGES + i, (double)(s * pages + (s % 2 ? pages - 1 - i : i)));
    }
    for (int i = 4; i < 6; i++) k->in[i] = kcase_floats(k, runs * pages * page, cols, 0.5);
    k->n_in = stores ? 6 + (int)kcase_int(k, 0, 1) : 6;
    if (k->n_in > 6) k->in[6] = kcase_floats(k, buckets, at->heads, 1);
}

/* A part of every sequence; documents, or none. */
static inline struct sequence_rows build_pieces(struct kcase *k, struct view *docs)
{
    struct sequence_rows a = {.batch = kcase_int(k, 1, 2),
                              .seq = k->large ? kcase_int(k, 66, 100) : kcase_int(k, 1, 14),
                              .parts = 1};
    if (kcase_int(k, 0, 1)) a.parts = (int)kcase_int(k, 2, 3);
    a.part = (int)kcase_int(k, 0, a.parts - 1);
    if (!pieces_rows(&a)) a.parts = 1, a.part = 0; /* pieces may be empty, but not all of them */
    if (!docs || kcase_int(k, 0, 1)) return a;
    *docs = kcase_ints(k, a.batch * a.seq, 0, 0);
    for (int64_t t = 0, id = 0; t < a.batch * a.seq; t++) view_set(docs, 0, t, (double)(id += !kcase_int(k, 0, 4)));
    return a;
}

static inline void build_conv(struct kcase *k)
{
    int64_t channels = kcase_int(k, 1, k->large ? 35 : 20), taps = kcase_int(k, 2, 5);
    struct sequence_rows rows = build_pieces(k, &k->in[3]);
    k->at = attrs_conv((struct conv_attrs){rows});
    k->in[0] = kcase_floats(k, pieces_rows(&rows), channels, 1);
    k->in[1] = kcase_floats(k, channels, taps, 0.5);
    if (kcase_int(k, 0, 2)) k->in[2] = kcase_floats(k, channels, 0, 0.5);
    k->n_in = k->in[3].nd ? 4 : k->in[2].nd ? 3 : 2;
    if (rows.parts == 1 && kcase_int(k, 0, 3)) return;
    k->in[4] = kcase_floats(k, pieces_all(&rows) * (taps - 1), channels, 1);
    k->n_in = 5;
}

static inline void build_times(struct kcase *k)
{
    int64_t t = kcase_int(k, 1, 40), heads = kcase_int(k, 1, 20);
    k->at = ATTRS(times, 0, INFINITY);
    if (kcase_int(k, 0, 1)) k->at = ATTRS(times, 0.3f, 1.5f);
    k->in[0] = kcase_floats(k, t, heads, 1);
    k->in[1] = kcase_floats(k, heads, 0, 0.5);
    k->in[2] = kcase_floats(k, heads, 0, 0.5);
    for (int64_t i = 0; i < t; i++) /* not where a limit makes a corner */
        for (int64_t h = 0; h < heads; h++)
            for (bool near = true; near;) {
                double dt = view_get(&k->in[0], i, h), step = log1p(exp(dt + view_get(&k->in[2], 0, h)));
                near = fabs(step - 0.3) < 0.03 || fabs(step - 1.5) < 0.03;
                if (near) view_set(&k->in[0], i, h, dt + 0.25);
            }
    k->n_in = 3;
}

static inline struct view kcase_times(struct kcase *k, int64_t t, int64_t heads)
{
    struct view v = kcase_tensor(k, DT_F32, t, 2 * heads);
    for (int64_t i = 0; i < t; i++)
        for (int64_t h = 0; h < heads; h++) {
            double step = 0.05 + (double)kcase_int(k, 0, 100) / 80;
            view_set(&v, i, h, step);
            view_set(&v, i, heads + h, -step * (0.1 + 0.3 * (double)h));
        }
    return v;
}

static inline void build_scan(struct kcase *k)
{
    struct view docs = {0};
    struct scan_attrs a = {.at = build_pieces(k, &docs)};
    a.groups = (int)kcase_int(k, 1, 2);
    a.heads = a.groups * (int)kcase_int(k, 1, k->large ? 2 : 3);
    a.head_dim = (int)kcase_int(k, 1, k->large ? 11 : 6);
    a.state = (int)kcase_int(k, 1, k->large ? 10 : 7);
    int64_t t = pieces_rows(&a.at);
    k->at = attrs_scan(a);
    k->in[0] = kcase_floats(k, t, (int64_t)a.heads * a.head_dim, 1);
    k->in[1] = kcase_floats(k, t, (int64_t)2 * a.groups * a.state, 0.7);
    k->in[2] = kcase_times(k, t, a.heads);
    if (k->op == OP_SCAN_END) {
        k->in[3] = docs;
        k->n_in = docs.nd ? 4 : 3;
        return;
    }
    k->in[3] = kcase_floats(k, a.heads, 0, 1);
    k->in[4] = docs;
    k->n_in = docs.nd ? 5 : 4;
    if (a.at.parts == 1 && kcase_int(k, 0, 3)) return;
    k->in[5] = kcase_tensor(k, DT_F32, pieces_all(&a.at), (int64_t)a.heads * a.head_dim * a.state);
    view_fill(&k->in[5], k->seed, 21, 1);
    k->n_in = 6;
}

static inline void build_gated_norm(struct kcase *k)
{
    int64_t t, n;
    kcase_tokens(k, &t, &n);
    edit_norm(&k->at)->heads = (int)kcase_int(k, 1, 4);
    edit_norm(&k->at)->eps = 1e-2f; /* what the gate lets through may be nearly nothing */
    n = (n + 2) * edit_norm(&k->at)->heads;
    k->in[0] = kcase_floats(k, t, n, 1.5);
    k->in[1] = kcase_floats(k, t, n, 1.5);
    k->n_in = 2 + (kcase_int(k, 0, 2) > 0);
    if (k->n_in > 2) k->in[2] = kcase_floats(k, n, 0, 1);
}

/* Some of a product's rows have an adapter, in stretches; a row may be all zeros. */
static inline void build_adapted(struct kcase *k)
{
    struct adapted_attrs a = {.times = 0.5f, .n_parts = (int)kcase_int(k, 1, ADAPTED_PARTS)};
    int64_t rows = kcase_int(k, 0, 2), all = 0, cols = kcase_int(k, 1, k->large ? 300 : 40), rank = kcase_int(k, 1, 7);
    for (int p = 0; p < a.n_parts; p++) {
        a.part[p] = (struct adapted_part){rows, kcase_int(k, p ? 0 : 1, k->large ? 200 : 20)};
        all += a.part[p].n;
        rows += a.part[p].n + kcase_int(k, 0, 1) * kcase_int(k, 0, 9);
    }
    k->at = attrs_adapted(a);
    if (k->op == OP_ADAPTED_SQUARES) {
        k->in[0] = kcase_floats(k, rows, cols, 1);
        k->in[1] = kcase_floats(k, a.n_parts * rank, cols, 0.7);
        for (int p = 0; p < a.n_parts; p++) k->in[2 + p] = kcase_floats(k, a.part[p].n, rank, 0.7);
        k->n_in = 2 + a.n_parts;
        return;
    }
    k->in[0] = kcase_floats(k, kcase_int(k, 1, k->large ? 200 : 30), rows, 1);
    k->in[1] = kcase_tensor(k, DT_F32, all, 2);
    for (int64_t i = 0; i < all; i++) {
        view_set(&k->in[1], i, 0, 0.25 * (double)kcase_int(k, 0, 40));
        view_set(&k->in[1], i, 1, 0.25 * (double)kcase_int(k, 0, 40));
    }
    k->in[2] = kcase_floats(k, all, 0, 0.3);
    k->n_in = 3 + (int)kcase_int(k, 0, 1);
    if (k->n_in > 3) k->in[3] = kcase_floats(k, rows, 0, 0.5);
}

/* Sequences with new rows or none, in rows that some of no sequence stand between. */
static inline int64_t build_states(struct kcase *k, int64_t *slots)
{
    int64_t n = kcase_int(k, 1, 4), at = 0;
    *slots = n + kcase_int(k, 0, 2);
    k->in[3] = kcase_tensor(k, DT_I32, n, RUN_PAGES + kcase_int(k, 1, 2));
    for (int64_t s = 0; s < n; s++) {
        at += kcase_int(k, 0, 2);
        for (int64_t i = 0; i < k->in[3].n[1]; i++) view_set(&k->in[3], s, i, 0);
        view_set(&k->in[3], s, RUN_FIRST, (double)at);
        view_set(&k->in[3], s, RUN_ROWS, (double)kcase_int(k, 0, 9));
        view_set(&k->in[3], s, RUN_PAST, (double)(kcase_int(k, 0, 2) ? kcase_int(k, 1, 40) : 0));
        view_set(&k->in[3], s, RUN_STATE, (double)(*slots - 1 - s));
        at += (int64_t)view_get(&k->in[3], s, RUN_ROWS);
    }
    return at + kcase_int(k, 1, 2);
}

static inline void build_conv_cached(struct kcase *k)
{
    int64_t channels = kcase_int(k, 1, 20), taps = kcase_int(k, 2, 5), slots, t = build_states(k, &slots);
    k->in[0] = kcase_floats(k, t, channels, 1);
    k->in[1] = kcase_floats(k, channels, taps, 0.5);
    if (kcase_int(k, 0, 2)) k->in[2] = kcase_floats(k, channels, 0, 0.5);
    k->in[4] = kcase_floats(k, slots, (taps - 1) * channels, 1);
    k->n_in = 5;
}

static inline void build_scan_cached(struct kcase *k)
{
    struct scan_attrs a = {.groups = (int)kcase_int(k, 1, 2),
                           .head_dim = (int)kcase_int(k, 1, 40),
                           .state = (int)kcase_int(k, 1, 40)};
    int64_t slots, t = build_states(k, &slots);
    a.heads = a.groups * (int)kcase_int(k, 1, k->large ? 2 : 3);
    k->at = attrs_scan(a);
    k->in[0] = kcase_floats(k, t, (int64_t)a.heads * a.head_dim, 1);
    k->in[1] = kcase_floats(k, t, (int64_t)2 * a.groups * a.state, 0.7);
    k->in[2] = kcase_times(k, t, a.heads);
    k->in[4] = kcase_tensor(k, DT_F32, slots, (int64_t)a.heads * a.head_dim * a.state);
    view_fill(&k->in[4], k->seed, 22, 1);
    k->in[5] = kcase_floats(k, a.heads, 0, 1);
    k->n_in = 6;
}

static inline void build_halo(struct kcase *k)
{
    struct halo_attrs a = {.at = build_pieces(k, NULL), .before = (int)kcase_int(k, 1, 5)};
    int64_t channels = kcase_int(k, 1, 20);
    if (k->op == OP_HALO && a.at.parts == 1) a.at.parts = 2;
    k->at = attrs_halo(a);
    int64_t rows = k->op == OP_TAILS ? pieces_rows(&a.at) : a.at.parts * pieces_all(&a.at) * a.before;
    k->in[0] = kcase_floats(k, rows, channels, 1);
    k->n_in = 1;
}

static inline void build_carry(struct kcase *k)
{
    struct carry_attrs a = {.at = build_pieces(k, NULL), .heads = (int)kcase_int(k, 1, 4)};
    if (a.at.parts == 1) a.at.parts = 2;
    k->at = attrs_carry(a);
    k->in[0] = kcase_tensor(k, DT_F32, a.at.parts * pieces_all(&a.at), a.heads * (kcase_int(k, 1, 30) + 1));
    view_fill(&k->in[0], k->seed, 23, 0.7);
    k->n_in = 1;
}

/* A root of the loss: no gradient comes in, and forward adds to what is there. */
static inline bool kcase_is_root(enum op op) { return op == OP_XENT || op == OP_BALANCE; }

/* Shapes of the outputs by the row, and memory; what accumulates starts from zero. */
static inline void kcase_outputs(struct kcase *k)
{
    const struct op_row *row = op_row(k->op);
    char text[200];
    const char *why = row->infer(&k->at, k->n_in, k->in, k->out);
    if (why) fail_msg("%s: %s", kcase_text(text, k), why);
    k->n_out = row->n_out;
    for (int i = 0; i < k->n_out; i++) {
        kcase_memory(k, &k->out[i]);
        view_fill_zero(&k->out[i]);
    }
}

/* Random gradients of the outputs, and memory for those of the inputs; acc is absent. */
static inline void kcase_gradients(struct kcase *k)
{
    const struct op_row *row = op_row(k->op);
    if (!row->has_backward) return;
    if (!kcase_is_root(k->op)) {
        k->dout[0] = k->out[0];
        kcase_memory(k, &k->dout[0]);
        view_fill(&k->dout[0], k->seed, rng_stream("kcase/dout"), 1);
    }
    for (int i = 0; i < k->n_in; i++) {
        bool weight = (row->weight_in | row->weight_by_in) >> i & 1;
        if (!k->in[i].nd || (!weight && !(row->grad_in >> i & 1))) continue;
        k->din[i] =
            kcase_tensor(k, weight ? DT_F32 : k->in[i].dtype, k->in[i].n[0], k->in[i].nd > 1 ? k->in[i].n[1] : 0);
    }
}

static inline void kcase_random(struct kcase *k, enum op op, enum dtype dtype, uint64_t seed)
{
    static void (*const build[OP_N])(struct kcase *) = {
        [OP_EMBED] = build_embed,
        [OP_LINEAR] = build_linear,
        [OP_RMSNORM] = build_norm,
        [OP_LAYERNORM] = build_norm,
        [OP_HEADNORM] = build_norm,
        [OP_SQUARES] = build_squares,
        [OP_NORM_BY] = build_squares,
        [OP_ROTARY] = build_rotary,
        [OP_ATTENTION] = build_attention,
        [OP_ACT] = build_act,
        [OP_ADD] = build_add,
        [OP_DROPOUT] = build_add,
        [OP_XENT] = build_xent,
        [OP_XENT_PART] = build_xent,
        [OP_ATTENTION_CACHED] = build_attention_cached,
        [OP_ATTENTION_PART] = build_attention_part,
        [OP_COPY] = build_copy,
        [OP_ROUTER] = build_router,
        [OP_LOAD] = build_load,
        [OP_BALANCE] = build_balance,
        [OP_PERMUTE] = build_permute,
        [OP_GROUPED] = build_grouped,
        [OP_UNPERMUTE] = build_unpermute,
        [OP_EXPERT_BIAS] = build_expert_bias,
        [OP_MLA_KV] = build_mla,
        [OP_TRIM] = build_mla,
        [OP_JOIN] = build_join,
        [OP_PATCHES] = build_patches,
        [OP_POOL] = build_pool,
        [OP_INSERT] = build_insert,
        [OP_CONV] = build_conv,
        [OP_TIMES] = build_times,
        [OP_SCAN] = build_scan,
        [OP_SCAN_END] = build_scan,
        [OP_GATED_NORM] = build_gated_norm,
        [OP_CONV_CACHED] = build_conv_cached,
        [OP_SCAN_CACHED] = build_scan_cached,
        [OP_CODED] = build_coded,
        [OP_TAILS] = build_halo,
        [OP_HALO] = build_halo,
        [OP_CARRY] = build_carry,
        [OP_PICK] = build_pick,
        [OP_DISTANCES] = build_distances,
        [OP_ATTENTION_BIASED] = build_attention_biased,
        [OP_ATTENTION_CACHED_BIASED] = build_attention_cached_biased,
        [OP_ADAPTED_SQUARES] = build_adapted,
        [OP_MAGNITUDES] = build_adapted,
    };
    *k = (struct kcase){.op = op, .dtype = dtype, .seed = seed * 64 + (uint64_t)op * 4 + (uint64_t)dtype};
    k->large = seed % 6 == 5;
    k->step = (struct step_info){.seed = 7, .step = seed, .first_token = 96, .training = true, .loss_scale = 0.125f};
    k->at = op_attrs_zero(op);
    build[op](k);
    kcase_outputs(k);
    kcase_gradients(k);
}

/* ---- running ---- */

static inline struct kernel_call kcase_call(const struct kcase *k, enum kernel_phase phase)
{
    struct kernel_call c =
        {.op = k->op, .phase = phase, .at = k->at, .step = &k->step, .n_in = k->n_in, .n_out = k->n_out};
    memcpy(c.in, k->in, sizeof c.in);
    memcpy(c.out, k->out, sizeof c.out);
    memcpy(c.dout, k->dout, sizeof c.dout);
    memcpy(c.din, k->din, sizeof c.din);
    memcpy(c.acc, k->acc, sizeof c.acc);
    return c;
}

/* What the row does not save is not there in backward: hide it. False: no gradient of this phase is wanted. */
static inline bool hide_unsaved(struct kernel_call *c)
{
    bool wanted = false;
    const struct op_row *row = op_row(c->op);
    unsigned in = c->phase == KERNEL_BWD_W ? row->save_in_w : row->save_in;
    for (int i = 0; i < c->n_in; i++) {
        if (!(in >> i & 1)) c->in[i].p = NULL;
        bool here = (c->phase == KERNEL_BWD_W ? row->weight_in : row->grad_in) >> i & 1;
        if (!here) c->din[i].p = c->acc[i].p = NULL;
        wanted |= c->din[i].p != NULL;
    }
    for (int i = 0; i < c->n_out; i++)
        if (!(row->save_out >> i & 1)) c->out[i].p = NULL;
    return wanted;
}

/* One call with guarded scratch. False: the family has no such slot or does not accept the call, or nothing is
 * wanted of it. */
static inline bool kcase_run(struct kernel_call *c, const struct kernel_family *f, int n_threads)
{
    const struct kernel_slot *s = kernel_way(f, c);
    if (!s) return false;
    if (c->phase != KERNEL_FWD && !hide_unsaved(c)) return false;
    c->scratch_bytes = s->scratch ? s->scratch(c, n_threads) : 0;
    char *block = xmalloc(c->scratch_bytes + 2 * KCASE_GUARD);
    memset(block, 0xff, c->scratch_bytes + 2 * KCASE_GUARD);
    char *scratch = block + (KCASE_GUARD - (uintptr_t)block % KCASE_GUARD);
    c->scratch = c->scratch_bytes ? scratch : NULL;
    c->team = n_threads > 1 ? team_new(n_threads) : NULL;
    s->run(c);
    if (c->team) team_free(c->team);
    for (const char *g = scratch + c->scratch_bytes; g < block + c->scratch_bytes + 2 * KCASE_GUARD; g++)
        if (*g != (char)0xff)
            fail_msg("%s %s: wrote beyond %zu bytes of scratch", f->name, op_row(c->op)->name, c->scratch_bytes);
    xfree(block);
    return true;
}

/* ROTARY works in place: its input is copied to the output's place first. */
static inline bool kcase_forward(struct kcase *k, const struct kernel_family *f, int n_threads)
{
    struct kernel_call c = kcase_call(k, KERNEL_FWD);
    if (k->op == OP_ROTARY) {
        view_copy(&k->out[0], &k->in[0]);
        c.in[0] = c.out[0];
    }
    if (kcase_is_root(k->op)) view_fill_zero(&k->out[0]);
    return kcase_run(&c, f, n_threads);
}

static inline bool kcase_backward_phase(struct kcase *k, enum kernel_phase phase, const struct kernel_family *f,
                                        int n_threads)
{
    struct kernel_call c = kcase_call(k, phase);
    return kcase_run(&c, f, n_threads);
}

/* Both halves; true when the family ran at least one of them. */
static inline bool kcase_backward(struct kcase *k, const struct kernel_family *f, int n_threads)
{
    bool in = kcase_backward_phase(k, KERNEL_BWD_IN, f, n_threads);
    bool w = kcase_backward_phase(k, KERNEL_BWD_W, f, n_threads);
    return in || w;
}

#endif
