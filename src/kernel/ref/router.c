/* SPDX-License-Identifier: Apache-2.0 */
/* The router and its losses, plainly. Scores of a token in double; choice by repeated search for the largest, k E steps
 * per token. The losses are sums over trained tokens (kernel/attrs.h); what a sequence's tokens share, their picks per
 * expert, comes as an input, because it may have been summed over ranks.
 *
 * Gradients. With w the gradient that arrives at the scores: softmax gives dx = p (w - <w, p>), the logistic function
 * w s (1 - s). Gates scaled to sum 1 pass g / S - <g, s> / S^2 to the chosen scores. The share f of an expert is a
 * count and has none (Fedus et al. 2021, section 2.2), so the balance loss of a token is linear in its scores'
 * shares. */
#include <math.h>

#include "kernel/ref/ref.h"

static int32_t target_of(const struct kernel_call *c, int i, int64_t t) { return ref_int(&c->in[i], t); }

static double lse_of(const struct view *logits, int64_t t)
{
    double max = -INFINITY, sum = 0;
    for (int64_t e = 0; e < logits->n[1]; e++) max = fmax(max, ref_get(logits, t, e));
    for (int64_t e = 0; e < logits->n[1]; e++) sum += exp(ref_get(logits, t, e) - max);
    return max + log(sum);
}

static void scores_of(const struct kernel_call *c, enum moe_score score, int64_t t, double *s_E)
{
    const struct view *x = &c->in[0];
    double lse = score == SCORE_SOFTMAX ? lse_of(x, t) : 0;
    for (int64_t e = 0; e < x->n[1]; e++)
        s_E[e] = score == SCORE_SOFTMAX ? exp(ref_get(x, t, e) - lse) : 1 / (1 + exp(-ref_get(x, t, e)));
}

/* dx of the token from w_E, the gradient at its scores. */
static void scores_backward(const struct kernel_call *c, enum moe_score score, int64_t t, const double *s_E,
                            const double *w_E, double scale)
{
    int64_t n = c->in[0].n[1];
    double mean = 0;
    for (int64_t e = 0; e < n; e++) mean += w_E[e] * s_E[e];
    for (int64_t e = 0; e < n; e++) {
        double d = score == SCORE_SOFTMAX ? s_E[e] * (w_E[e] - mean) : w_E[e] * s_E[e] * (1 - s_E[e]);
        ref_put_grad(c, 0, t, e, scale * d);
    }
}

/* ---- choice ---- */
static int64_t largest(const double *v, int64_t from, int64_t end)
{
    int64_t best = from;
    for (int64_t e = from + 1; e < end; e++)
        if (v[e] > v[best]) best = e;
    return best;
}

/* Experts outside of the best groups go out of the choice. */
static void keep_groups(const struct router_attrs *m, double *choice_E)
{
    enum { MAX_GROUPS = 256 };
    double of[MAX_GROUPS];
    CHECK(m->groups <= MAX_GROUPS, "%d groups of experts", m->groups);
    int64_t each = m->experts / m->groups;
    for (int g = 0; g < m->groups; g++) {
        int64_t first = g * each, best = largest(choice_E, first, first + each);
        double top = choice_E[best];
        if (m->group_pairs) {
            choice_E[best] = -INFINITY;
            double second = choice_E[largest(choice_E, first, first + each)];
            choice_E[best] = top;
            top += second;
        }
        of[g] = top;
    }
    for (int out = m->groups - m->top_groups; out > 0; out--) {
        int worst = -1; /* of equal ones the last goes */
        for (int g = 0; g < m->groups; g++)
            if (of[g] != -INFINITY && (worst < 0 || of[g] <= of[worst])) worst = g;
        if (worst < 0) return;
        of[worst] = -INFINITY;
        for (int64_t e = worst * each; e < (worst + 1) * each; e++) choice_E[e] = -INFINITY;
    }
}

