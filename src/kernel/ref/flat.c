/* SPDX-License-Identifier: Apache-2.0 */
/* The flat operations written out plainly: what optimizer updates, gradient norms and casts mean, to the bit.
 *
 * Every product that is added to something is an explicit fused multiply-add, and nothing else may be contracted,
 * so a vectorised family that uses the same fused operations gives the same bits. Divisions and square roots are
 * exact by IEEE 754. Cost: one pass over the arrays. The team is left unused: this is the specification. */
#include <math.h>
#include <stdlib.h>

#include "kernel/flat_ops.h"
#include "kernel/update.h"
#include "layout/format.h"

static double load(const void *p, enum dtype t, int64_t i)
{
    switch (t) {
    case DT_F32: return ((const float *)p)[i];
    case DT_BF16: return bf16_to_f32(((const bf16 *)p)[i]);
    case DT_F16: return f16_to_f32(((const uint16_t *)p)[i]);
    case DT_F64: return ((const double *)p)[i];
    case DT_I32: return ((const int32_t *)p)[i];
    case DT_I64: return (double)((const int64_t *)p)[i];
    case DT_U8: return ((const uint8_t *)p)[i];
    case DT_U16: return ((const uint16_t *)p)[i];
    case DT_N: break;
    }
    CHECK(0, "element type %d", (int)t);
}

/* To 16 bits from the double itself: by way of a float it would be rounded twice. */
static bf16 narrow_bf16(double v)
{
    return (double)(float)v == v ? bf16_from_f32((float)v) : (bf16)format_encode(FORMAT_BF16, v, false);
}
static uint16_t narrow_f16(double v)
{
    return (double)(float)v == v ? f16_from_f32((float)v) : (uint16_t)format_encode(FORMAT_F16, v, false);
}
static void store(void *p, enum dtype t, int64_t i, double v)
{
    switch (t) {
    case DT_F32: ((float *)p)[i] = (float)v; return;
    case DT_BF16: ((bf16 *)p)[i] = narrow_bf16(v); return;
    case DT_F16: ((uint16_t *)p)[i] = narrow_f16(v); return;
    case DT_F64: ((double *)p)[i] = v; return;
    case DT_I32: ((int32_t *)p)[i] = (int32_t)v; return;
    case DT_I64: ((int64_t *)p)[i] = (int64_t)v; return;
    case DT_U8: ((uint8_t *)p)[i] = (uint8_t)v; return;
    case DT_U16: ((uint16_t *)p)[i] = (uint16_t)v; return;
    case DT_N: break;
    }
    CHECK(0, "element type %d", (int)t);
}

static void adamw_ref(struct team *team, const struct adamw_args *a)
{
    (void)team;
    struct adamw_factors f = adamw_factors(a);
    for (int64_t i = 0; i < a->n; i++) {
        float g = a->grad[i] * a->grad_scale;
        a->m[i] = fmaf(a->beta1, a->m[i], f.new1 * g);
        a->v[i] = fmaf(a->beta2, a->v[i], f.new2 * g * g);
        float root = fmaf(sqrtf(a->v[i]), f.root_scale, a->eps);
        float p = fmaf(f.decay, a->master[i], a->master[i]);
        a->master[i] = fmaf(f.step, a->m[i] / root, p);
    }
    if (a->param && a->param != a->master) flat_ops_ref.cast(team, a->param, a->param_dtype, a->master, DT_F32, a->n);
}

static void sgd_ref(struct team *team, const struct sgd_args *a)
{
    (void)team;
    for (int64_t i = 0; i < a->n; i++) {
        float g = fmaf(a->weight_decay, a->master[i], a->grad[i] * a->grad_scale);
        if (a->m) {
            a->m[i] = fmaf(a->momentum, a->m[i], g);
            g = a->nesterov ? fmaf(a->momentum, a->m[i], g) : a->m[i];
        }
        a->master[i] = fmaf(-a->lr, g, a->master[i]);
    }
    if (a->param && a->param != a->master) flat_ops_ref.cast(team, a->param, a->param_dtype, a->master, DT_F32, a->n);
}

static void sum_squares_ref(struct team *team, const float *x, int64_t n, double *sum)
{
    (void)team;
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += FLAT_BLOCK) {
        int64_t end = begin + FLAT_BLOCK < n ? begin + FLAT_BLOCK : n;
        double lane[FLAT_LANES] = {0};
        for (int64_t i = begin; i < end; i++) lane[(i - begin) % FLAT_LANES] += (double)x[i] * x[i];
        total += flat_fold(lane);
    }
    *sum += total;
}

static int64_t find_nonfinite_ref(struct team *team, const void *x, enum dtype dtype, int64_t n)
{
    (void)team;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(load(x, dtype, i))) return i;
    return -1;
}

static void cast_ref(struct team *team, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n)
{
    (void)team;
    for (int64_t i = 0; i < n; i++) store(dst, to, i, load(src, from, i));
}

/* ---- sums of gradients ---- */
static void sum_into_ref(struct team *team, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add)
{
    (void)team;
    flat_sum_check(t, f);
    for (int64_t i = 0; i < n; i++) {
        float v = (float)load(from, f, i);
        store(to, t, i, (double)(add ? (float)load(to, t, i) + v : v));
    }
}

static float tree_of(const float *part, int n_parts, int64_t n)
{
    if (n_parts == 1) return *part;
    return tree_of(part, n_parts / 2, n) + tree_of(part + n_parts / 2 * n, n_parts / 2, n);
}

static void sum_tree_ref(struct team *team, float *to, const float *part, int n_parts, int64_t n)
{
    (void)team;
    flat_tree_check(n_parts);
    for (int64_t i = 0; i < n; i++) to[i] = tree_of(part + i, n_parts, n);
}

static void sum_parts_ref(struct team *team, void *to, enum dtype t, const void *part, int n_parts, int64_t n)
{
    (void)team;
    for (int64_t i = 0; i < n; i++) {
        float sum = (float)load(part, t, i);
        for (int p = 1; p < n_parts; p++) sum += (float)load(part, t, p * n + i);
        store(to, t, i, (double)sum);
    }
}

static void squares_ref(struct team *team, const float *x, int64_t n, int64_t word[FLAT_SQUARES_WORDS])
{
    (void)team;
    for (int64_t i = 0; i < n; i++) {
        uint64_t m;
        uint32_t e = flat_square(x[i], &m);
        word[2 * e] += (int64_t)(m & 0xffffffff);
        word[2 * e + 1] += (int64_t)(m >> 32);
    }
}

const struct flat_ops flat_ops_ref = {"ref",     adamw_ref,    sgd_ref,      sum_squares_ref, find_nonfinite_ref,
                                      cast_ref,  sum_into_ref, sum_tree_ref, sum_parts_ref,   squares_ref,
                                      update_ref};
