/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a GPU: which rows have one. Kernels are *.cu, in the words of gpu.h; the slots that launch them are in
 * the *.c of the same name, their arguments in *_args.h, which both include. */
#include "kernel/cuda/cuda.h"

/* clang-format off */
#define NORM                                                                                                           \
    {[KERNEL_FWD] = {.run = gpu_norm_fwd, .accepts = gpu_norm_accepts},                                                \
     [KERNEL_BWD_IN] = {.run = gpu_norm_bwd_in, .accepts = gpu_norm_accepts},                                          \
     [KERNEL_BWD_W] = {.run = gpu_norm_bwd_w, .accepts = gpu_norm_accepts, .scratch = gpu_norm_bwd_w_scratch}}
#define TWO(fwd, back, takes)                                                                                          \
    {[KERNEL_FWD] = {.run = fwd, .accepts = takes}, [KERNEL_BWD_IN] = {.run = back, .accepts = takes}}
#define UPDATE {{.run = gpu_update, .accepts = gpu_update_accepts}}

#define ATTENTION                                                                                                      \
    {[KERNEL_FWD] = {.run = gpu_attention_fwd, .accepts = gpu_attention_accepts, .scratch = gpu_attention_scratch},    \
     [KERNEL_BWD_IN] = {.run = gpu_attention_bwd_in,                                                                   \
                        .accepts = gpu_attention_accepts,                                                              \
                        .scratch = gpu_attention_scratch}}

const struct kernel_family kernel_family_cuda = {
    .name = "cuda-sim",
    .slot = {
        [OP_RMSNORM] = NORM,
        [OP_HEADNORM] = NORM,
        [OP_LAYERNORM] = NORM,
        [OP_SQUARES] = TWO(gpu_squares_fwd, gpu_squares_bwd_in, gpu_norm_by_accepts),
        [OP_NORM_BY] = {[KERNEL_FWD] = {.run = gpu_norm_by_fwd, .accepts = gpu_norm_by_accepts},
                        [KERNEL_BWD_IN] = {.run = gpu_norm_by_bwd_in, .accepts = gpu_norm_by_accepts},
                        [KERNEL_BWD_W] = {.run = gpu_norm_by_bwd_w, .accepts = gpu_norm_by_accepts,
                                          .scratch = gpu_norm_by_bwd_w_scratch}},
        [OP_EMBED] = {[KERNEL_FWD] = {.run = gpu_embed_fwd, .accepts = gpu_embed_accepts},
                      [KERNEL_BWD_W] = {.run = gpu_embed_bwd_w, .accepts = gpu_embed_accepts}},
        [OP_ROTARY] = TWO(gpu_rotary_fwd, gpu_rotary_bwd_in, gpu_takes),
        [OP_ACT] = TWO(gpu_act_fwd, gpu_act_bwd_in, gpu_takes),
        [OP_ADD] = TWO(gpu_add_fwd, gpu_add_bwd_in, gpu_takes),
        [OP_DROPOUT] = TWO(gpu_dropout_fwd, gpu_dropout_bwd_in, gpu_takes),
        [OP_COPY] = TWO(gpu_copy_fwd, gpu_copy_bwd_in, gpu_copy_accepts),
        [OP_XENT] = {[KERNEL_FWD] = {.run = gpu_xent_fwd, .accepts = gpu_xent_accepts, .scratch = gpu_xent_fwd_scratch},
                     [KERNEL_BWD_IN] = {.run = gpu_xent_bwd_in, .accepts = gpu_xent_accepts}},
        [OP_XENT_PART] = {[KERNEL_FWD] = {.run = gpu_xent_part, .accepts = gpu_xent_accepts}},
        [OP_CAST] = {{.run = gpu_cast}},
        [OP_SUM_INTO] = {{.run = gpu_sum_into}},
        [OP_SUM_TREE] = {{.run = gpu_sum_tree}},
        [OP_SUM_PARTS] = {{.run = gpu_sum_parts, .accepts = gpu_sum_parts_accepts}},
        [OP_SUM_SQUARES] = {{.run = gpu_sum_squares, .scratch = gpu_sum_squares_scratch}},
        [OP_EXACT_SQUARES] = {{.run = gpu_exact_squares}},
        [OP_FIND_NONFINITE] = {{.run = gpu_find_nonfinite, .scratch = gpu_find_nonfinite_scratch}},
        [OP_LOSSES] = {{.run = gpu_losses}},
        [OP_CLIP] = {{.run = gpu_clip}},
        [OP_ADAMW] = UPDATE,
        [OP_SGD] = UPDATE,
        [OP_LION] = UPDATE,
        [OP_MOMENTUM] = UPDATE,
        [OP_UNIT] = UPDATE,
        [OP_BLEND] = UPDATE,
        [OP_ADAMW16] = UPDATE,
        [OP_ADAMW8] = UPDATE,
        [OP_APPLY] = UPDATE,
        [OP_AVERAGE] = UPDATE,
        [OP_ROUND] = UPDATE,
        [OP_FACTOR_SUMS] = UPDATE,
        [OP_FACTOR_KEEP] = UPDATE,
        [OP_FACTOR_MEAN] = UPDATE,
        [OP_FACTOR_SIZE] = UPDATE,
        [OP_FACTOR_APPLY] = UPDATE,
        [OP_ATTENTION] = ATTENTION,
        [OP_ATTENTION_PART] = ATTENTION,
    },
};
/* clang-format on */