static void router_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct router_attrs *m = at_router(&c->at);
    double *s_E = mine, *choice_E = mine + m->experts, sum = 0;
    int32_t *pick_k = (int32_t *)c->out[1].p + t * c->out[1].stride;
    scores_of(c, m->score, t, s_E);
    for (int64_t e = 0; e < m->experts; e++) choice_E[e] = s_E[e] + (c->n_in > 1 ? ref_get(&c->in[1], 0, e) : 0);
    if (m->groups > 1) keep_groups(m, choice_E);
    for (int j = 0; j < m->top_k; j++) {
        int64_t e = largest(choice_E, 0, m->experts);
        for (int i = 0; i < j; i++) /* only where NaN or -inf is all that is left */
            if (pick_k[i] == e) e = (e + 1) % m->experts, i = -1;
        pick_k[j] = (int32_t)e;
        choice_E[e] = -INFINITY;
        sum += s_E[e];
    }
    double scale = m->gate_scale / (m->norm_topk ? sum + 1e-20 : 1);
    for (int j = 0; j < m->top_k; j++) ref_set(&c->out[0], t, j, scale * s_E[pick_k[j]]);
}

void router_fwd_ref(const struct kernel_call *c)
{
    ref_each_row(c, c->in[0].n[0], 2 * (int64_t)at_router(&c->at)->experts, router_row);
}

static void router_bwd_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct router_attrs *m = at_router(&c->at);
    double *s_E = mine, *w_E = mine + m->experts, sum = 1e-20, dot = 0;
    const int32_t *pick_k = (const int32_t *)c->out[1].p + t * c->out[1].stride;
    scores_of(c, m->score, t, s_E);
    for (int64_t e = 0; e < m->experts; e++) w_E[e] = 0;
    for (int j = 0; j < m->top_k; j++) {
        sum += s_E[pick_k[j]];
        dot += ref_get(&c->dout[0], t, j) * s_E[pick_k[j]];
    }
    for (int j = 0; j < m->top_k; j++) {
        double g = ref_get(&c->dout[0], t, j);
        w_E[pick_k[j]] = m->norm_topk ? (g - dot / sum) / sum : g;
    }
    scores_backward(c, m->score, t, s_E, w_E, m->gate_scale);
}

void router_bwd_in_ref(const struct kernel_call *c)
{
    ref_each_row(c, c->in[0].n[0], 2 * (int64_t)at_router(&c->at)->experts, router_bwd_row);
}

size_t router_scratch_ref(const struct kernel_call *c, int n_threads)
{
    size_t tokens = c->op == OP_BALANCE && c->phase == KERNEL_FWD ? 2 * (size_t)c->in[0].n[0] * sizeof(double) : 0;
    int64_t experts = c->op == OP_BALANCE ? at_balance(&c->at)->experts : at_router(&c->at)->experts;
    return ref_scratch(2 * experts, n_threads) + tokens;
}

/* ---- load ---- */
static int64_t sequence_of(const struct tokens_at *at, int64_t t) { return (at->first + t) / at->seq; }

/* Counts are whole numbers below 2^24, exact in fp32 in any order. One thread: k additions per token. */
void load_fwd_ref(const struct kernel_call *c)
{
    const struct load_attrs *at = at_load(&c->at);
    const struct view *load = &c->out[0];
    int64_t experts = at->experts;
    for (int64_t s = 0; s < load->n[0]; s++)
        for (int64_t e = 0; e <= experts; e++) ref_set(load, s, e, 0);
    for (int64_t t = 0; t < c->in[0].n[0]; t++) {
        if (target_of(c, 1, t) < 0) continue;
        float *row = (float *)load->p + sequence_of(&at->tokens, t) * load->stride;
        const int32_t *pick_k = (const int32_t *)c->in[0].p + t * c->in[0].stride;
        for (int j = 0; j < at->top_k; j++) row[pick_k[j]] += 1;
        row[experts] += 1;
    }
}

