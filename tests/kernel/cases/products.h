/* SPDX-License-Identifier: Apache-2.0 */
/* products.h: random cases of products whose matrices are kept as codes, and of those that have adapters. */
#ifndef TUTTI_TESTS_KERNEL_CASES_PRODUCTS_H
#define TUTTI_TESTS_KERNEL_CASES_PRODUCTS_H

#include "kernel/cases/case.h"

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

#endif
