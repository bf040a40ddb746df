/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h: random cases of rows that every model has: embeddings, products, norms, positions, activations, losses. */
#ifndef TUTTI_TESTS_KERNEL_CASES_LAYERS_H
#define TUTTI_TESTS_KERNEL_CASES_LAYERS_H

#include "kernel/cases/case.h"

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

#endif
