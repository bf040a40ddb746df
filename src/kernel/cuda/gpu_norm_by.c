/* SPDX-License-Identifier: Apache-2.0 */
/* SQUARES and NORM_BY: launches of gpu_norm_by.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_norm_by_args.h"

GPU_DECLARE_TYPED(squares_fwd);
GPU_DECLARE_TYPED(squares_fwd_wide);
GPU_DECLARE_TYPED(squares_bwd_in);
GPU_DECLARE_TYPED(norm_by_fwd);
GPU_DECLARE_TYPED(norm_by_bwd_in);
GPU_DECLARE_TYPED(norm_by_bwd_in_wide);
GPU_DECLARE_TYPED(norm_by_bwd_w);
GPU_DECLARE(norm_by_weights_sum);
static const struct gpu_kernel squares_fwd[2][GPU_TYPES] = {GPU_TYPED(squares_fwd, NORM_THREADS),
                                                            GPU_TYPED(squares_fwd_wide, NORM_THREADS)};
static const struct gpu_kernel squares_bwd_in[GPU_TYPES] = GPU_TYPED(squares_bwd_in, WALK_THREADS);
static const struct gpu_kernel fwd[GPU_TYPES] = GPU_TYPED(norm_by_fwd, WALK_THREADS);
static const struct gpu_kernel bwd_in[2][GPU_TYPES] = {GPU_TYPED(norm_by_bwd_in, NORM_THREADS),
                                                       GPU_TYPED(norm_by_bwd_in_wide, NORM_THREADS)};
static const struct gpu_kernel bwd_w[GPU_TYPES] = GPU_TYPED(norm_by_bwd_w, NORM_THREADS);
static const struct gpu_kernel weights_sum = GPU_ONE(norm_by_weights_sum, NORM_THREADS);

static struct norm_by_args args_of(const struct kernel_call *c)
{
    struct norm_by_args a = {.walk = gpu_walk_of(view_rows(&c->in[0]), view_cols(&c->in[0])),
                             .x = gpu_rows_of(&c->in[0]),
                             .rows = view_rows(&c->in[0])};
    if (c->op == OP_SQUARES) return a;
    a.s = gpu_rows_of(&c->in[1]);
    a.w = gpu_rows_of(&c->in[2]);
    a.whole = (float)at_norm(&c->at)->whole;
    a.eps = at_norm(&c->at)->eps;
    a.plus = at_norm(&c->at)->plus;
    return a;
}

/* A row by a warp or by a block. */
static void launch_rows(const struct kernel_call *c, const struct gpu_kernel k[2][GPU_TYPES],
                        const struct norm_by_args *a)
{
    bool wide = a->walk.cols > NORM_WARP_COLS;
    gpu_launch(c, &k[wide][c->in[0].dtype], wide ? a->rows : gpu_parts(a->rows, NORM_THREADS / GPU_WARP), 1, 1,
               sizeof(struct norm_shared), a, sizeof *a);
}
static void launch_walk(const struct kernel_call *c, const struct gpu_kernel k[GPU_TYPES], const struct norm_by_args *a)
{
    gpu_launch(c, &k[c->in[0].dtype], gpu_walk_blocks(&a->walk), 1, 1, 0, a, sizeof *a);
}

void gpu_squares_fwd(const struct kernel_call *c)
{
    struct norm_by_args a = args_of(c);
    a.s = gpu_rows_of(&c->out[0]);
    launch_rows(c, squares_fwd, &a);
}

void gpu_squares_bwd_in(const struct kernel_call *c)
{
    struct norm_by_args a = args_of(c);
    if (!c->din[0].p) return;
    a.ds = gpu_rows_of(&c->dout[0]);
    a.acc = gpu_rows_of(&c->acc[0]);
    a.dx = gpu_rows_of(&c->din[0]);
    launch_walk(c, squares_bwd_in, &a);
}

void gpu_norm_by_fwd(const struct kernel_call *c)
{
    struct norm_by_args a = args_of(c);
    a.y = gpu_rows_of(&c->out[0]);
    launch_walk(c, fwd, &a);
}

void gpu_norm_by_bwd_in(const struct kernel_call *c)
{
    struct norm_by_args a = args_of(c);
    a.dy = gpu_rows_of(&c->dout[0]);
    a.dx = gpu_rows_of(&c->din[0]);
    a.ds = gpu_rows_of(&c->din[1]);
    a.acc = gpu_rows_of(&c->acc[0]);
    a.acc_s = gpu_rows_of(&c->acc[1]);
    launch_rows(c, bwd_in, &a);
}

static int64_t chunks_of(const struct kernel_call *c) { return gpu_parts(view_rows(&c->in[0]), NORM_CHUNK_ROWS); }
static int64_t col_blocks(const struct kernel_call *c) { return gpu_parts(view_cols(&c->in[0]), NORM_THREADS); }

size_t gpu_norm_by_bwd_w_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(chunks_of(c) * view_cols(&c->in[0])) * sizeof(float);
}

void gpu_norm_by_bwd_w(const struct kernel_call *c)
{
    if (!c->din[2].p) return;
    struct norm_by_weights_args a = {.x = gpu_rows_of(&c->in[0]),
                                     .s = gpu_rows_of(&c->in[1]),
                                     .dy = gpu_rows_of(&c->dout[0]),
                                     .part = c->scratch,
                                     .dw = c->din[2].p,
                                     .acc = c->acc[2].p,
                                     .rows = view_rows(&c->in[0]),
                                     .cols = view_cols(&c->in[0]),
                                     .chunks = chunks_of(c),
                                     .whole = (float)at_norm(&c->at)->whole,
                                     .eps = at_norm(&c->at)->eps};
    gpu_launch(c, &bwd_w[c->in[0].dtype], a.chunks, col_blocks(c), 1, sizeof(struct norm_by_shared), &a, sizeof a);
    gpu_launch(c, &weights_sum, col_blocks(c), 1, 1, 0, &a, sizeof a);
}

bool gpu_norm_by_accepts(const struct kernel_call *c)
{
    return gpu_float(c->in[0].dtype) && col_blocks(c) <= UINT16_MAX;
}
