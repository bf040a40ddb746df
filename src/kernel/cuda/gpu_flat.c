/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of whole arrays: launches of gpu_flat.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_flat_args.h"
#include "kernel/flat_ops.h"

_Static_assert((int)DT_BF16 == FLAT_BF16 && (int)DT_F16 == FLAT_F16 && (int)DT_F64 == FLAT_F64 &&
                   (int)DT_I32 == FLAT_I32 && (int)DT_I64 == FLAT_I64 && (int)DT_U8 == FLAT_U8 &&
                   (int)DT_U16 == FLAT_U16 && (int)DT_N == FLAT_TYPES,
               "types are numbered alike");

#define EACH(X)                                                                                                        \
    X(cast_bf16_f32)                                                                                                   \
    X(cast_f16_f32)                                                                                                    \
    X(cast_f32_bf16)                                                                                                   \
    X(cast_f16_bf16)                                                                                                   \
    X(cast_f32_f16)                                                                                                    \
    X(cast_bf16_f16)                                                                                                   \
    X(cast_same_8)                                                                                                     \
    X(cast_same_16)                                                                                                    \
    X(cast_same_32)                                                                                                    \
    X(cast_same_64)                                                                                                    \
    X(cast_any)                                                                                                        \
    X(sum_into_f32_f32)                                                                                                \
    X(sum_into_f32_bf16)                                                                                               \
    X(sum_into_bf16_bf16)                                                                                              \
    X(sum_tree)                                                                                                        \
    X(sum_squares)                                                                                                     \
    X(sum_squares_sum)                                                                                                 \
    X(exact_squares)                                                                                                   \
    X(find_nonfinite_16)                                                                                               \
    X(find_nonfinite_32)                                                                                               \
    X(find_nonfinite_64)                                                                                               \
    X(find_nonfinite_first)                                                                                            \
    X(losses_count_rows)
#define KERNEL(name)                                                                                                   \
    GPU_DECLARE(name);                                                                                                 \
    static const struct gpu_kernel k_##name = GPU_ONE(name, FLAT_THREADS);
EACH(KERNEL)
GPU_DECLARE(clip_step);
static const struct gpu_kernel k_clip = GPU_ONE(clip_step, FLAT_BINS);
GPU_DECLARE_TYPED(sum_parts);
static const struct gpu_kernel k_sum_parts[GPU_TYPES] = GPU_TYPED(sum_parts, FLAT_THREADS);

static const struct gpu_kernel *const casts[GPU_TYPES][GPU_TYPES] = {
    [DT_F32] = {[DT_BF16] = &k_cast_bf16_f32, [DT_F16] = &k_cast_f16_f32},
    [DT_BF16] = {[DT_F32] = &k_cast_f32_bf16, [DT_F16] = &k_cast_f16_bf16},
    [DT_F16] = {[DT_F32] = &k_cast_f32_f16, [DT_BF16] = &k_cast_bf16_f16},
};

static struct flat_args args_of(const struct kernel_call *c)
{
    return (struct flat_args){.x = c->in[0].p,
                              .y = c->out[0].p,
                              .n = view_cols(&c->in[0]),
                              .parts = view_rows(&c->in[0]),
                              .from = (int)c->in[0].dtype,
                              .to = (int)c->out[0].dtype};
}

/* Blocks that do `each` elements. */
static void launch(const struct kernel_call *c, const struct gpu_kernel *k, const struct flat_args *a, int64_t each)
{
    gpu_launch(c, k, gpu_parts(a->n, each), 1, 1, 0, a, sizeof *a);
}

void gpu_cast(const struct kernel_call *c)
{
    struct flat_args a = args_of(c);
    enum dtype to = c->out[0].dtype, from = c->in[0].dtype;
    if (to != from && gpu_float(to) && gpu_float(from)) launch(c, casts[to][from], &a, FLAT_SOME);
    else if (to != from) launch(c, &k_cast_any, &a, FLAT_THREADS);
    else {
        size_t bytes = dtype_bytes(to);
        const struct gpu_kernel *k = bytes == 1   ? &k_cast_same_8
                                     : bytes == 2 ? &k_cast_same_16
                                     : bytes == 4 ? &k_cast_same_32
                                                  : &k_cast_same_64;
        launch(c, k, &a, bytes == 1 ? 16 * FLAT_THREADS : FLAT_SOME);
    }
}

