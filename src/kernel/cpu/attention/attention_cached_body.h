/* SPDX-License-Identifier: Apache-2.0 */
/* attention_cached_body.h: new tokens of several sequences against their pages of keys and values, for generation.
 *
 * New keys and values go into the cache first. A unit is one key head of one run, whose part of the cache nobody else
 * writes, so there is nothing to wait for. A run of up to ATTN_FEW tokens is bound by reading its cache once (2 C A
 * elements per key head): plain dot products, and weighted sums of rows, page by page. A longer one (a prompt) is the
 * blocked forward with shifted queries, over its pages where they follow each other, else over a copy in scratch.
 *
 * With same_rows every run goes through the blocked forward: its sums run over the same blocks of keys, from the
 * sequence's first one on, whatever queries are there, and hidden keys add zeros. Each unit is one thread's.
 */
#ifndef TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_CACHED_BODY_H
#define TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_CACHED_BODY_H

#include "kernel/cache_runs.h"
#include "kernel/cpu/attention/attention_fwd_body.h"

enum { CACHED_RUNS = 3, CACHED_K = 4, CACHED_V = 5 };

static void cached_store(const struct kernel_call *c, const struct cache_run *r, int64_t g)
{
    const struct attention_attrs *at = at_attention(&c->at);
    size_t each = dtype_bytes(c->in[1].dtype), head = (size_t)at->head_dim * each;
    for (int64_t t = 0; t < r->n; t++)
        for (int i = 0; i < 2; i++)
            memcpy((char *)row_at(&c->in[CACHED_K + i], cache_row_of(r, r->past + t)) + (size_t)g * head,
                   (const char *)row_at(&c->in[1 + i], r->first + t) + (size_t)g * head, head);
}

/* Scores in powers of 2 under a soft cap, as attn_cap's. */
VEC_INLINE void cached_cap(float *p, int64_t n, float cap)
{
    const vf in = vf_set(ATTN_LN2 / cap), out = vf_set(cap * ATTN_LOG2E);
    for (int64_t j = 0; j < n; j += VL) {
        int k = v_count(n - j);
        v_put(p, j, k, DT_F32, out * v_tanh(in * v_get(p, j, k, DT_F32)));
    }
}

/* Softmax over p[0..n) of scores in powers of 2, and one without a value (ATTN_FLOOR: none); returns 1 / sum. */
VEC_INLINE float cached_softmax(float *p, int64_t n, float sink)
{
    vf top = vf_set(sink), sum = vf_zero();
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
    return 1.0f / (vf_sum(sum) + (sink > ATTN_FLOOR ? exp2f(sink - vf_hmax(top)) : 0));
}

static int64_t cached_page_end(int64_t place) { return (place / CACHE_PAGE + 1) * CACHE_PAGE; }

/* Query row t of head h against places lo .. hi-1 of its sequence. */
VEC_INLINE void cached_query(const struct kernel_call *c, const struct cache_run *r, int64_t t, int64_t h, int64_t lo,
                             int64_t hi, float *p, enum dtype type)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t a = at->head_dim, kv = attention_kv_of(at, h) * a, end;
    size_t each = dtype_bytes(type), step_k = (size_t)c->in[CACHED_K].stride * each,
           step_v = (size_t)c->in[CACHED_V].stride * each;
    const char *q = (const char *)row_at(&c->in[0], t) + (size_t)(h * a) * each;
    float by = at->scale * ATTN_LOG2E;
    for (int64_t from = lo; from < hi; from = end) {
        const char *key = (const char *)row_at(&c->in[CACHED_K], cache_row_of(r, from)) + (size_t)kv * each;
        end = cached_page_end(from) < hi ? cached_page_end(from) : hi;
        for (int64_t j = from; j < end; j++, key += step_k) {
            vf s = vf_zero();
            for (int64_t d = 0; d < a; d += VL) {
                int k = v_count(a - d);
                s = vf_fma(v_get(q, d, k, type), v_get(key, d, k, type), s);
            }
            p[j - lo] = vf_sum(s) * by;
        }
    }
    if (at->cap > 0) cached_cap(p, hi - lo, at->cap);
    const struct view *sinks = attention_sinks(c);
    vf inverse = vf_set(cached_softmax(p, hi - lo, sinks ? attn_sink_of(sinks, h) * ATTN_LOG2E : ATTN_FLOOR));
    for (int64_t d = 0; d < a; d += 4 * VL) {
        vf o[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (int64_t from = lo; from < hi; from = end) {
            const char *value = (const char *)row_at(&c->in[CACHED_V], cache_row_of(r, from)) + (size_t)kv * each;
            end = cached_page_end(from) < hi ? cached_page_end(from) : hi;
            for (int64_t j = from; j < end; j++, value += step_v) {
                vf w = vf_set(p[j - lo]);
                for (int u = 0; u < 4; u++)
                    if (d + u * VL < a) o[u] = vf_fma(w, v_get(value, d + u * VL, v_count(a - d - u * VL), type), o[u]);
            }
        }
        for (int u = 0; u < 4; u++)
            if (d + u * VL < a)
                v_put(row_at(&c->out[0], t), h * a + d + u * VL, v_count(a - d - u * VL), type, o[u] * inverse);
    }
}

