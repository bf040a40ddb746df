/* SPDX-License-Identifier: Apache-2.0 */
/* codec_spec.h: what arrives of numbers that travel encoded (layout/codec.h), from the values that a format has and not
 * from its bits: for tests to compare with. */
#ifndef TUTTI_TESTS_KERNEL_CODEC_SPEC_H
#define TUTTI_TESTS_KERNEL_CODEC_SPEC_H

#include <math.h>
#include <stdbool.h>

#include "layout/codec.h"

/* The largest value, and the step between values at a size of at most that. */
static const struct codec_spec {
    double max, least_step;
    int digits; /* bits of a number, the first included; 0: steps are all alike */
} codec_specs[CODEC_N] = {
    [CODEC_FP8] = {448, 0x1p-9, 4},
    [CODEC_FP8_E5M2] = {57344, 0x1p-16, 3},
    [CODEC_INT8] = {127.0 / 64, 1.0 / 64, 0},
};

static inline double codec_nearest(double x, const struct codec_spec *s)
{
    int power;
    double step = s->least_step;
    frexp(x, &power);
    if (s->digits && ldexp(1, power - s->digits) > step) step = ldexp(1, power - s->digits);
    double y = rint(x / step) * step; /* to even */
    return fabs(y) > s->max ? copysign(s->max, y) : y;
}

/* What arrives of x[rows][cols] whose first column is number `first` of the whole. */
static inline void codec_defined(enum codec c, const float *x, const struct codec_rows *r, float *out)
{
    for (int64_t y = 0; y < r->rows; y++)
        for (int64_t from = 0, n; from < r->cols; from += n) {
            n = 32 - (r->first + from) % 32;
            if (n > r->cols - from) n = r->cols - from;
            const float *at = x + y * r->cols + from;
            float *to = out + y * r->cols + from;
            double most = 0, scale = 0x1p-126;
            bool finite = true;
            for (int64_t i = 0; i < n; i++) {
                most = fmax(most, fabs((double)at[i]));
                finite &= isfinite(at[i]) != 0;
            }
            while (finite && most > codec_specs[c].max * scale && scale < 0x1p127) scale *= 2;
            for (int64_t i = 0; i < n; i++)
                to[i] = c == CODEC_KEPT   ? at[i]
                        : c == CODEC_BF16 ? bf16_to_f32(bf16_from_f32(at[i]))
                        : !finite         ? NAN
                                          : (float)(codec_nearest((double)at[i] / scale, &codec_specs[c]) * scale);
        }
}

#endif
