/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a GPU: which rows have one. Kernels are *.cu, in the words of gpu.h; the slots that launch them are in
 * the *.c of the same name, their arguments in *_args.h, which both include. */
#include "kernel/cuda/cuda.h"

/* clang-format off */
#define NORM                                                                                                           \
    {[KERNEL_FWD] = {.run = gpu_norm_fwd, .accepts = gpu_norm_accepts},                                                \
     [KERNEL_BWD_IN] = {.run = gpu_norm_bwd_in, .accepts = gpu_norm_accepts},                                          \
     [KERNEL_BWD_W] = {.run = gpu_norm_bwd_w, .accepts = gpu_norm_accepts, .scratch = gpu_norm_bwd_w_scratch}}

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
        [OP_ATTENTION] = ATTENTION,
        [OP_ATTENTION_PART] = ATTENTION,
    },
};
/* clang-format on */
