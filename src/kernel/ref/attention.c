/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, plainly: o_i = sum_j drop(p_ij) v_j, p = softmax over the visible j of scale q_i.k_j, or of that under a
 * soft cap. A sink is one more score in the softmax, without a value.
 *
 * One row of scores at a time, so memory is S numbers per thread. Backward needs no row of scores: with the saved
 * lse_i, p_ij = exp(s_ij - lse_i), and with delta_i = do_i.o_i (which equals sum_j p_ij dp_ij)
 *
 *   dv_j += drop(p_ij) do_i        ds_ij = p_ij (drop'(do_i.v_j) - delta_i)
 *   dq_i += scale ds_ij k_j        dk_j += scale ds_ij q_i
 *
 * (Dao et al. 2022, section 3.1). dq is formed by query and dk, dv by key, each sum by one thread; the scores are
 * computed once for each. */
#include <math.h>

#include "kernel/attention_heads.h"
#include "kernel/cache_runs.h"
#include "kernel/dropout.h"
#include "kernel/ref/attention_rows.h"

enum { Q, K, VALUE, DOC, RUNS = DOC, CACHE_K, CACHE_V };

/* Does query i see key j? Both are places in one sequence; base is the sequence's first row. */
static bool sees(const struct kernel_call *c, int64_t base, int64_t i, int64_t j)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t di = attention_has_docs(c) ? ref_int(&c->in[DOC], base + i) : 0;
    int64_t dj = attention_has_docs(c) ? ref_int(&c->in[DOC], base + j) : 0;
    if (at->prefix) return (di >> 1) == (dj >> 1) && ((dj & 1) || (!(di & 1) && j <= i)); /* layout/document_ids.h */
    if (at->causal && j > i) return false;
    if (at->window && j <= i - at->window) return false;
    return di == dj;
}

static int64_t kv_column(const struct kernel_call *c, int64_t h)
{
    const struct attention_attrs *at = at_attention(&c->at);
    return attention_kv_of(at, h) * at->head_dim;
}

/* Turns n scores (-INFINITY: unseen) into probabilities, beside a score without a key (-INFINITY: none); returns the
 * log of the sum of their exponentials. */
static double softmax(double *s, int64_t n, double sink)
{
    double max = sink, sum;
    for (int64_t j = 0; j < n; j++) max = fmax(max, s[j]);
    sum = sink > -INFINITY ? exp(sink - max) : 0;
    for (int64_t j = 0; j < n; j++) sum += s[j] = exp(s[j] - max);
    for (int64_t j = 0; j < n; j++) s[j] /= sum;
    return max + log(sum);
}

static void attention_row(const struct kernel_call *c, int64_t t, double *p_S)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t n_s = at->seq, n_a = at->head_dim, b = t / n_s, i = t % n_s, base = b * n_s;
    for (int64_t h = 0; h < at->heads; h++) {
        int64_t kv = kv_column(c, h);
        for (int64_t j = 0; j < n_s; j++)
            p_S[j] = sees(c, base, i, j) ? ref_score(at, ref_dot(&c->in[Q], t, h * n_a, &c->in[K], base + j, kv, n_a)).y
                                         : -INFINITY;
        ref_set(&c->out[1], t, h, softmax(p_S, n_s, ref_sink(c, h)));
        for (int64_t j = 0; j < n_s; j++) p_S[j] *= p_S[j] > 0 ? ref_drop_factor(c, at, b, h, i, j) : 0;
        for (int64_t a = 0; a < n_a; a++) {
            double o = 0;
            for (int64_t j = 0; j < n_s; j++)
                if (p_S[j] > 0) o += p_S[j] * ref_get(&c->in[VALUE], base + j, kv + a);
            ref_set(&c->out[0], t, h * n_a + a, o);
        }
    }
}

void attention_fwd_ref(const struct kernel_call *c)
{
    const struct attention_attrs *at = at_attention(&c->at);
    ref_each_row(c, c->in[Q].n[0], at->seq, attention_row);
}

/* What one pair (query i, key j) of head h contributes. */
struct pair {
    double p_dropped; /* what multiplies do_i in dv_j */
    double ds;        /* gradient of q_i.k_j */
};

static struct pair pair_backward(const struct kernel_call *c, int64_t b, int64_t h, int64_t i, int64_t j, double delta)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t n_a = at->head_dim, ti = b * at->seq + i, tj = b * at->seq + j, kv = kv_column(c, h);
    double factor = ref_drop_factor(c, at, b, h, i, j);
    struct score s = ref_score(at, ref_dot(&c->in[Q], ti, h * n_a, &c->in[K], tj, kv, n_a));
    double p = exp(s.y - ref_get(&c->out[1], ti, h));
    double dp = factor * ref_dot(&c->dout[0], ti, h * n_a, &c->in[VALUE], tj, kv, n_a);
    return (struct pair){p * factor, s.slope * p * (dp - delta)};
}

static double delta_of(const struct kernel_call *c, int64_t t, int64_t h)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t n_a = at->head_dim;
    return ref_dot(&c->dout[0], t, h * n_a, &c->out[0], t, h * n_a, n_a);
}

static void attention_dq_row(const struct kernel_call *c, int64_t t, double *dq_A)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t n_s = at->seq, n_a = at->head_dim, b = t / n_s, i = t % n_s;
    for (int64_t h = 0; h < at->heads; h++) {
        int64_t kv = kv_column(c, h);
        double delta = delta_of(c, t, h);
        for (int64_t a = 0; a < n_a; a++) dq_A[a] = 0;
        for (int64_t j = 0; j < n_s; j++) {
            if (!sees(c, b * n_s, i, j)) continue;
            struct pair g = pair_backward(c, b, h, i, j, delta);
            for (int64_t a = 0; a < n_a; a++) dq_A[a] += g.ds * ref_get(&c->in[K], b * n_s + j, kv + a);
        }
        for (int64_t a = 0; a < n_a; a++) ref_put_grad(c, Q, t, h * n_a + a, dq_A[a]);
    }
}

