/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h: what the slots of a GPU's family share: a launch on a call's stream, and what their kernels are called. A
 * slot decides by shapes and types alone, so it is the same on a machine without a GPU. Private to the room. */
#ifndef TUTTI_KERNEL_CUDA_CUDA_H
#define TUTTI_KERNEL_CUDA_CUDA_H

#include "kernel/cuda/gpu_launch.h"
#include "kernel/cuda/gpu_walk_args.h"
#include "kernel/kernel.h"

/* GPU_DECLARE_TYPED(norm_fwd), and GPU_TYPED(norm_fwd, 256) in a table: its kernels for f32, bf16 and f16, by enum
 * dtype, each of so many threads. */
#define GPU_DECLARE(name) extern void name##_simulated(const void *)
#define GPU_DECLARE_TYPED(name)                                                                                        \
    GPU_DECLARE(name##_f32);                                                                                           \
    GPU_DECLARE(name##_bf16);                                                                                          \
    GPU_DECLARE(name##_f16)
#define GPU_ONE(name_, threads_)                                                                                       \
    {                                                                                                                  \
        .name = #name_, .threads = (threads_), .simulated = name_##_simulated                                          \
    }
#define GPU_TYPED(name, threads_)                                                                                      \
    {                                                                                                                  \
        [DT_F32] = GPU_ONE(name##_f32, threads_), [DT_BF16] = GPU_ONE(name##_bf16, threads_),                          \
        [DT_F16] = GPU_ONE(name##_f16, threads_)                                                                       \
    }
enum { GPU_TYPES = DT_F16 + 1 };

static inline bool gpu_float(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }
static inline int64_t gpu_parts(int64_t n, int64_t each) { return (n + each - 1) / each; }

/* Calls whose x, or whose gradient of y, is of one of the three types. */
static inline bool gpu_takes(const struct kernel_call *c)
{
    return gpu_float(c->phase == KERNEL_FWD ? c->in[0].dtype : c->dout[0].dtype);
}
static inline struct gpu_rows gpu_rows_of(const struct view *v) { return (struct gpu_rows){v->p, v->stride}; }

/* Blocks x, y, z; nothing where one of them is 0. On a device that computes by the host's hand the kernel is simulated,
 * at once. */
void gpu_launch(const struct kernel_call *c, const struct gpu_kernel *k, int64_t x, int64_t y, int64_t z, size_t shared,
                const void *args, size_t bytes);

/* ---- the slots, by file ---- */
kernel_fn gpu_norm_fwd, gpu_norm_bwd_in, gpu_norm_bwd_w;
bool gpu_norm_accepts(const struct kernel_call *c);
size_t gpu_norm_bwd_w_scratch(const struct kernel_call *c, int n_threads);
kernel_fn gpu_act_fwd, gpu_act_bwd_in;
kernel_fn gpu_add_fwd, gpu_add_bwd_in, gpu_dropout_fwd, gpu_dropout_bwd_in;
kernel_fn gpu_rotary_fwd, gpu_rotary_bwd_in;
kernel_fn gpu_copy_fwd, gpu_copy_bwd_in;
bool gpu_copy_accepts(const struct kernel_call *c);
kernel_fn gpu_embed_fwd, gpu_embed_bwd_w;
bool gpu_embed_accepts(const struct kernel_call *c);
kernel_fn gpu_squares_fwd, gpu_squares_bwd_in, gpu_norm_by_fwd, gpu_norm_by_bwd_in, gpu_norm_by_bwd_w;
bool gpu_norm_by_accepts(const struct kernel_call *c);
size_t gpu_norm_by_bwd_w_scratch(const struct kernel_call *c, int n_threads);
kernel_fn gpu_xent_fwd, gpu_xent_part, gpu_xent_bwd_in;
bool gpu_xent_accepts(const struct kernel_call *c);
size_t gpu_xent_fwd_scratch(const struct kernel_call *c, int n_threads);
kernel_fn gpu_cast, gpu_sum_into, gpu_sum_tree, gpu_sum_parts, gpu_sum_squares, gpu_exact_squares, gpu_find_nonfinite,
    gpu_losses, gpu_clip;
bool gpu_sum_parts_accepts(const struct kernel_call *c);
size_t gpu_sum_squares_scratch(const struct kernel_call *c, int n_threads);
size_t gpu_find_nonfinite_scratch(const struct kernel_call *c, int n_threads);
kernel_fn gpu_update;
bool gpu_update_accepts(const struct kernel_call *c);
kernel_fn gpu_attention_fwd, gpu_attention_bwd_in;
bool gpu_attention_accepts(const struct kernel_call *c);
size_t gpu_attention_scratch(const struct kernel_call *c, int n_threads);

#endif