static bool cached_is_few(const struct cache_run *r) { return r->n > 0 && r->n <= ATTN_FEW; }

/* Pairs of query and key of a run, about: what its units cost. */
static int64_t cached_cost(const struct cache_run *r) { return cached_is_few(r) ? r->n * (r->past + r->n) : 0; }

/* One key head of a short run. */
static void cached_unit(const struct kernel_call *c, const struct cache_run *r, int64_t g, float *p)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t hlo, hhi;
    cached_store(c, r, g);
    attention_heads_of(at, g, &hlo, &hhi);
    for (int64_t t = 0; t < r->n; t++) {
        int64_t end = cache_run_end(r, t), begin = at->window && end > at->window ? end - at->window : 0;
        for (int64_t h = hlo; h < hhi; h++) {
            V_TYPED(c->in[0].dtype, cached_query, c, r, r->first + t, h, begin, end, p);
        }
    }
}

/* Units in order, cut where the members' shares of the cost end; scratch is a row of scores for each member. */
static void cached_few_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    int64_t groups = at_attention(&c->at)->kv_heads, total = 0, before = 0, lo, hi;
    float *p = (float *)c->scratch + member * cache_places(c);
    for (int64_t s = 0; s < c->in[CACHED_RUNS].n[0]; s++) {
        struct cache_run r = cache_run_of(c, s);
        total += cached_cost(&r) * groups;
    }
    team_split(total, member, n_members, &lo, &hi);
    for (int64_t s = 0; s < c->in[CACHED_RUNS].n[0]; s++) {
        struct cache_run r = cache_run_of(c, s);
        int64_t cost = cached_cost(&r);
        for (int64_t g = 0; cost && g < groups; g++, before += cost)
            if (before >= lo && before < hi) cached_unit(c, &r, g, p);
    }
}

/* Rows that are there to fill up a call. */
static void cached_clear_rest(const struct kernel_call *c)
{
    size_t bytes = (size_t)c->out[0].n[1] * dtype_bytes(c->out[0].dtype);
    int64_t end = 0;
    for (int64_t s = 0; s <= c->in[CACHED_RUNS].n[0]; s++) {
        struct cache_run r = {.first = c->out[0].n[0], .n = 1};
        if (s < c->in[CACHED_RUNS].n[0]) r = cache_run_of(c, s);
        for (; r.n && end < r.first; end++) memset(row_at(&c->out[0], end), 0, bytes);
        if (r.n) end = r.first + r.n;
    }
}

static void cached_few(const struct kernel_call *c)
{
    cache_runs_check(c);
    cached_clear_rest(c);
    team_run_call(cached_few_member, c);
}

/* ---- a prompt ---- */
struct cached_prompt {
    const struct kernel_call *c;
    struct cache_run r;
    char *copy; /* of its keys, then its values; NULL: they lie in order */
};