/* ---- losses ---- */
/* What the balance loss multiplies the token's shares of score with: aux E/k f_se / n_s. */
static void weights_of(const struct kernel_call *c, int64_t t, double *w_E)
{
    const struct balance_attrs *m = at_balance(&c->at);
    int64_t s = sequence_of(&m->tokens, t);
    double n = ref_get(&c->in[3], s, m->experts);
    for (int64_t e = 0; e < m->experts; e++)
        w_E[e] = n > 0 ? (double)m->aux * m->experts / m->top_k * ref_get(&c->in[3], s, e) / n : 0;
}

static double sum_of(int64_t n, const double *s_E)
{
    double sum = 1e-20;
    for (int64_t e = 0; e < n; e++) sum += s_E[e];
    return sum;
}

static double *tokens_of(const struct kernel_call *c)
{
    return (double *)c->scratch + (c->scratch_bytes / sizeof(double) - 2 * (size_t)c->in[0].n[0]);
}

static void balance_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct balance_attrs *at = at_balance(&c->at);
    int64_t n = at->experts;
    double *s_E = mine, *w_E = mine + n, *of = tokens_of(c) + 2 * t, lse = lse_of(&c->in[0], t);
    of[0] = of[1] = 0;
    if (target_of(c, 2, t) < 0) return;
    scores_of(c, at->score, t, s_E);
    weights_of(c, t, w_E);
    for (int64_t e = 0; e < n; e++) of[0] += w_E[e] * s_E[e];
    of[0] /= sum_of(n, s_E);
    of[1] = (double)at->z * lse * lse;
}

void balance_fwd_ref(const struct kernel_call *c)
{
    const struct balance_attrs *at = at_balance(&c->at);
    double *stat = c->out[0].p;
    ref_each_row(c, c->in[0].n[0], 2 * (int64_t)at->experts, balance_row);
    for (int64_t t = 0; t < c->in[0].n[0]; t++) {
        if (target_of(c, 2, t) < 0) continue;
        const int32_t *pick_k = (const int32_t *)c->in[1].p + t * c->in[1].stride;
        stat[0] += tokens_of(c)[2 * t];
        stat[1] += tokens_of(c)[2 * t + 1];
        for (int j = 0; j < at->top_k; j++) stat[2 + pick_k[j]] += 1;
    }
}

static void balance_bwd_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct balance_attrs *at = at_balance(&c->at);
    int64_t n = at->experts;
    double *s_E = mine, *w_E = mine + n, scale = (double)c->step->loss_scale, dot = 0;
    if (target_of(c, 2, t) < 0) {
        for (int64_t e = 0; e < n; e++) ref_put_grad(c, 0, t, e, 0);
        return;
    }
    double lse = lse_of(&c->in[0], t);
    scores_of(c, at->score, t, s_E);
    weights_of(c, t, w_E);
    double sum = sum_of(n, s_E);
    for (int64_t e = 0; e < n; e++) dot += w_E[e] * s_E[e] / sum;
    double mean = 0; /* through the softmax; the logistic function has a slope of its own per expert */
    for (int64_t e = 0; e < n; e++) mean += (w_E[e] - dot) / sum * s_E[e];
    for (int64_t e = 0; e < n; e++) {
        double w = (w_E[e] - dot) / sum, z = 2 * (double)at->z * lse * exp(ref_get(&c->in[0], t, e) - lse);
        double d = at->score == SCORE_SOFTMAX ? s_E[e] * (w - mean) : w * s_E[e] * (1 - s_E[e]);
        ref_put_grad(c, 0, t, e, scale * (d + z));
    }
}

void balance_bwd_in_ref(const struct kernel_call *c)
{
    ref_each_row(c, c->in[0].n[0], 2 * (int64_t)at_balance(&c->at)->experts, balance_bwd_row);
}
