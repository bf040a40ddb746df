/* SPDX-License-Identifier: Apache-2.0 */
/* experts.h: random cases of routing, and of products with the experts that it chooses. */
#ifndef TUTTI_TESTS_KERNEL_CASES_EXPERTS_H
#define TUTTI_TESTS_KERNEL_CASES_EXPERTS_H

#include "kernel/cases/case.h"

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

#endif
