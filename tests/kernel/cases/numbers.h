/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.h: elements of tensors, of any dtype and with gaps between rows: read, written, filled, compared. */
#ifndef TUTTI_TESTS_KERNEL_CASES_NUMBERS_H
#define TUTTI_TESTS_KERNEL_CASES_NUMBERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/kernel.h"

static inline double view_get(const struct view *v, int64_t r, int64_t c)
{
    int64_t i = r * v->stride + c;
    switch (v->dtype) {
    case DT_F32: return ((const float *)v->p)[i];
    case DT_BF16: return bf16_to_f32(((const bf16 *)v->p)[i]);
    case DT_F16: return f16_to_f32(((const uint16_t *)v->p)[i]);
    case DT_F64: return ((const double *)v->p)[i];
    case DT_I32: return ((const int32_t *)v->p)[i];
    default: fail_msg("no element of %s", dtype_name(v->dtype)); return 0;
    }
}

static inline void view_set(const struct view *v, int64_t r, int64_t c, double x)
{
    int64_t i = r * v->stride + c;
    switch (v->dtype) {
    case DT_F32: ((float *)v->p)[i] = (float)x; break;
    case DT_BF16: ((bf16 *)v->p)[i] = bf16_from_f32((float)x); break;
    case DT_F16: ((uint16_t *)v->p)[i] = f16_from_f32((float)x); break;
    case DT_F64: ((double *)v->p)[i] = x; break;
    case DT_I32: ((int32_t *)v->p)[i] = (int32_t)x; break;
    default: fail_msg("no element of %s", dtype_name(v->dtype));
    }
}

static inline void view_fill(const struct view *v, uint64_t seed, uint64_t stream, double scale)
{
    int64_t n = view_cols(v);
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < n; c++)
            view_set(v, r, c, scale * (double)rng_normal(seed, stream, (uint64_t)(r * n + c)));
}

static inline void view_fill_zero(const struct view *v)
{
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < view_cols(v); c++) view_set(v, r, c, 0);
}

static inline void view_copy(const struct view *to, const struct view *from)
{
    for (int64_t r = 0; r < view_rows(from); r++)
        for (int64_t c = 0; c < view_cols(from); c++) view_set(to, r, c, view_get(from, r, c));
}

static inline double view_max(const struct view *v)
{
    double m = 0;
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < view_cols(v); c++) m = fmax(m, fabs(view_get(v, r, c)));
    return m;
}

/* The largest difference, as a part of the largest element of b; NaN counts as infinite. */
static inline double view_distance(const struct view *a, const struct view *b)
{
    double worst = 0, scale = fmax(view_max(b), 1e-30);
    for (int64_t r = 0; r < view_rows(b); r++)
        for (int64_t c = 0; c < view_cols(b); c++) {
            double d = fabs(view_get(a, r, c) - view_get(b, r, c));
            worst = isnan(d) ? INFINITY : fmax(worst, d);
        }
    return worst / scale;
}

static inline bool view_same_bits(const struct view *a, const struct view *b)
{
    for (int64_t r = 0; r < view_rows(b); r++)
        if (memcmp((const char *)a->p + (size_t)(r * a->stride) * dtype_bytes(a->dtype),
                   (const char *)b->p + (size_t)(r * b->stride) * dtype_bytes(b->dtype),
                   (size_t)view_cols(b) * dtype_bytes(b->dtype)) != 0)
            return false;
    return true;
}

static inline void view_check_gap(const struct view *v, const char *what)
{
    if (!v->p) return;
    size_t each = dtype_bytes(v->dtype);
    for (int64_t r = 0; r + 1 < view_rows(v); r++)
        for (size_t b = (size_t)view_cols(v) * each; b < (size_t)v->stride * each; b++)
            if (((const unsigned char *)v->p)[(size_t)(r * v->stride) * each + b] != 0xa5)
                fail_msg("%s: byte %zu after the end of row %lld was written", what, b, (long long)r);
}

#endif
