/* SPDX-License-Identifier: Apache-2.0 */
/* By the field of the exponent in fp32, which holds all numbers of the three types; those that are subnormal there are
 * told apart by their highest bit. */
#include "kernel/exponent_bins.h"

#include <string.h>

#include "kernel/flat.h"

static float element(const struct view *v, int64_t at)
{
    if (v->dtype == DT_BF16) return bf16_to_f32(((const bf16 *)v->p)[at]);
    if (v->dtype == DT_F16) return f16_to_f32(((const uint16_t *)v->p)[at]);
    CHECK(v->dtype == DT_F32, "exponents of %s", dtype_name(v->dtype));
    return ((const float *)v->p)[at];
}

void exponents_count(const struct view *v, int64_t bins[EXPONENT_BINS])
{
    int64_t cols = view_cols(v);
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t k = 0; k < cols; k++) {
            float x = element(v, (v->nd > 1 ? r * v->stride : r * cols) + k);
            uint32_t u;
            memcpy(&u, &x, sizeof u);
            u &= 0x7fffffff;
            int field = (int)(u >> 23), bin = EXPONENT_FIRST + field - 127 - EXPONENT_LEAST;
            if (field == 255) bin = EXPONENT_NOT_FINITE;
            if (field == 0) bin = u ? EXPONENT_FIRST + 31 - __builtin_clz(u) : EXPONENT_ZERO;
            bins[bin]++;
        }
}

struct kernel_call exponents_call(const struct view *v, int64_t times, int64_t *bins)
{
    struct kernel_call c = {.op = OP_EXPONENTS, .phase = KERNEL_FWD, .n_in = 1, .n_out = 1, .in = {*v}};
    c.at = ATTRS(exponents, .times = times);
    c.out[0] = flat_view(bins, DT_I64, EXPONENT_BINS);
    return c;
}

void exponents_add(const struct kernel_call *c)
{
    int64_t bins[EXPONENT_BINS] = {0}, *to = c->out[0].p;
    exponents_count(&c->in[0], bins);
    for (int i = 0; i < EXPONENT_BINS; i++) to[i] += at_exponents(&c->at)->times * bins[i];
}