void gpu_sum_into(const struct kernel_call *c)
{
    struct flat_args a = args_of(c);
    flat_sum_check(c->out[0].dtype, c->in[0].dtype);
    a.add = at_array(&c->at)->add;
    launch(c,
           c->out[0].dtype == DT_F32   ? &k_sum_into_f32_f32
           : c->in[0].dtype == DT_BF16 ? &k_sum_into_bf16_bf16
                                       : &k_sum_into_f32_bf16,
           &a, FLAT_SOME);
}

void gpu_sum_tree(const struct kernel_call *c)
{
    struct flat_args a = args_of(c);
    flat_tree_check((int)a.parts);
    launch(c, &k_sum_tree, &a, (int64_t)4 * FLAT_THREADS);
}

void gpu_sum_parts(const struct kernel_call *c)
{
    struct flat_args a = args_of(c);
    launch(c, &k_sum_parts[c->in[0].dtype], &a, FLAT_SOME);
}

bool gpu_sum_parts_accepts(const struct kernel_call *c) { return gpu_float(c->in[0].dtype); }

/* ---- squares ---- */
static int64_t squares_blocks(const struct kernel_call *c) { return gpu_parts(view_cols(&c->in[0]), FLAT_BLOCK); }

size_t gpu_sum_squares_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)squares_blocks(c) * sizeof(double);
}

void gpu_sum_squares(const struct kernel_call *c)
{
    struct flat_args a = args_of(c);
    a.sums = c->scratch;
    a.blocks = squares_blocks(c);
    launch(c, &k_sum_squares, &a, (int64_t)FLAT_BLOCK * FLAT_BLOCKS_EACH);
    gpu_launch(c, &k_sum_squares_sum, 1, 1, 1, sizeof(struct flat_order_shared), &a, sizeof a);
}

void gpu_exact_squares(const struct kernel_call *c)
{
    struct flat_args a = args_of(c);
    gpu_launch(c, &k_exact_squares, gpu_parts(a.n, FLAT_THREADS * FLAT_EXACT_EACH), 1, 1,
               sizeof(struct flat_counters_shared), &a, sizeof a);
}

/* ---- what is not finite ---- */
static int64_t find_blocks(const struct kernel_call *c)
{
    return dtype_info(c->in[0].dtype)->is_float ? gpu_parts(view_cols(&c->in[0]), FLAT_FIND) : 0;
}

size_t gpu_find_nonfinite_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)find_blocks(c) * sizeof(int32_t);
}

void gpu_find_nonfinite(const struct kernel_call *c)
{
    struct flat_args a = args_of(c);
    const enum dtype t = c->in[0].dtype;
    a.places = c->scratch;
    a.blocks = find_blocks(c); /* integers are finite */
    a.ones = t == DT_F64 ? 0x7ffull << 52 : t == DT_F32 ? 0x7f800000 : t == DT_BF16 ? 0x7f80 : 0x7c00;
    gpu_launch(c,
               t == DT_F64   ? &k_find_nonfinite_64
               : t == DT_F32 ? &k_find_nonfinite_32
                             : &k_find_nonfinite_16,
               a.blocks, 1, 1, sizeof(struct flat_int_shared), &a, sizeof a);
    gpu_launch(c, &k_find_nonfinite_first, 1, 1, 1, sizeof(struct flat_int_shared), &a, sizeof a);
}

/* ---- a step's words ---- */
void gpu_losses(const struct kernel_call *c)
{
    struct losses_args a = {.x = c->in[0].p, .rows = c->in[0].n[0], .step = c->in[0].stride};
    if (c->out[0].dtype == DT_I64) a.whole = c->out[0].p;
    else a.real = c->out[0].p;
    gpu_launch(c, &k_losses_count_rows, 1, 1, 1, sizeof(struct flat_int_shared), &a, sizeof a);
}

void gpu_clip(const struct kernel_call *c)
{
    struct clip_args a = {.words = c->in[0].p, .most = at_clip(&c->at)->most};
    if (c->in[1].dtype == DT_I64) a.exact = c->in[1].p, a.exact_losses = c->in[2].p;
    else a.squares = c->in[1].p, a.losses = c->in[2].p;
    gpu_launch(c, &k_clip, 1, 1, 1, sizeof(struct clip_shared), &a, sizeof a);
}