static bool cached_in_order(const struct cache_run *r)
{
    int64_t last = (r->past + r->n - 1) / CACHE_PAGE, i = 1;
    while (i <= last && r->page[i] == r->page[0] + i) i++;
    return i > last;
}

static void cached_store_member(void *arg, int member, int n_members)
{
    const struct cached_prompt *x = arg;
    const struct attention_attrs *at = at_attention(&x->c->at);
    size_t head = (size_t)at->head_dim * dtype_bytes(x->c->in[1].dtype), row = head * (size_t)at->kv_heads;
    int64_t lo, hi, n = x->r.past + x->r.n;
    team_split(at->kv_heads, member, n_members, &lo, &hi);
    for (int64_t g = lo; g < hi; g++) {
        cached_store(x->c, &x->r, g);
        for (int64_t j = 0; x->copy && j < 2 * n; j++)
            memcpy(x->copy + (size_t)j * row + (size_t)g * head,
                   (char *)row_at(&x->c->in[CACHED_K + j / n], cache_row_of(&x->r, j % n)) + (size_t)g * head, head);
    }
}

/* The blocked forward over the first n_keys rows of the caches of c. */
static struct attn attn_of_cached(const struct kernel_call *c, const struct tile_ops *o, int64_t n_keys, bool both,
                                  void *scratch)
{
    struct attn x = attn_of(c, o);
    x.k = &c->in[CACHED_K];
    x.v = &c->in[CACHED_V];
    x.lse = NULL;
    x.batch = 1;
    x.n_q = c->in[0].n[0];
    x.n_k = n_keys;
    x.shift = n_keys - x.n_q;
    x.causal = !both;
    x.drop = false;
    x.seq = n_keys;
    attn_tables(&x, scratch);
    return x;
}

static size_t cached_copy_bytes(const struct kernel_call *c)
{
    size_t one = (size_t)(cache_places(c) * c->in[1].n[1]) * dtype_bytes(c->in[1].dtype);
    return (2 * one + 63) / 64 * 64;
}

static void cached_long(const struct kernel_call *c, const struct cache_run *r, const struct tile_ops *o)
{
    int64_t n = r->past + r->n, cols = c->in[1].n[1];
    struct cached_prompt p = {c, *r, cached_in_order(r) ? NULL : c->scratch};
    struct kernel_call one = *c; /* as if the sequence were alone, its cache in one piece */
    team_run(kernel_team(c), cached_store_member, &p);
    one.in[0].p = row_at(&c->in[0], r->first);
    one.out[0].p = row_at(&c->out[0], r->first);
    one.in[0].n[0] = one.out[0].n[0] = r->n;
    for (int i = 0; i < 2; i++) {
        struct view *to = &one.in[CACHED_K + i];
        if (p.copy) to->stride = cols;
        to->p = p.copy ? p.copy + (size_t)(i * n * cols) * dtype_bytes(to->dtype)
                       : (char *)row_at(&c->in[CACHED_K + i], r->page[0] * (int64_t)CACHE_PAGE);
        to->n[0] = n;
    }
    one.scratch = (char *)c->scratch + cached_copy_bytes(c);
    struct attn x = attn_of_cached(&one, o, n, r->both, one.scratch);
    attn_fwd_run(&x);
}

/* ---- every run as the forward of training has it ---- */
struct cached_same {
    const struct kernel_call *c;
    const struct tile_ops *o;
    size_t each; /* scratch of a member */
    atomic_llong next;
};

static size_t cached_head_bytes(const struct kernel_call *c) /* of the keys of a head, or of its values */
{
    size_t one = (size_t)(cache_places(c) * at_attention(&c->at)->head_dim) * dtype_bytes(c->in[1].dtype);
    return (one + 63) / 64 * 64;
}

