/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise updates in plain loops: what each means, to the bit. Lion: Chen et al. 2023, Algorithm 2. */
#include <math.h>

#include "kernel/update.h"

static float get(const struct update_args *a, int k, int64_t i)
{
    return a->at[k].t == DT_BF16 ? bf16_to_f32(((const bf16 *)a->at[k].p)[i]) : ((const float *)a->at[k].p)[i];
}

static void put(const struct update_args *a, int k, int64_t i, float v)
{
    if (a->at[k].t == DT_BF16) ((bf16 *)a->at[k].p)[i] = bf16_from_f32(v);
    else ((float *)a->at[k].p)[i] = v;
}

static float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f; }

static void lion(const struct update_args *a, int64_t i)
{
    const float *f = a->f;
    float g = get(a, LION_GRAD, i) * f[LION_SCALE], m = get(a, LION_M, i), p = get(a, LION_MASTER, i);
    float c = fmaf(f[LION_BETA1], m, (1 - f[LION_BETA1]) * g);
    put(a, LION_M, i, fmaf(f[LION_BETA2], m, (1 - f[LION_BETA2]) * g));
    put(a, LION_MASTER, i, fmaf(-f[LION_LR], sign(c), fmaf(f[LION_DECAY], p, p)));
}

static void momentum(const struct update_args *a, int64_t i)
{
    float g = get(a, MOMENTUM_GRAD, i) * a->f[MOMENTUM_SCALE];
    float m = fmaf(a->f[MOMENTUM_MU], get(a, MOMENTUM_M, i), g);
    put(a, MOMENTUM_M, i, m);
    put(a, MOMENTUM_U, i, a->flag ? fmaf(a->f[MOMENTUM_MU], m, g) : m);
}

static void unit(const struct update_args *a, int64_t i)
{
    float scale = (float)(1 / (sqrt(*(const double *)a->at[UNIT_SUM].p) + (double)a->f[UNIT_EPS]));
    put(a, UNIT_TO, i, get(a, UNIT_FROM, i) * scale);
}

static void blend(const struct update_args *a, int64_t i)
{
    put(a, BLEND_TO, i, fmaf(a->f[BLEND_A], get(a, BLEND_X, i), a->f[BLEND_B] * get(a, BLEND_Y, i)));
}

/* What is stepped by is not rounded yet: moments are when they are kept. */
static void adamw16(const struct update_args *a, int64_t i)
{
    const float *f = a->f;
    float g = get(a, ADAMW16_GRAD, i) * f[ADAMW16_SCALE], p = get(a, ADAMW16_MASTER, i);
    float m = fmaf(f[ADAMW16_BETA1], get(a, ADAMW16_M, i), (1 - f[ADAMW16_BETA1]) * g);
    float v = fmaf(f[ADAMW16_BETA2], get(a, ADAMW16_V, i), (1 - f[ADAMW16_BETA2]) * g * g);
    float root = fmaf(sqrtf(v), f[ADAMW16_ROOT], f[ADAMW16_EPS]);
    put(a, ADAMW16_M, i, m);
    put(a, ADAMW16_V, i, v);
    put(a, ADAMW16_MASTER, i, fmaf(f[ADAMW16_STEP], m / root, fmaf(f[ADAMW16_DECAY], p, p)));
}

static void apply(const struct update_args *a, int64_t i)
{
    float p = get(a, APPLY_MASTER, i);
    put(a, APPLY_MASTER, i, fmaf(a->f[APPLY_STEP], get(a, APPLY_O, i), fmaf(a->f[APPLY_DECAY], p, p)));
}

void update_ref(struct team *team, const struct update_args *a)
{
    static void (*const one[UPDATE_KINDS])(const struct update_args *, int64_t) = {
        [UPDATE_LION] = lion,   [UPDATE_MOMENTUM] = momentum, [UPDATE_UNIT] = unit,
        [UPDATE_BLEND] = blend, [UPDATE_ADAMW16] = adamw16,   [UPDATE_APPLY] = apply,
    };
    int copy = update_rows[a->kind].param;
    (void)team;
    for (int64_t i = 0; i < a->n; i++) one[a->kind](a, i);
    if (update_copy(a) != DT_N) flat_ops_ref.cast(team, a->at[copy].p, a->at[copy].t, a->at[0].p, DT_F32, a->n);
}