static void attention_dkv_row(const struct kernel_call *c, int64_t t, double *dk_A)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t n_s = at->seq, n_a = at->head_dim, b = t / n_s, j = t % n_s;
    int64_t lo, hi;
    double *dv_A = dk_A + n_a;
    for (int64_t g = 0; g < at->kv_heads; g++) {
        for (int64_t a = 0; a < 2 * n_a; a++) dk_A[a] = 0;
        attention_heads_of(at, g, &lo, &hi);
        for (int64_t h = lo; h < hi; h++)
            for (int64_t i = 0; i < n_s; i++) {
                if (!sees(c, b * n_s, i, j)) continue;
                int64_t ti = b * n_s + i;
                struct pair x = pair_backward(c, b, h, i, j, delta_of(c, ti, h));
                for (int64_t a = 0; a < n_a; a++) {
                    dk_A[a] += x.ds * ref_get(&c->in[Q], ti, h * n_a + a);
                    dv_A[a] += x.p_dropped * ref_get(&c->dout[0], ti, h * n_a + a);
                }
            }
        for (int64_t a = 0; a < n_a; a++) {
            ref_put_grad(c, K, t, g * n_a + a, dk_A[a]);
            ref_put_grad(c, VALUE, t, g * n_a + a, dv_A[a]);
        }
    }
}

void attention_bwd_in_ref(const struct kernel_call *c)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t n_t = c->in[Q].n[0], n_a = at->head_dim;
    if (c->din[Q].p) ref_each_row(c, n_t, n_a, attention_dq_row);
    if (c->din[K].p || c->din[VALUE].p) ref_each_row(c, n_t, 2 * n_a, attention_dkv_row);
    ref_sinks_bwd(c);
}

/* A sink is a key whose value is 0: its score's gradient is its probability times (0 - delta). */
static void sink_row(const struct kernel_call *c, int64_t h, double *mine)
{
    (void)mine;
    int64_t n_a = at_heads(&c->at)->head_dim;
    double sum = 0;
    for (int64_t t = 0; t < c->in[Q].n[0]; t++)
        sum -= exp(ref_sink(c, h) - ref_get(&c->out[1], t, h)) *
               ref_dot(&c->dout[0], t, h * n_a, &c->out[0], t, h * n_a, n_a);
    ref_put_grad(c, ATTENTION_SINK, 0, h, sum);
}

void ref_sinks_bwd(const struct kernel_call *c)
{
    if (attention_sinks(c) && c->din[ATTENTION_SINK].p) ref_each_row(c, at_heads(&c->at)->heads, 0, sink_row);
}

/* ---- new tokens of several sequences against their caches ---- */

/* The run that row t is of, and the row's place in its sequence; -1: of none. */
static int64_t cached_place(const struct kernel_call *c, int64_t t, struct cache_run *r)
{
    for (int64_t s = 0; s < c->in[RUNS].n[0]; s++) {
        *r = cache_run_of(c, s);
        if (t >= r->first && t < r->first + r->n) return r->past + t - r->first;
    }
    return -1;
}

static void cache_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    struct cache_run r;
    int64_t place = cached_place(c, t, &r), to = place < 0 ? 0 : cache_row_of(&r, place);
    for (int64_t a = 0; place >= 0 && a < c->in[K].n[1]; a++) {
        ref_set(&c->in[CACHE_K], to, a, ref_get(&c->in[K], t, a));
        ref_set(&c->in[CACHE_V], to, a, ref_get(&c->in[VALUE], t, a));
    }
}

static void cached_query_row(const struct kernel_call *c, int64_t t, double *p_C)
{
    const struct attention_attrs *at = at_attention(&c->at);
    struct cache_run r;
    int64_t n_a = at->head_dim, place = cached_place(c, t, &r), end = place < 0 ? 0 : cache_run_end(&r, place - r.past);
    int64_t first = at->window && end > at->window ? end - at->window : 0;
    for (int64_t h = 0; h < at->heads; h++) {
        int64_t kv = kv_column(c, h);
        for (int64_t j = first; j < end; j++)
            p_C[j] = ref_score(at, ref_dot(&c->in[Q], t, h * n_a, &c->in[CACHE_K], cache_row_of(&r, j), kv, n_a)).y;
        if (end > first) softmax(p_C + first, end - first, ref_sink(c, h));
        for (int64_t a = 0; a < n_a; a++) {
            double o = 0;
            for (int64_t j = first; j < end; j++) o += p_C[j] * ref_get(&c->in[CACHE_V], cache_row_of(&r, j), kv + a);
            ref_set(&c->out[0], t, h * n_a + a, o);
        }
    }
}

void attention_cached_fwd_ref(const struct kernel_call *c)
{
    cache_runs_check(c);
    ref_each_row(c, c->in[Q].n[0], 0, cache_row);
    ref_each_row(c, c->in[Q].n[0], cache_places(c), cached_query_row);
}

/* A row of scores forward; dk and dv of one head backward. */
size_t attention_scratch_ref(const struct kernel_call *c, int n_threads)
{
    const struct attention_attrs *at = at_attention(&c->at);
    int64_t each = c->op == OP_ATTENTION_CACHED ? cache_places(c)
                   : c->phase == KERNEL_FWD     ? at->seq
                                                : 2 * (int64_t)at->head_dim;
    return ref_scratch(each, n_threads);
}
