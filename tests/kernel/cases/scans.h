/* SPDX-License-Identifier: Apache-2.0 */
/* scans.h: random cases of rows along a sequence, whole, in pieces or over kept states: convolutions, scans, and what
 * pieces hand on. */
#ifndef TUTTI_TESTS_KERNEL_CASES_SCANS_H
#define TUTTI_TESTS_KERNEL_CASES_SCANS_H

#include "kernel/cache_runs.h"
#include "kernel/cases/case.h"
#include "kernel/pieces.h"

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

#endif
