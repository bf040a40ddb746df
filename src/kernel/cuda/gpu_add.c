/* SPDX-License-Identifier: Apache-2.0 */
/* ADD and DROPOUT: launches of gpu_add.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_add_args.h"
#include "kernel/dropout.h"

GPU_DECLARE_TYPED(add);
static const struct gpu_kernel add[GPU_TYPES] = GPU_TYPED(add, WALK_THREADS);

static void launch(const struct kernel_call *c, const struct view *x, struct add_args a)
{
    const struct dropout_attrs *at = at_dropout(&c->at);
    a.walk = gpu_walk_of(view_rows(x), view_cols(x));
    a.x = gpu_rows_of(x);
    a.times = c->op == OP_ADD && at->times != 0 ? at->times : 1;
    if (dropout_active(at, c->step)) {
        a.index = c->in[c->op == OP_ADD ? 2 : 1].p;
        a.seed = c->step->seed;
        a.stream = rng_stream_at(at->stream, c->step->step);
        a.first_token = c->step->first_token;
        a.threshold = dropout_threshold(at->p);
        a.scale = dropout_scale(at->p);
    }
    gpu_launch(c, &add[x->dtype], gpu_walk_blocks(&a.walk), 1, 1, 0, &a, sizeof a);
}

void gpu_add_fwd(const struct kernel_call *c)
{
    launch(c, &c->in[1], (struct add_args){.before = gpu_rows_of(&c->in[0]), .y = gpu_rows_of(&c->out[0])});
}

void gpu_add_bwd_in(const struct kernel_call *c)
{
    if (!c->din[0].p && !c->din[1].p) return;
    struct add_args a = {.before = gpu_rows_of(&c->acc[1]),
                         .y = gpu_rows_of(&c->din[1]),
                         .acc = gpu_rows_of(&c->acc[0]),
                         .same = gpu_rows_of(&c->din[0])};
    launch(c, &c->dout[0], a);
}

void gpu_dropout_fwd(const struct kernel_call *c)
{
    launch(c, &c->in[0], (struct add_args){.y = gpu_rows_of(&c->out[0])});
}

void gpu_dropout_bwd_in(const struct kernel_call *c)
{
    if (!c->din[0].p) return;
    launch(c, &c->dout[0], (struct add_args){.before = gpu_rows_of(&c->acc[0]), .y = gpu_rows_of(&c->din[0])});
}
