/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures cut into patches, and what stands for a whole picture, plainly. Unfolding makes a matrix of the pixels, so
 * that the convolution with a step as wide as its window is one product (Dosovitskiy et al. 2021, "An image is worth
 * 16x16 words", equation 1). Rejected: a convolution as an operation of its own (the same product, once more in every
 * family and recipe). */
#include "kernel/pictures.h"
#include "kernel/ref/ref.h"

static void patches_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct patches_attrs *a = at_patches(&c->at);
    struct picture_place p = picture_place_of(&a->at, t);
    int64_t P = a->patch;
    (void)mine;
    ((int32_t *)c->out[1].p)[t] = (int32_t)p.place;
    ((int32_t *)c->out[2].p)[t] = p.place > 0;
    for (int64_t ch = 0; ch < a->channels; ch++)
        for (int64_t y = 0; y < P; y++) {
            int64_t from = p.place ? picture_pixel(a, p.place - 1, ch, y) : 0, to = (ch * P + y) * P;
            for (int64_t x = 0; x < P; x++)
                ref_set(&c->out[0], t, to + x, p.place ? ref_get(&c->in[0], p.picture, from + x) : 0);
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
