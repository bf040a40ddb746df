/* SPDX-License-Identifier: Apache-2.0 */
/* ROTARY: launches of gpu_rotary.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_rotary_args.h"

GPU_DECLARE_TYPED(rotary);
GPU_DECLARE_TYPED(rotary_pairs);
GPU_DECLARE_TYPED(rotary_rest);
static const struct gpu_kernel turn[2][GPU_TYPES] = {GPU_TYPED(rotary, ROTARY_THREADS),
                                                     GPU_TYPED(rotary_pairs, ROTARY_THREADS)};
static const struct gpu_kernel rest[GPU_TYPES] = GPU_TYPED(rotary_rest, ROTARY_THREADS);

static void launch(const struct kernel_call *c, const struct view *x, struct rotary_args a)
{
    const struct rotary_attrs *at = at_rotary(&c->at);
    int64_t tokens = view_rows(x);
    a.x = gpu_rows_of(x);
    a.table = gpu_rows_of(&c->in[2]);
    a.pos = c->in[1].p;
    a.positions = c->in[2].n[0];
    a.heads = at->heads;
    a.head_dim = at->head_dim;
    a.half = (at->dim ? at->dim : at->head_dim) / 2;
    a.at = at->at;
    a.chunks = gpu_parts(a.half, WALK_COLS);
    a.groups = gpu_parts(a.heads, ROTARY_HEADS);
    a.items = tokens * a.groups * a.chunks;
    gpu_launch(c, &turn[at->pairs][x->dtype], gpu_parts(a.items, ROTARY_THREADS), 1, 1, 0, &a, sizeof a);
    a.items = tokens * a.heads * (a.head_dim - 2 * a.half);
    gpu_launch(c, &rest[x->dtype], gpu_parts(a.items, ROTARY_THREADS), 1, 1, 0, &a, sizeof a);
}

void gpu_rotary_fwd(const struct kernel_call *c)
{
    launch(c, &c->in[0], (struct rotary_args){.y = gpu_rows_of(&c->out[0])});
}

void gpu_rotary_bwd_in(const struct kernel_call *c)
{
    if (!c->din[0].p) return;
    launch(c, &c->dout[0],
           (struct rotary_args){.y = gpu_rows_of(&c->din[0]), .acc = gpu_rows_of(&c->acc[0]), .back = 1});
}
