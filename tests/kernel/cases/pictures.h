/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.h: random cases of rows over pictures, and of those that pick from a sequence. */
#ifndef TUTTI_TESTS_KERNEL_CASES_PICTURES_H
#define TUTTI_TESTS_KERNEL_CASES_PICTURES_H

#include "kernel/cases/case.h"
#include "kernel/pictures.h"

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

#endif
