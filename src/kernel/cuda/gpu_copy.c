/* SPDX-License-Identifier: Apache-2.0 */
/* COPY: launches of gpu_copy.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_copy_args.h"

GPU_DECLARE_TYPED(copy_to_f32);
GPU_DECLARE_TYPED(copy_to_bf16);
GPU_DECLARE_TYPED(copy_to_f16);
GPU_DECLARE(copy_2);
GPU_DECLARE(copy_4);
/* By what it becomes, and what it was. */
static const struct gpu_kernel cast[GPU_TYPES][GPU_TYPES] = {[DT_F32] = GPU_TYPED(copy_to_f32, WALK_THREADS),
                                                             [DT_BF16] = GPU_TYPED(copy_to_bf16, WALK_THREADS),
                                                             [DT_F16] = GPU_TYPED(copy_to_f16, WALK_THREADS)};
static const struct gpu_kernel move_2 = GPU_ONE(copy_2, WALK_THREADS), move_4 = GPU_ONE(copy_4, WALK_THREADS);

static void launch(const struct kernel_call *c, const struct gpu_kernel *k, const struct view *x, struct copy_args a)
{
    a.walk = gpu_walk_of(view_rows(x), view_cols(x));
    a.x = gpu_rows_of(x);
    gpu_launch(c, k, gpu_walk_blocks(&a.walk), 1, 1, 0, &a, sizeof a);
}

void gpu_copy_fwd(const struct kernel_call *c)
{
    enum dtype to = c->out[0].dtype, from = c->in[0].dtype;
    const struct gpu_kernel *k = to != from ? &cast[to][from] : dtype_bytes(to) == 2 ? &move_2 : &move_4;
    launch(c, k, &c->in[0], (struct copy_args){.y = gpu_rows_of(&c->out[0])});
}

void gpu_copy_bwd_in(const struct kernel_call *c)
{
    if (!c->din[0].p) return;
    launch(c, &cast[c->din[0].dtype][c->dout[0].dtype], &c->dout[0],
           (struct copy_args){.acc = gpu_rows_of(&c->acc[0]), .y = gpu_rows_of(&c->din[0])});
}

bool gpu_copy_accepts(const struct kernel_call *c)
{
    if (c->phase == KERNEL_FWD) return gpu_float(c->in[0].dtype) && gpu_float(c->out[0].dtype);
    return gpu_float(c->dout[0].dtype) && gpu_float(c->din[0].dtype) &&
           (!c->acc[0].nd || c->acc[0].dtype == c->din[0].dtype);
}
