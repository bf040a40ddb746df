/* SPDX-License-Identifier: Apache-2.0 */
/* update_body.h: the elementwise updates over vec.h, included by the flat_<isa>.c files after flat_body.h. Bound by
 * memory: one pass, split over the team; types are constants inside each loop, so that no vector asks for them. */
#ifndef TUTTI_KERNEL_CPU_VEC_UPDATE_BODY_H
#define TUTTI_KERNEL_CPU_VEC_UPDATE_BODY_H

#include "kernel/cpu/vec/flat_body.h"
#include "kernel/cpu/vec/moments_body.h"
#include "kernel/factored.h"
#include "kernel/formats.h"
#include "kernel/update.h"

VEC_INLINE vf vf_sign(vf x)
{
    return vf_pick(vf_gt(x, vf_zero()), vf_set(1), vf_pick(vf_gt(vf_zero(), x), vf_set(-1), vf_zero()));
}

VEC_INLINE void lion_vector(const struct update_args *a, int64_t i, int n, enum dtype t)
{
    const float *f = a->f;
    vf g = v_get(a->at[LION_GRAD].p, i, n, DT_F32) * vf_set(f[LION_SCALE]);
    vf m = v_get(a->at[LION_M].p, i, n, DT_F32), p = v_get(a->at[LION_MASTER].p, i, n, DT_F32);
    vf c = vf_fma(vf_set(f[LION_BETA1]), m, vf_set(1 - f[LION_BETA1]) * g);
    m = vf_fma(vf_set(f[LION_BETA2]), m, vf_set(1 - f[LION_BETA2]) * g);
    p = vf_fma(vf_set(-f[LION_LR]), vf_sign(c), vf_fma(vf_set(f[LION_DECAY]), p, p));
    v_put(a->at[LION_M].p, i, n, DT_F32, m);
    v_put(a->at[LION_MASTER].p, i, n, DT_F32, p);
    if (t != DT_N) v_put(a->at[LION_PARAM].p, i, n, t, p);
}

/* t: of the compute copy, DT_N where there is none. */
VEC_INLINE void momentum_vector(const struct update_args *a, int64_t i, int n, enum dtype t)
{
    (void)t;
    vf mu = vf_set(a->f[MOMENTUM_MU]), g = v_get(a->at[MOMENTUM_GRAD].p, i, n, DT_F32) * vf_set(a->f[MOMENTUM_SCALE]);
    vf m = vf_fma(mu, v_get(a->at[MOMENTUM_M].p, i, n, DT_F32), g);
    v_put(a->at[MOMENTUM_M].p, i, n, DT_F32, m);
    v_put(a->at[MOMENTUM_U].p, i, n, DT_F32, a->flag ? vf_fma(mu, m, g) : m);
}

VEC_INLINE void unit_vector(const struct update_args *a, int64_t i, int n, enum dtype t)
{
    (void)t;
    float scale = (float)(1 / (sqrt(*(const double *)a->at[UNIT_SUM].p) + (double)a->f[UNIT_EPS]));
    v_put(a->at[UNIT_TO].p, i, n, DT_BF16, v_get(a->at[UNIT_FROM].p, i, n, DT_F32) * vf_set(scale));
}

VEC_INLINE void blend_vector(const struct update_args *a, int64_t i, int n, enum dtype t)
{
    (void)t;
    vf y = vf_set(a->f[BLEND_B]) * v_get(a->at[BLEND_Y].p, i, n, DT_BF16);
    v_put(a->at[BLEND_TO].p, i, n, DT_BF16, vf_fma(vf_set(a->f[BLEND_A]), v_get(a->at[BLEND_X].p, i, n, DT_BF16), y));
}

VEC_INLINE void adamw16_vector(const struct update_args *a, int64_t i, int n, enum dtype t)
{
    const float *f = a->f;
    vf g = v_get(a->at[ADAMW16_GRAD].p, i, n, DT_F32) * vf_set(f[ADAMW16_SCALE]);
    vf p = v_get(a->at[ADAMW16_MASTER].p, i, n, DT_F32);
    vf m = vf_fma(vf_set(f[ADAMW16_BETA1]), v_get(a->at[ADAMW16_M].p, i, n, DT_BF16), vf_set(1 - f[ADAMW16_BETA1]) * g);
    vf v = vf_fma(vf_set(f[ADAMW16_BETA2]), v_get(a->at[ADAMW16_V].p, i, n, DT_BF16),
                  vf_set(1 - f[ADAMW16_BETA2]) * g * g);
    vf root = vf_fma(vf_sqrt(v), vf_set(f[ADAMW16_ROOT]), vf_set(f[ADAMW16_EPS]));
    p = vf_fma(vf_set(f[ADAMW16_STEP]), m / root, vf_fma(vf_set(f[ADAMW16_DECAY]), p, p));
    v_put(a->at[ADAMW16_M].p, i, n, DT_BF16, m);
    v_put(a->at[ADAMW16_V].p, i, n, DT_BF16, v);
    v_put(a->at[ADAMW16_MASTER].p, i, n, DT_F32, p);
    if (t != DT_N) v_put(a->at[ADAMW16_PARAM].p, i, n, t, p);
}

