/* SPDX-License-Identifier: Apache-2.0 */
/* XENT and XENT_PART: launches of gpu_xent.cu. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_xent_args.h"
#include "kernel/xent_parts.h"

GPU_DECLARE_TYPED(xent_fwd);
GPU_DECLARE_TYPED(xent_fwd_wide);
GPU_DECLARE_TYPED(xent_fwd_short);
GPU_DECLARE_TYPED(xent_part);
GPU_DECLARE_TYPED(xent_part_wide);
GPU_DECLARE_TYPED(xent_bwd);
GPU_DECLARE_TYPED(xent_bwd_wide);
GPU_DECLARE(xent_chunks);
GPU_DECLARE(xent_sum);
/* By whether rows are wide. */
static const struct gpu_kernel fwd[2][GPU_TYPES] = {GPU_TYPED(xent_fwd, XENT_THREADS),
                                                    GPU_TYPED(xent_fwd_wide, XENT_WIDE_THREADS)};
static const struct gpu_kernel part[2][GPU_TYPES] = {GPU_TYPED(xent_part, XENT_THREADS),
                                                     GPU_TYPED(xent_part_wide, XENT_WIDE_THREADS)};
static const struct gpu_kernel bwd[2][GPU_TYPES] = {GPU_TYPED(xent_bwd, XENT_THREADS),
                                                    GPU_TYPED(xent_bwd_wide, XENT_WIDE_THREADS)};
static const struct gpu_kernel fwd_short[GPU_TYPES] = GPU_TYPED(xent_fwd_short, XENT_THREADS);
static const struct gpu_kernel chunk_sums = GPU_ONE(xent_chunks, XENT_THREADS);
static const struct gpu_kernel whole_sum = GPU_ONE(xent_sum, GPU_WARP);

static struct xent_args args_of(const struct kernel_call *c)
{
    const struct view *x = &c->in[XENT_LOGITS];
    const struct vocab_attrs *v = at_vocab(&c->at);
    struct xent_args a = {.x = x->p,
                          .target = c->in[XENT_TARGET].p,
                          .x_step = x->stride,
                          .rows = x->n[0],
                          .cols = x->n[1],
                          .first = v->first,
                          .whole = v->whole ? v->whole : x->n[1],
                          .chunks = gpu_parts(x->n[0], XENT_CHUNK_ROWS),
                          .plain = v->plain,
                          .parts = v->n_parts};
    if (!xent_has_parts(c) || c->op != OP_XENT) return a;
    a.stats = c->in[XENT_STATS].p;
    a.stats_step = c->in[XENT_STATS].stride;
    return a;
}

static void by_rows(const struct kernel_call *c, const struct gpu_kernel k[2][GPU_TYPES], const struct xent_args *a)
{
    gpu_launch(c, &k[a->cols > XENT_WIDE][c->in[XENT_LOGITS].dtype], a->rows, 1, 1, sizeof(struct xent_shared), a,
               sizeof *a);
}

/* Scratch: nats, sums of chunks, what is right. */
size_t gpu_xent_fwd_scratch(const struct kernel_call *c, int n_threads)
{
    struct xent_args a = args_of(c);
    (void)n_threads;
    return (size_t)(a.rows + a.chunks * 3) * sizeof(double) +
           (at_vocab(&c->at)->right ? (size_t)a.rows * sizeof(int32_t) : 0);
}

void gpu_xent_fwd(const struct kernel_call *c)
{
    struct xent_args a = args_of(c);
    a.nats = c->scratch;
    a.sums = a.nats + a.rows;
    if (at_vocab(&c->at)->right) a.right = (int32_t *)(void *)(a.sums + a.chunks * 3);
    a.stat = c->out[0].p;
    a.each = xent_each(c);
    if (a.stats || a.plain)
        gpu_launch(c, &fwd_short[c->in[XENT_LOGITS].dtype], gpu_parts(a.rows, XENT_THREADS), 1, 1, 0, &a, sizeof a);
    else by_rows(c, fwd, &a);
    gpu_launch(c, &chunk_sums, a.chunks, 1, 1, sizeof(struct xent_shared), &a, sizeof a);
    gpu_launch(c, &whole_sum, 1, 1, 1, 0, &a, sizeof a);
}

void gpu_xent_part(const struct kernel_call *c)
{
    struct xent_args a = args_of(c);
    a.part_stats = c->out[0].p;
    a.part_step = c->out[0].stride;
    by_rows(c, part, &a);
}

void gpu_xent_bwd_in(const struct kernel_call *c)
{
    struct xent_args a = args_of(c);
    const struct vocab_attrs *v = at_vocab(&c->at);
    if (!c->din[0].p) return;
    a.dx = c->din[0].p;
    a.dx_step = c->din[0].stride;
    a.acc = c->acc[0].p;
    a.acc_step = c->acc[0].stride;
    a.scale = c->step->loss_scale;
    if (v->times != 0) a.scale *= v->times;
    if (v->each) a.factor = c->in[c->n_in - 1].p;
    by_rows(c, bwd, &a);
}

bool gpu_xent_accepts(const struct kernel_call *c) { return gpu_float(c->in[XENT_LOGITS].dtype); }