/* One head's keys (i 0) or values of a run, one row behind the other; the view is such that head g is found there. */
static void cached_gather(const struct kernel_call *c, const struct cache_run *r, int i, int64_t g, char *to,
                          struct view *v)
{
    int64_t a = at_attention(&c->at)->head_dim, n = r->past + r->n;
    size_t each = dtype_bytes(v->dtype), head = (size_t)a * each;
    for (int64_t j = 0; j < n; j++)
        memcpy(to + (size_t)j * head, (const char *)row_at(&c->in[CACHED_K + i], cache_row_of(r, j)) + (size_t)g * head,
               head);
    v->p = to - (size_t)g * head;
    v->stride = a;
    v->n[0] = n;
}

static void cached_same_unit(const struct cached_same *w, const struct cache_run *r, int64_t g, char *scratch)
{
    const struct kernel_call *c = w->c;
    struct kernel_call one = *c;
    one.in[0].p = row_at(&c->in[0], r->first);
    one.out[0].p = row_at(&c->out[0], r->first);
    one.in[0].n[0] = one.out[0].n[0] = r->n;
    cached_store(c, r, g);
    for (int i = 0; i < 2; i++, scratch += cached_head_bytes(c))
        cached_gather(c, r, i, g, scratch, &one.in[CACHED_K + i]);
    struct attn x = attn_of_cached(&one, w->o, r->past + r->n, r->both, scratch);
    attn_fwd_unit(&x, 0, g, 0, 1, scratch + x.tables);
}

static void cached_same_member(void *arg, int member, int n_members)
{
    struct cached_same *w = arg;
    int64_t groups = at_attention(&w->c->at)->kv_heads, units = w->c->in[CACHED_RUNS].n[0] * groups;
    (void)n_members;
    w->o->begin();
    for (int64_t u; (u = atomic_fetch_add(&w->next, 1)) < units;) {
        struct cache_run r = cache_run_of(w->c, u / groups);
        if (r.n) cached_same_unit(w, &r, u % groups, (char *)w->c->scratch + (size_t)member * w->each);
    }
    w->o->end();
}

static size_t cached_same_scratch(const struct kernel_call *c, const struct tile_ops *o)
{
    int64_t places = cache_places(c);
    struct kernel_call one = *c;
    struct attn_fwd f;
    if (one.in[0].n[0] > places) one.in[0].n[0] = places;
    struct attn x = attn_of_cached(&one, o, places, false, NULL);
    return (2 * cached_head_bytes(c) + x.tables + attn_fwd_carve(&x, &f, NULL) + 63) / 64 * 64;
}

static void cached_same(const struct kernel_call *c, const struct tile_ops *o)
{
    struct cached_same w = {.c = c, .o = o, .each = cached_same_scratch(c, o)};
    cache_runs_check(c);
    cached_clear_rest(c);
    atomic_init(&w.next, 0);
    team_run(kernel_team(c), cached_same_member, &w);
}

static void attention_cached(const struct kernel_call *c, const struct tile_ops *o)
{
    if (at_attention(&c->at)->same_rows) {
        cached_same(c, o);
        return;
    }
    cached_few(c);
    for (int64_t s = 0; s < c->in[CACHED_RUNS].n[0]; s++) {
        struct cache_run r = cache_run_of(c, s);
        if (r.n > ATTN_FEW) cached_long(c, &r, o);
    }
}

/* How long sequences are is data: memory for the longest. */
static size_t cached_few_scratch(const struct kernel_call *c, int n_threads)
{
    return (size_t)(cache_places(c) * n_threads) * sizeof(float);
}
static size_t attention_cached_scratch(const struct kernel_call *c, const struct tile_ops *o, int n_threads)
{
    int64_t places = cache_places(c);
    struct kernel_call one = *c;
    if (at_attention(&c->at)->same_rows) return cached_same_scratch(c, o) * (size_t)n_threads;
    if (one.in[0].n[0] > places) one.in[0].n[0] = places;
    struct attn x = attn_of_cached(&one, o, places, false, NULL);
    struct attn_fwd f;
    size_t few = cached_few_scratch(c, n_threads),
           all = cached_copy_bytes(c) + x.tables + attn_fwd_carve(&x, &f, NULL) * (size_t)n_threads;
    return few > all ? few : all;
}

#endif
