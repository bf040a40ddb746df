/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures cut into patches, and what stands for a whole picture, plainly. Unfolding makes a matrix of the pixels, so
 * that the convolution with a step as wide as its window is one product (Dosovitskiy et al. 2021, "An image is worth
 * 16x16 words", equation 1). Rejected: a convolution as an operation of its own (the same product, once more in every
 * family and recipe). */
#include "kernel/pictures.h"

#include <string.h>

#include "kernel/ref/ref.h"

static void patches_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct patches_attrs *a = at_patches(&c->at);
    struct picture_place p = picture_place_of(&a->at, t);
    int64_t P = a->patch, i = p.place - patches_lead(a); /* -1: the place of the class */
    (void)mine;
    ((int32_t *)c->out[1].p)[t] = (int32_t)p.place;
    ((int32_t *)c->out[2].p)[t] = i >= 0;
    for (int64_t ch = 0; ch < a->channels; ch++)
        for (int64_t y = 0; y < P; y++) {
            int64_t from = i >= 0 ? picture_pixel(a, i, ch, y) : 0, to = (ch * P + y) * P;
            for (int64_t x = 0; x < P; x++)
                ref_set(&c->out[0], t, to + x, i >= 0 ? ref_get(&c->in[0], p.picture, from + x) : 0);
        }
}

void patches_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, patches_row); }

/* One picture: its rows lie one after the other. */
static void pool_row(const struct kernel_call *c, int64_t b, double *mine)
{
    const struct pool_attrs *a = at_pool(&c->at);
    int64_t each = picture_rows_each(&a->at), lo = b * each - a->at.first, hi = lo + each;
    (void)mine;
    if (lo < 0) lo = 0;
    if (hi > a->at.rows) hi = a->at.rows;
    for (int64_t d = 0; d < c->out[0].n[1]; d++) {
        double sum = 0;
        for (int64_t t = lo; t < hi; t++) {
            double share = pool_share(a, picture_place_of(&a->at, t).place);
            if (share > 0) sum += share * ref_get(&c->in[0], t, d);
        }
        ref_set(&c->out[0], b, d, sum);
    }
}

void pool_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, pool_row); }

static void pool_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct pool_attrs *a = at_pool(&c->at);
    struct picture_place p = picture_place_of(&a->at, t);
    double share = pool_share(a, p.place);
    (void)mine;
    for (int64_t d = 0; d < c->dout[0].n[1]; d++)
        ref_put_grad(c, 0, t, d, share > 0 ? share * ref_get(&c->dout[0], p.picture, d) : 0);
}

void pool_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->din[0].n[0], 0, pool_dx_row); }

/* The row of `rows` that replaces row t; -1: none does. */
static int64_t insert_of(const struct kernel_call *c, int64_t t)
{
    const struct picture_rows *a = &at_insert(&c->at)->at;
    int64_t each = c->in[2].n[0] / a->batch, at = ref_int(&c->in[1], t);
    CHECK(at < each, "row %lld is to become row %lld of %lld", (long long)t, (long long)at, (long long)each);
    return at < 0 ? -1 : picture_place_of(a, t).picture * each + at;
}

static void insert_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct view *to = &c->out[0];
    int64_t r = insert_of(c, t);
    const struct view *from = &c->in[r < 0 ? 0 : 2];
    size_t one = dtype_bytes(to->dtype);
    (void)mine;
    memcpy((char *)to->p + (size_t)(t * to->stride) * one,
           (const char *)from->p + (size_t)((r < 0 ? t : r) * from->stride) * one, (size_t)to->n[1] * one);
}

void insert_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, insert_row); }

static void insert_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    bool stays = insert_of(c, t) < 0;
    (void)mine;
    for (int64_t d = 0; d < c->dout[0].n[1]; d++) ref_put_grad(c, 0, t, d, stays ? ref_get(&c->dout[0], t, d) : 0);
}

/* The rows of one sequence: those that replace nothing here have no gradient. */
static void insert_drows(const struct kernel_call *c, int64_t sequence, double *mine)
{
    const struct picture_rows *a = &at_insert(&c->at)->at;
    int64_t each = c->in[2].n[0] / a->batch, here = picture_rows_each(a), lo = sequence * here - a->first,
            hi = lo + here;
    (void)mine;
    if (lo < 0) lo = 0;
    if (hi > a->rows) hi = a->rows;
    for (int64_t r = sequence * each; r < (sequence + 1) * each; r++)
        for (int64_t d = 0; d < c->dout[0].n[1]; d++) ref_put_grad(c, 2, r, d, 0);
    for (int64_t t = lo; t < hi; t++) {
        int64_t r = insert_of(c, t);
        for (int64_t d = 0; r >= 0 && d < c->dout[0].n[1]; d++)
            ref_set(&c->din[2], r, d, ref_get(&c->din[2], r, d) + ref_get(&c->dout[0], t, d));
    }
}

void insert_bwd_in_ref(const struct kernel_call *c)
{
    if (c->din[0].p) ref_each_row(c, c->din[0].n[0], 0, insert_dx_row);
    if (c->din[2].p) ref_each_row(c, at_insert(&c->at)->at.batch, 0, insert_drows);
}
