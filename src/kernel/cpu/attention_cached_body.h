/* SPDX-License-Identifier: Apache-2.0 */
/* attention_cached_body.h: a few new tokens against a cache of keys and values, for generation.
 *
 * New keys and values go into the cache first; a unit is one key head, whose columns nobody else touches, so there is
 * nothing to wait for. Up to ATTN_FEW tokens are bound by reading the cache once (2 C A elements per key head): plain
 * dot products, and weighted sums of rows. More tokens (a prompt) are the blocked forward with shifted queries.
 */
#ifndef TUTTI_KERNEL_CPU_ATTENTION_CACHED_BODY_H
#define TUTTI_KERNEL_CPU_ATTENTION_CACHED_BODY_H

#include "kernel/cpu/attention_fwd_body.h"

enum { CACHED_POS = 3, CACHED_K = 4, CACHED_V = 5 };

static void cached_store(const struct kernel_call *c, int64_t first, int64_t g)
{
    const struct attention_attrs *at = at_attention(&c->at);
    size_t each = dtype_bytes(c->in[1].dtype), head = (size_t)at->head_dim * each;
    for (int64_t t = 0; t < c->in[0].n[0]; t++)
        for (int i = 0; i < 2; i++)
            memcpy((char *)row_at(&c->in[CACHED_K + i], first + t) + (size_t)g * head,
                   (const char *)row_at(&c->in[1 + i], t) + (size_t)g * head, head);
}

/* Softmax over p[0..n) of scores in powers of 2; returns 1 / sum. */
VEC_INLINE float cached_softmax(float *p, int64_t n)
{
    vf top = vf_set(ATTN_FLOOR), sum = vf_zero();
    for (int64_t j = 0; j < n; j += VL) {
        int k = v_count(n - j);
        top = vf_max(top, vf_pick(vm_first(k), v_get(p, j, k, DT_F32), top));
    }
    vf max = vf_set(vf_hmax(top));
    for (int64_t j = 0; j < n; j += VL) {
        int k = v_count(n - j);
        vf e = vf_pick(vm_first(k), v_exp2(v_get(p, j, k, DT_F32) - max, 0), vf_zero());
        v_put(p, j, k, DT_F32, e);
        sum += e;
    }
    return 1.0f / vf_sum(sum);
}

/* Query row t of head h against rows lo .. hi-1 of the cache. */
VEC_INLINE void cached_query(const struct kernel_call *c, int64_t t, int64_t h, int64_t lo, int64_t hi, float *p,
                             enum dtype type)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t a = at->head_dim, kv = attention_kv_of(at, h) * a;
    size_t each = dtype_bytes(type);
    const char *q = (const char *)row_at(&c->in[0], t) + (size_t)(h * a) * each;
    float by = at->scale * ATTN_LOG2E;
    for (int64_t j = lo; j < hi; j++) {
        const char *key = (const char *)row_at(&c->in[CACHED_K], j) + (size_t)kv * each;
        vf s = vf_zero();
        for (int64_t d = 0; d < a; d += VL) {
            int k = v_count(a - d);
            s = vf_fma(v_get(q, d, k, type), v_get(key, d, k, type), s);
        }
        p[j - lo] = vf_sum(s) * by;
    }
    vf inverse = vf_set(cached_softmax(p, hi - lo));
    for (int64_t d = 0; d < a; d += 4 * VL) {
        vf o[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (int64_t j = lo; j < hi; j++) {
            const char *value = (const char *)row_at(&c->in[CACHED_V], j) + (size_t)kv * each;
            vf w = vf_set(p[j - lo]);
            for (int u = 0; u < 4; u++)
                if (d + u * VL < a) o[u] = vf_fma(w, v_get(value, d + u * VL, v_count(a - d - u * VL), type), o[u]);
        }
        for (int u = 0; u < 4; u++)
            if (d + u * VL < a)
                v_put(row_at(&c->out[0], t), h * a + d + u * VL, v_count(a - d - u * VL), type, o[u] * inverse);
    }
}

static void cached_few_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t first = ((const int32_t *)c->in[CACHED_POS].p)[0], lo, hi, hlo, hhi;
    float *p = (float *)c->scratch + member * c->in[CACHED_K].n[0];
    team_split(at->kv_heads, member, n_members, &lo, &hi);
    for (int64_t g = lo; g < hi; g++) {
        cached_store(c, first, g);
        attention_heads_of(at, g, &hlo, &hhi);
        for (int64_t t = 0; t < c->in[0].n[0]; t++) {
            int64_t end = first + t + 1, begin = at->window && end > at->window ? end - at->window : 0;
            for (int64_t h = hlo; h < hhi; h++) {
                V_TYPED(c->in[0].dtype, cached_query, c, t, h, begin, end, p);
            }
        }
    }
}
static void cached_store_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t lo, hi;
    team_split(at_attention(&c->at)->kv_heads, member, n_members, &lo, &hi);
    for (int64_t g = lo; g < hi; g++) cached_store(c, ((const int32_t *)c->in[CACHED_POS].p)[0], g);
}

/* The blocked forward over the cache's first n_keys rows. */
static struct attn attn_of_cached(const struct kernel_call *c, const struct tile_ops *o, int64_t n_keys, void *scratch)
{
    struct attn x = attn_of(c, o);
    x.k = &c->in[CACHED_K];
    x.v = &c->in[CACHED_V];
    x.lse = NULL;
    x.batch = 1;
    x.n_q = c->in[0].n[0];
    x.n_k = n_keys;
    x.shift = n_keys - x.n_q;
    x.causal = true;
    x.drop = false;
    x.seq = n_keys;
    attn_tables(&x, scratch);
    return x;
}

static void cached_check(const struct kernel_call *c)
{
    int64_t n = c->in[0].n[0], room = c->in[CACHED_K].n[0];
    const int32_t *pos = c->in[CACHED_POS].p;
    CHECK(pos[0] >= 0 && pos[0] + n <= room, "positions %d .. %lld are beyond the cache of %lld", (int)pos[0],
          (long long)(pos[0] + n - 1), (long long)room);
    CHECK(pos[n - 1] == pos[0] + n - 1, "positions in a cached call are consecutive");
}

static void cached_few(const struct kernel_call *c)
{
    if (c->in[0].n[0] == 0) return;
    cached_check(c);
    team_run_call(cached_few_member, c);
}

static void attention_cached(const struct kernel_call *c, const struct tile_ops *o)
{
    cached_check(c);
    team_run_call(cached_store_member, c);
    struct attn x = attn_of_cached(c, o, ((const int32_t *)c->in[CACHED_POS].p)[0] + c->in[0].n[0], c->scratch);
    attn_fwd_run(&x);
}

/* Positions are data: memory for a full cache. */
static size_t cached_few_scratch(const struct kernel_call *c, int n_threads)
{
    return (size_t)(c->in[CACHED_K].n[0] * n_threads) * sizeof(float);
}
static size_t attention_cached_scratch(const struct kernel_call *c, const struct tile_ops *o, int n_threads)
{
    struct attn x = attn_of_cached(c, o, c->in[CACHED_K].n[0], NULL);
    struct attn_fwd f;
    return x.tables + attn_fwd_carve(&x, &f, NULL) * (size_t)n_threads;
}

#endif
