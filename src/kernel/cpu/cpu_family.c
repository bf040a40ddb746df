/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu family: which vectorised kernel serves which row and phase. A slot left out falls through to the next
 * family. */
#include "kernel/cpu/attention.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/vec_family.h"

/* A slot that vec_avx512.c and vec_avx2.c fill: one function for all of them picks the build (vec_family.c). */
#define VEC                                                                                                            \
    {                                                                                                                  \
        vec_run, vec_scratch, vec_accepts, NULL                                                                        \
    }
#define GROUPED                                                                                                        \
    {                                                                                                                  \
        grouped_run, grouped_scratch, grouped_accepts, NULL                                                            \
    }
#define ATTENTION                                                                                                      \
    {                                                                                                                  \
        attention_run, attention_scratch, attention_accepts, NULL                                                      \
    }

/* clang-format off */
const struct kernel_family kernel_family_cpu = {
    .name = "cpu",
    .slot = {
        [OP_EMBED] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_LINEAR] = {[KERNEL_FWD] = {linear_fwd_cpu, linear_fwd_scratch, linear_accepts, linear_path},
                       [KERNEL_BWD_IN] = {linear_bwd_in_cpu, linear_bwd_in_scratch, linear_accepts, linear_path},
                       [KERNEL_BWD_W] = {linear_bwd_w_cpu, linear_bwd_w_scratch, linear_accepts, linear_path}},
        [OP_RMSNORM] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_LAYERNORM] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_ROTARY] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_ATTENTION] = {[KERNEL_FWD] = ATTENTION, [KERNEL_BWD_IN] = ATTENTION},
        [OP_ATTENTION_PART] = {[KERNEL_FWD] = ATTENTION, [KERNEL_BWD_IN] = ATTENTION},
        [OP_ATTENTION_CACHED] = {[KERNEL_FWD] = ATTENTION},
        [OP_ACT] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_ADD] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_DROPOUT] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_XENT] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_XENT_PART] = {[KERNEL_FWD] = VEC},
        [OP_COPY] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_PERMUTE] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_UNPERMUTE] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_GROUPED] = {[KERNEL_FWD] = GROUPED, [KERNEL_BWD_IN] = GROUPED, [KERNEL_BWD_W] = GROUPED},
        [OP_MLA_KV] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_TRIM] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
    },
};
/* clang-format on */