VEC_INLINE void apply_vector(const struct update_args *a, int64_t i, int n, enum dtype t)
{
    vf p = v_get(a->at[APPLY_MASTER].p, i, n, DT_F32), o = v_get(a->at[APPLY_O].p, i, n, DT_BF16);
    p = vf_fma(vf_set(a->f[APPLY_STEP]), o, vf_fma(vf_set(a->f[APPLY_DECAY]), p, p));
    v_put(a->at[APPLY_MASTER].p, i, n, DT_F32, p);
    if (t != DT_N) v_put(a->at[APPLY_PARAM].p, i, n, t, p);
}

VEC_INLINE void average_vector(const struct update_args *a, int64_t i, int n, enum dtype t)
{
    vf of = vf_set(1 - a->f[AVERAGE_KEEP]) * v_get(a->at[AVERAGE_OF].p, i, n, t);
    v_put(a->at[AVERAGE_TO].p, i, n, DT_F32,
          vf_fma(vf_set(a->f[AVERAGE_KEEP]), v_get(a->at[AVERAGE_TO].p, i, n, DT_F32), of));
}

/* As far as words come in a row at a time. */
static void round_range(const struct update_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo, n; i < hi; i += n) {
        struct format_random random = {.seed = a->chance.seed, .stream = a->chance.stream};
        n = update_words(&a->chance, i, hi - i, &random.first);
        format_ops_cpu.encode(NULL, (bf16 *)a->at[ROUND_TO].p + i, FORMAT_BF16, (const float *)a->at[ROUND_FROM].p + i,
                              DT_F32, n, false, &random);
    }
}

#define UPDATE_RANGE(kind, t)                                                                                          \
    do {                                                                                                               \
        for (; i + VL <= hi; i += VL) kind##_vector(&a, i, VL, t);                                                     \
        if (i < hi) kind##_vector(&a, i, (int)(hi - i), t);                                                            \
    } while (0)
#define UPDATE_COPIES(kind)                                                                                            \
    do {                                                                                                               \
        if (copy == DT_BF16) UPDATE_RANGE(kind, DT_BF16);                                                              \
        else if (copy == DT_F32) UPDATE_RANGE(kind, DT_F32);                                                           \
        else UPDATE_RANGE(kind, DT_N);                                                                                 \
    } while (0)

static void update_member(void *arg, int member, int n_members)
{
    struct update_args a = *(const struct update_args *)arg; /* a copy: no store can change it, for the compiler */
    enum dtype copy = update_copy(&a);
    int64_t i, hi;
    flat_split(a.n, member, n_members, &i, &hi);
    switch (a.kind) {
    case UPDATE_LION: UPDATE_COPIES(lion); return;
    case UPDATE_MOMENTUM: UPDATE_RANGE(momentum, DT_N); return;
    case UPDATE_UNIT: UPDATE_RANGE(unit, DT_N); return;
    case UPDATE_BLEND: UPDATE_RANGE(blend, DT_N); return;
    case UPDATE_ADAMW16: UPDATE_COPIES(adamw16); return;
    case UPDATE_APPLY: UPDATE_COPIES(apply); return;
    case UPDATE_AVERAGE:
        if (a.at[AVERAGE_OF].t == DT_BF16) UPDATE_RANGE(average, DT_BF16);
        else UPDATE_RANGE(average, DT_F32);
        return;
    case UPDATE_ROUND: round_range(&a, i, hi); return;
    case UPDATE_ADAMW8:
        team_split(update_n_blocks(&a), member, n_members, &i, &hi);
        adamw8_range(&a, i, hi, copy);
        return;
    case UPDATE_FACTOR_SUMS:
        team_split(a.n / a.blocks.cols, member, n_members, &i, &hi);
        factored_row_sums(&a, i, hi);
        flat_split(a.blocks.cols, member, n_members, &i, &hi);
        factored_col_sums(&a, i, hi);
        return;
    case UPDATE_FACTOR_KEEP: factored_keep(&a, i, hi); return;
    case UPDATE_FACTOR_MEAN:
        if (!member) factored_mean(&a);
        return;
    case UPDATE_FACTOR_SIZE:
        team_split(a.n / a.blocks.cols, member, n_members, &i, &hi);
        factored_size(&a, i, hi);
        return;
    case UPDATE_FACTOR_APPLY:
        team_split(a.n / a.blocks.cols, member, n_members, &i, &hi);
        factored_apply(&a, i, hi);
        if (copy == DT_BF16)
            for (int64_t k = i * a.blocks.cols; k < hi * a.blocks.cols; k += VL) {
                int64_t left = hi * a.blocks.cols - k;
                v_put(a.at[FACTOR_APPLY_PARAM].p, k, v_count(left), DT_BF16,
                      v_get(a.at[FACTOR_APPLY_MASTER].p, k, v_count(left), DT_F32));
            }
        if (copy == DT_F32)
            memcpy((float *)a.at[FACTOR_APPLY_PARAM].p + i * a.blocks.cols,
                   (float *)a.at[FACTOR_APPLY_MASTER].p + i * a.blocks.cols, (size_t)((hi - i) * a.blocks.cols) * 4);
        return;
    case UPDATE_ADAMW: /* have loops of their own */
    case UPDATE_SGD:
    case UPDATE_KINDS: break;
    }
    CHECK(0, "update %d", (int)a.kind);
}

static void update_vec(struct team *team, const struct update_args *a)
{
    team_run(team, update_member, (void *)(uintptr_t)a);
    int copy = update_rows[a->kind].param;
    if (a->kind == UPDATE_FACTOR_SIZE) factored_size_sum(a);
    if (update_copy(a) == DT_F16) cast_vec(team, a->at[copy].p, DT_F16, a->at[0].p, DT_F32, a->n);
}

#endif
