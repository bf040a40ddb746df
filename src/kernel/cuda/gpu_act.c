/* SPDX-License-Identifier: Apache-2.0 */
/* ACT: launches of gpu_act.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_act_args.h"

GPU_DECLARE_TYPED(act_fwd);
GPU_DECLARE_TYPED(act_bwd_in);
static const struct gpu_kernel fwd[GPU_TYPES] = GPU_TYPED(act_fwd, WALK_THREADS);
static const struct gpu_kernel bwd_in[GPU_TYPES] = GPU_TYPED(act_bwd_in, WALK_THREADS);

static void launch(const struct kernel_call *c, const struct gpu_kernel *k, const struct view *y, struct act_args a)
{
    a.walk = gpu_walk_of(view_rows(y), view_cols(y));
    a.x = gpu_rows_of(&c->in[0]);
    a.kind = at_act(&c->at)->kind;
    a.cap = at_act(&c->at)->cap;
    gpu_launch(c, &k[c->in[0].dtype], gpu_walk_blocks(&a.walk), 1, 1, 0, &a, sizeof a);
}

void gpu_act_fwd(const struct kernel_call *c)
{
    launch(c, fwd, &c->out[0], (struct act_args){.y = gpu_rows_of(&c->out[0])});
}

void gpu_act_bwd_in(const struct kernel_call *c)
{
    if (!c->din[0].p) return;
    launch(c, bwd_in, &c->dout[0],
           (struct act_args){.dy = gpu_rows_of(&c->dout[0]),
                             .dx = gpu_rows_of(&c->din[0]),
                             .acc = gpu_rows_of(&c->acc[0])});
}
