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
    },
};
/* clang-format on */
