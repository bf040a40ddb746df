/* SPDX-License-Identifier: Apache-2.0 */
/* EMBED: launches of gpu_embed.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_embed_args.h"

GPU_DECLARE_TYPED(embed_fwd);
GPU_DECLARE_TYPED(embed_bwd_w);
static const struct gpu_kernel fwd[GPU_TYPES] = GPU_TYPED(embed_fwd, WALK_THREADS);
static const struct gpu_kernel bwd_w[GPU_TYPES] = GPU_TYPED(embed_bwd_w, EMBED_THREADS);

static float scale_of(const struct kernel_call *c)
{
    float scale = at_vocab(&c->at)->scale;
    return scale != 0 ? scale : 1;
}

void gpu_embed_fwd(const struct kernel_call *c)
{
    const struct vocab_attrs *at = at_vocab(&c->at);
    struct embed_args a = {.walk = gpu_walk_of(view_rows(&c->out[0]), view_cols(&c->out[0])),
                           .w = gpu_rows_of(&c->in[1]),
                           .y = gpu_rows_of(&c->out[0]),
                           .ids = c->in[0].p,
                           .rows = c->in[1].n[0],
                           .first = at->first,
                           .whole = at->whole ? at->whole : c->in[1].n[0],
                           .scale = scale_of(c)};
    gpu_launch(c, &fwd[c->in[1].dtype], gpu_walk_blocks(&a.walk), 1, 1, 0, &a, sizeof a);
}

static int64_t col_blocks(const struct kernel_call *c) { return gpu_parts(view_cols(&c->dout[0]), EMBED_COLS); }

void gpu_embed_bwd_w(const struct kernel_call *c)
{
    if (!c->din[1].p) return;
    struct embed_weights_args a = {.dy = gpu_rows_of(&c->dout[0]),
                                   .acc = gpu_rows_of(&c->acc[1]),
                                   .dw = gpu_rows_of(&c->din[1]),
                                   .ids = c->in[0].p,
                                   .tokens = view_rows(&c->dout[0]),
                                   .rows = c->din[1].n[0],
                                   .cols = view_cols(&c->dout[0]),
                                   .first = at_vocab(&c->at)->first,
                                   .scale = scale_of(c)};
    gpu_launch(c, &bwd_w[c->dout[0].dtype], gpu_parts(a.rows, EMBED_BIN), col_blocks(c), 1, sizeof(struct embed_shared),
               &a, sizeof a);
}

bool gpu_embed_accepts(const struct kernel_call *c)
{
    if (c->phase == KERNEL_FWD) return gpu_float(c->in[1].dtype);
    return gpu_float(c->dout[0].dtype) && col_blocks(c) <= UINT16_MAX;
}
