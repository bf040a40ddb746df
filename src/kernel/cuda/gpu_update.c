/* SPDX-License-Identifier: Apache-2.0 */
/* Updates: launches of gpu_update.cu. */
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_update_args.h"
#include "kernel/factored.h"
#include "kernel/update.h"

_Static_assert(sizeof((struct change_args *)0)->f == UPDATE_FACTORS * sizeof(float) &&
                   sizeof((struct change_args *)0)->g == UPDATE_NUMBERS * sizeof(double),
               "as many factors and numbers");
_Static_assert((int)DT_BF16 == FLAT_BF16 && (int)DT_F16 == FLAT_F16 && (int)DT_F32 == FLAT_F32,
               "types are numbered alike");

#define EACH(X)                                                                                                        \
    X(adamw)                                                                                                           \
    X(sgd)                                                                                                             \
    X(lion)                                                                                                            \
    X(momentum)                                                                                                        \
    X(unit)                                                                                                            \
    X(blend)                                                                                                           \
    X(adamw16)                                                                                                         \
    X(adamw8)                                                                                                          \
    X(apply)                                                                                                           \
    X(average)                                                                                                         \
    X(round)                                                                                                           \
    X(factor_row_sums)                                                                                                 \
    X(factor_col_sums)                                                                                                 \
    X(factor_keep)                                                                                                     \
    X(factor_mean)                                                                                                     \
    X(factor_size)                                                                                                     \
    X(factor_size_sum)                                                                                                 \
    X(factor_apply)
#define KERNEL(name)                                                                                                   \
    GPU_DECLARE(change_##name);                                                                                        \
    static const struct gpu_kernel k_##name = GPU_ONE(change_##name, CHANGE_THREADS);
EACH(KERNEL)

/* Those that go element by element. */
static const struct gpu_kernel *const elementwise[UPDATE_KINDS] = {
    [UPDATE_ADAMW] = &k_adamw,
    [UPDATE_SGD] = &k_sgd,
    [UPDATE_LION] = &k_lion,
    [UPDATE_MOMENTUM] = &k_momentum,
    [UPDATE_UNIT] = &k_unit,
    [UPDATE_BLEND] = &k_blend,
    [UPDATE_ADAMW16] = &k_adamw16,
    [UPDATE_APPLY] = &k_apply,
    [UPDATE_AVERAGE] = &k_average,
    [UPDATE_ROUND] = &k_round,
    [UPDATE_FACTOR_KEEP] = &k_factor_keep,
    [UPDATE_FACTOR_APPLY] = &k_factor_apply,
};

static struct change_args args_of(const struct update_args *u)
{
    const struct update_row *row = &update_rows[u->kind];
    enum dtype copy = update_copy(u);
    struct change_args a = {.n = u->n,
                            .kind = (int)u->kind,
                            .flag = u->flag,
                            .scale_at = row->scale,
                            .copy_at = row->param,
                            .copy = copy == DT_N ? -1 : (int)copy,
                            .words = u->by_words ? u->words : NULL,
                            .cols = u->blocks.cols,
                            .block = u->blocks.block,
                            .whole = u->blocks.whole,
                            .seed = u->chance.seed,
                            .stream = u->chance.stream,
                            .at = u->chance.at,
                            .box_cols = u->chance.cols,
                            .first = u->chance.first,
                            .wide = u->chance.wide};
    memcpy(a.f, u->f, sizeof a.f);
    memcpy(a.g, u->g, sizeof a.g);
    for (int k = 0; k < row->n; k++) {
        a.p[k] = u->at[k].p;
        a.t[k] = (int)u->at[k].t;
    }
    return a;
}

static void launch(const struct kernel_call *c, const struct gpu_kernel *k, const struct change_args *a, int64_t blocks)
{
    gpu_launch(c, k, blocks, 1, 1, sizeof(struct change_shared), a, sizeof *a);
}

static void adamw8(const struct kernel_call *c, const struct update_args *u, const struct change_args *a)
{
    struct moments_args m = {.a = *a};
    int64_t blocks = update_n_blocks(u);
    moment_map_init(&m.m, true);
    moment_map_init(&m.v, false);
    gpu_launch(c, &k_adamw8, blocks < CHANGE_BLOCKS ? blocks : CHANGE_BLOCKS, 1, 1, sizeof(struct change_shared), &m,
               sizeof m);
}

void gpu_update(const struct kernel_call *c)
{
    struct update_args u = update_of(c);
    struct change_args a = args_of(&u);
    int64_t rows = is_factored(u.kind) && a.cols > 0 ? a.n / a.cols : 0, some = gpu_parts(a.n, CHANGE_SOME);
    if (elementwise[u.kind]) {
        launch(c, elementwise[u.kind], &a, some < CHANGE_BLOCKS ? some : CHANGE_BLOCKS);
        return;
    }
    switch (u.kind) {
    case UPDATE_ADAMW8: adamw8(c, &u, &a); return;
    case UPDATE_FACTOR_SUMS:
        launch(c, &k_factor_row_sums, &a, gpu_parts(rows, CHANGE_ROWS));
        launch(c, &k_factor_col_sums, &a, rows ? gpu_parts(a.cols, CHANGE_THREADS) : 0);
        return;
    case UPDATE_FACTOR_MEAN:
        gpu_launch(c, &k_factor_mean, 1, 1, 1, sizeof(struct change_order_shared), &a, sizeof a);
        return;
    case UPDATE_FACTOR_SIZE:
        launch(c, &k_factor_size, &a, gpu_parts(rows, CHANGE_ROWS));
        gpu_launch(c, &k_factor_size_sum, 1, 1, 1, sizeof(struct change_order_shared), &a, sizeof a);
        return;
    default: CHECK(false, "update %d", (int)u.kind);
    }
}

/* Whether operand k may have type t. */
static bool fits(const struct update_args *u, int k, enum dtype t)
{
    const struct update_row *row = &update_rows[u->kind];
    enum update_count count = row->at[k].count;
    if (k == row->param) return gpu_float(t);
    if (count == UPDATE_ONE || count == UPDATE_TWO || count == UPDATE_ROW_PAIR) return t == DT_F64;
    if (u->kind == UPDATE_FACTOR_SUMS && k != FACTOR_SUMS_GRAD) return t == DT_F64;
    if (u->kind == UPDATE_FACTOR_KEEP && k == FACTOR_KEEP_SUMS) return t == DT_F64;
    if (u->kind == UPDATE_ADAMW8 && k == ADAMW8_M) return t == DT_U8;
    if (u->kind == UPDATE_ADAMW8 && k == ADAMW8_V) return t == (u->flag ? DT_F16 : DT_U8);
    if (u->kind == UPDATE_ROUND && k == ROUND_TO) return t == DT_BF16;
    bool only_f32 = u->kind == UPDATE_ADAMW || u->kind == UPDATE_SGD || u->kind == UPDATE_ADAMW8 ||
                    is_factored(u->kind) || (k == 0 && row->param >= 0);
    return t == DT_F32 || (t == DT_BF16 && !only_f32);
}

bool gpu_update_accepts(const struct kernel_call *c)
{
    struct update_args u = update_of(c);
    for (int k = 0; k < update_rows[u.kind].n; k++)
        if (!fits(&u, k, u.at[k].t)) return false;
    return u.kind != UPDATE_ADAMW8 || u.blocks.block <= MOMENTS_BLOCK;
}
