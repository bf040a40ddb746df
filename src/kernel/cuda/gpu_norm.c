/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNORM, HEADNORM and LAYERNORM: launches of gpu_norm.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_norm_args.h"

GPU_DECLARE_TYPED(norm_fwd);
GPU_DECLARE_TYPED(norm_fwd_wide);
GPU_DECLARE_TYPED(norm_bwd_in);
GPU_DECLARE_TYPED(norm_bwd_in_wide);
GPU_DECLARE_TYPED(norm_bwd_w);
GPU_DECLARE(norm_weights_sum);
static const struct gpu_kernel fwd[2][GPU_TYPES] = {GPU_TYPED(norm_fwd, NORM_THREADS),
                                                    GPU_TYPED(norm_fwd_wide, NORM_THREADS)};
static const struct gpu_kernel bwd_in[2][GPU_TYPES] = {GPU_TYPED(norm_bwd_in, NORM_THREADS),
                                                       GPU_TYPED(norm_bwd_in_wide, NORM_THREADS)};
static const struct gpu_kernel bwd_w[GPU_TYPES] = GPU_TYPED(norm_bwd_w, NORM_THREADS);
static const struct gpu_kernel weights_sum = GPU_ONE(norm_weights_sum, NORM_THREADS);

static int64_t heads_of(const struct kernel_call *c) { return c->op == OP_HEADNORM ? at_norm(&c->at)->heads : 1; }
static int64_t cols_of(const struct kernel_call *c)
{
    int64_t n = view_cols(c->phase == KERNEL_FWD ? &c->out[0] : &c->dout[0]), heads = heads_of(c);
    return heads ? n / heads : 0;
}

static struct norm_args args_of(const struct kernel_call *c)
{
    bool centred = c->op == OP_LAYERNORM;
    return (struct norm_args){.x = c->in[0].p,
                              .w = c->in[1].p,
                              .b = c->n_in > 2 ? c->in[2].p : NULL,
                              .x_step = c->in[0].stride,
                              .stat = c->out[1].p,
                              .stat_step = centred ? c->out[1].stride : heads_of(c),
                              .rows = view_rows(&c->in[0]),
                              .heads = heads_of(c),
                              .cols = cols_of(c),
                              .eps = at_norm(&c->at)->eps,
                              .plus = at_norm(&c->at)->plus,
                              .centred = centred};
}

static void launch(const struct kernel_call *c, const struct gpu_kernel k[2][GPU_TYPES], const struct norm_args *a)
{
    bool wide = a->cols > NORM_WARP_COLS;
    int64_t items = a->rows * a->heads;
    gpu_launch(c, &k[wide][c->in[0].dtype], wide ? items : gpu_parts(items, NORM_THREADS / GPU_WARP), 1, 1,
               sizeof(struct norm_shared), a, sizeof *a);
}

void gpu_norm_fwd(const struct kernel_call *c)
{
    struct norm_args a = args_of(c);
    a.y = c->out[0].p;
    a.y_step = c->out[0].stride;
    launch(c, fwd, &a);
}

void gpu_norm_bwd_in(const struct kernel_call *c)
{
    struct norm_args a = args_of(c);
    if (!c->din[0].p) return;
    a.dy = c->dout[0].p;
    a.dy_step = c->dout[0].stride;
    a.dx = c->din[0].p;
    a.dx_step = c->din[0].stride;
    a.acc = c->acc[0].p;
    a.acc_step = c->acc[0].stride;
    launch(c, bwd_in, &a);
}

static int64_t chunks_of(const struct kernel_call *c)
{
    return gpu_parts(view_rows(&c->in[0]) * heads_of(c), NORM_CHUNK_ROWS);
}

size_t gpu_norm_bwd_w_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(chunks_of(c) * 2 * cols_of(c)) * sizeof(float);
}

void gpu_norm_bwd_w(const struct kernel_call *c)
{
    struct norm_args n = args_of(c);
    struct norm_weights_args a = {.x = n.x,
                                  .dy = c->dout[0].p,
                                  .stat = n.stat,
                                  .part = c->scratch,
                                  .dw = c->din[1].p,
                                  .acc_w = c->acc[1].p,
                                  .x_step = n.x_step,
                                  .dy_step = c->dout[0].stride,
                                  .rows = n.rows,
                                  .heads = n.heads,
                                  .cols = n.cols,
                                  .stat_step = n.stat_step,
                                  .chunks = chunks_of(c),
                                  .centred = n.centred};
    if (c->n_in > 2) a.db = c->din[2].p, a.acc_b = c->acc[2].p;
    int64_t x = gpu_parts(n.cols, NORM_THREADS);
    gpu_launch(c, &bwd_w[c->in[0].dtype], x, a.chunks, 1, 0, &a, sizeof a);
    gpu_launch(c, &weights_sum, x, 1, 1, 0, &a, sizeof a);
}

/* Chunks of a grid are at most so many; heads of none have no columns. */
bool gpu_norm_accepts(const struct kernel_call *c)
{
    return gpu_float(c->in[0].dtype) && heads_of(c) > 0 && chunks_of(c) <= UINT16_MAX;
}
