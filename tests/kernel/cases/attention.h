/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h: random cases of attention: of whole sequences, of parts, over a cache, with biases by distance. */
#ifndef TUTTI_TESTS_KERNEL_CASES_ATTENTION_H
#define TUTTI_TESTS_KERNEL_CASES_ATTENTION_H

#include "kernel/cache_runs.h"
#include "kernel/cases/case.h"

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

#endif
