/* SPDX-License-Identifier: Apache-2.0 */
/* AMAX and QUANTISE an element at a time, by the scales of quantise.h and the conversions of layout/format.h.
 *
 * A rotated group is worked out again for each of its elements; one thread does it all: this is the specification. */
#include "kernel/quantise.h"
#include "kernel/ref/ref.h"

/* Element (r, c), rotated where it has its whole group. */
static float element(const struct view *x, const struct rotate_attrs *rotate, uint32_t signs, int64_t r, int64_t c)
{
    int64_t at = rotate->along == ALONG_ROWS ? r : c, n = x->n[rotate->along == ALONG_ROWS ? 0 : 1];
    int64_t first = at / ROTATE_GROUP * ROTATE_GROUP;
    if (rotate->along == ROTATE_NOT || first + ROTATE_GROUP > n) return (float)ref_get(x, r, c);
    float group[ROTATE_GROUP];
    for (int i = 0; i < ROTATE_GROUP; i++)
        group[i] = (float)(rotate->along == ALONG_ROWS ? ref_get(x, first + i, c) : ref_get(x, r, first + i));
    rotate_group(group, signs);
    return group[at - first];
}

static uint32_t signs_of(const struct kernel_call *c, const struct rotate_attrs *rotate)
{
    return rotate->along == ROTATE_NOT ? 0 : rotate_signs(rotate, c->step->seed);
}

void amax_ref(const struct kernel_call *c)
{
    const struct amax_attrs *at = at_amax(&c->at);
    const uint32_t signs = signs_of(c, &at->rotate);
    float *out = c->out[0].p, most = at->more ? *out : 0;
    for (int64_t r = 0; r < c->in[0].n[0]; r++)
        for (int64_t k = 0; k < c->in[0].n[1]; k++)
            most = amax_of(most, fabsf(element(&c->in[0], &at->rotate, signs, r, k)));
    *out = most;
}

struct quantise_ref {
    const struct kernel_call *c;
    const struct quantise_attrs *at;
    uint32_t signs;
    struct quantise_rule rule;
};

/* Element (r, k), of a block with scale s. */
static void quantise_one(const struct quantise_ref *w, struct block_scale s, int64_t r, int64_t k)
{
    const struct kernel_call *c = w->c;
    const struct quantise_attrs *at = w->at;
    float v = element(&c->in[0], &at->rotate, w->signs, r, k), y = v * s.up;
    if (!(fabsf(v) < INFINITY) || isnan(s.up)) {
        ref_set(&c->out[0], r, k, (double)NAN);
        return;
    }
    uint32_t code;
    if (at->chance) {
        int64_t row = c->n_in > 2 && c->in[2].p ? ref_int(&c->in[2], r) : r;
        uint64_t index = quantise_index(at, c->step->first_token, c->in[0].n[1], row) + (uint64_t)k;
        uint32_t word = rng_u32(c->step->seed, rng_stream_at(at->stream, c->step->step), index);
        code = format_encode_random(at->format, (double)y, true, word);
    } else code = format_encode(at->format, (double)y, true);
    ref_set(&c->out[0], r, k, (double)(format_decode(at->format, code) * s.down));
}

/* Rows [r0, r1), columns [c0, c1): one block. */
static struct block_scale quantise_one_block(const struct quantise_ref *w, int64_t r0, int64_t r1, int64_t c0,
                                             int64_t c1)
{
    const struct quantise_attrs *at = w->at;
    struct block_scale s = w->rule.tensor;
    if (at->scaling != SCALING_TENSOR) {
        float most = 0;
        for (int64_t r = r0; r < r1; r++)
            for (int64_t k = c0; k < c1; k++)
                most = amax_of(most, fabsf(element(&w->c->in[0], &at->rotate, w->signs, r, k)));
        s = quantise_block(&w->rule, most);
    }
    for (int64_t r = r0; r < r1; r++)
        for (int64_t k = c0; k < c1; k++) quantise_one(w, s, r, k);
    return s;
}

/* The end of the block that begins here at i; there are n. */
static int64_t block_end(int64_t i, int64_t first, int64_t n, int each)
{
    int64_t end = i + each - (first + i) % each;
    return end < n ? end : n;
}

void quantise_ref(const struct kernel_call *c)
{
    const struct quantise_attrs *at = at_quantise(&c->at);
    struct quantise_ref w = {.c = c, .at = at, .signs = signs_of(c, &at->rotate)};
    const int64_t n_rows = c->in[0].n[0], n_cols = c->in[0].n[1];
    const bool by_tensor = at->scaling == SCALING_TENSOR || at->scaling == SCALING_NV;
    w.rule = quantise_rule(at, c->n_in > 1 ? c->in[1].p : NULL);
    if (by_tensor) *(float *)c->out[1].p = w.rule.tensor.descale;
    for (int64_t r = 0, r1, i = 0; r < n_rows; r = r1, i++) {
        r1 = at->scaling == SCALING_TENSOR ? n_rows : block_end(r, at->first_row, n_rows, at->rows);
        for (int64_t k = 0, k1, j = 0; k < n_cols; k = k1, j++) {
            k1 = at->scaling == SCALING_TENSOR ? n_cols : block_end(k, at->first_col, n_cols, at->cols);
            struct block_scale s = quantise_one_block(&w, r, r1, k, k1);
            if (c->out[1].nd && !by_tensor) ref_set(&c->out[1], i, j, (double)s.descale);
        }
    }
}
