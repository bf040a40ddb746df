/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise updates in plain loops: what each means, to the bit. Lion: Chen et al. 2023, Algorithm 2. */
#include <math.h>

#include "base/rng.h"
#include "kernel/factored.h"
#include "kernel/moments.h"
#include "kernel/update.h"
#include "layout/format.h"

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

/* ---- moments in blocks ---- */
struct codes { /* how moments are kept */
    struct moment_map m, v;
    bool fp8;
};

static float decode(const struct codes *c, const struct update_args *a, int k, int64_t i)
{
    if (k == ADAMW8_V && c->fp8) return f16_to_f32(((const uint16_t *)a->at[k].p)[i]);
    uint8_t code = ((const uint8_t *)a->at[k].p)[i];
    if (k == ADAMW8_V) return moment_decode_unsigned(&c->v, code);
    return c->fp8 ? format_decode(FORMAT_E4M3, code) : moment_decode_signed(&c->m, code);
}

static void encode(const struct codes *c, const struct update_args *a, int k, int64_t i, float y)
{
    float least = c->fp8 ? MOMENT_LEAST_F16 : moment_least(&c->v);
    if (k == ADAMW8_V && y > 0 && y < least) y = least;
    if (k == ADAMW8_V && c->fp8) ((uint16_t *)a->at[k].p)[i] = f16_from_f32(y);
    else if (k == ADAMW8_V) ((uint8_t *)a->at[k].p)[i] = moment_encode_unsigned(&c->v, y);
    else if (c->fp8) ((uint8_t *)a->at[k].p)[i] = (uint8_t)format_encode(FORMAT_E4M3, (double)y, true);
    else ((uint8_t *)a->at[k].p)[i] = moment_encode_signed(&c->m, y);
}

static void keep_moments(const struct codes *c, const struct update_args *a, int k, int64_t b, const float *x)
{
    int64_t n, at = update_block(a, b, &n);
    float largest = 0, range = !c->fp8 ? MOMENT_RANGE_MAP : k == ADAMW8_M ? MOMENT_RANGE_E4M3 : MOMENT_RANGE_F16;
    for (int64_t i = 0; i < n; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    struct moment_scale s = moment_scale_of(largest, range);
    for (int64_t i = 0; i < n; i++) encode(c, a, k, at + i, x[i] * s.inverse);
    ((float *)a->at[k == ADAMW8_M ? ADAMW8_M_SCALE : ADAMW8_V_SCALE].p)[b] = s.scale;
}

static void adamw8(const struct update_args *a)
{
    const float *f = a->f, *ms = a->at[ADAMW8_M_SCALE].p, *vs = a->at[ADAMW8_V_SCALE].p;
    struct codes c = {.fp8 = a->flag};
    float m[MOMENTS_BLOCK], v[MOMENTS_BLOCK];
    moment_map_init(&c.m, true);
    moment_map_init(&c.v, false);
    for (int64_t b = 0; b < update_n_blocks(a); b++) {
        int64_t n, at = update_block(a, b, &n);
        for (int64_t i = 0; i < n; i++) {
            float g = get(a, ADAMW8_GRAD, at + i) * f[ADAMW16_SCALE], p = get(a, ADAMW8_MASTER, at + i);
            m[i] = fmaf(f[ADAMW16_BETA1], decode(&c, a, ADAMW8_M, at + i) * ms[b], (1 - f[ADAMW16_BETA1]) * g);
            v[i] = fmaf(f[ADAMW16_BETA2], decode(&c, a, ADAMW8_V, at + i) * vs[b], (1 - f[ADAMW16_BETA2]) * g * g);
            float root = fmaf(sqrtf(v[i]), f[ADAMW16_ROOT], f[ADAMW16_EPS]);
            put(a, ADAMW8_MASTER, at + i, fmaf(f[ADAMW16_STEP], m[i] / root, fmaf(f[ADAMW16_DECAY], p, p)));
        }
        keep_moments(&c, a, ADAMW8_M, b, m);
        keep_moments(&c, a, ADAMW8_V, b, v);
    }
}

static void average(const struct update_args *a, int64_t i)
{
    float keep = a->f[AVERAGE_KEEP];
    put(a, AVERAGE_TO, i, fmaf(keep, get(a, AVERAGE_TO, i), (1 - keep) * get(a, AVERAGE_OF, i)));
}

static void round_by_chance(const struct update_args *a, int64_t i)
{
    uint64_t word;
    update_words(&a->chance, i, 1, &word);
    ((bf16 *)a->at[ROUND_TO].p)[i] = (bf16)format_encode_random(FORMAT_BF16, (double)get(a, ROUND_FROM, i), false,
                                                                rng_u32(a->chance.seed, a->chance.stream, word));
}

static void factored(const struct update_args *a)
{
    int64_t rows = a->kind == UPDATE_FACTOR_MEAN || a->kind == UPDATE_FACTOR_KEEP ? 0 : a->n / a->blocks.cols;
    switch (a->kind) {
    case UPDATE_FACTOR_SUMS:
        factored_row_sums(a, 0, rows);
        factored_col_sums(a, 0, a->blocks.cols);
        return;
    case UPDATE_FACTOR_KEEP: factored_keep(a, 0, a->n); return;
    case UPDATE_FACTOR_MEAN: factored_mean(a); return;
    case UPDATE_FACTOR_SIZE:
        factored_size(a, 0, rows);
        factored_size_sum(a);
        return;
    default: factored_apply(a, 0, rows);
    }
}

void update_ref(struct team *team, const struct update_args *a)
{
    static void (*const one[UPDATE_KINDS])(const struct update_args *, int64_t) = {
        [UPDATE_LION] = lion,       [UPDATE_MOMENTUM] = momentum,     [UPDATE_UNIT] = unit,
        [UPDATE_BLEND] = blend,     [UPDATE_ADAMW16] = adamw16,       [UPDATE_APPLY] = apply,
        [UPDATE_AVERAGE] = average, [UPDATE_ROUND] = round_by_chance,
    };
    int copy = update_rows[a->kind].param;
    (void)team;
    if (a->kind == UPDATE_ADAMW8) adamw8(a);
    if (is_factored(a->kind)) factored(a);
    for (int64_t i = 0; one[a->kind] && i < a->n; i++) one[a->kind](a, i);
    if (update_copy(a) != DT_N) flat_ops_ref.cast(team, a->at[copy].p, a->at[copy].t, a->at[0].p, DT_F32, a->n);
}
