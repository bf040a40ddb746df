/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu family: which rows and phases it serves. All have several ways, so every slot is a door; one left out falls
 * through to the next family. */
#include "kernel/cpu/cpu.h"

#define DOOR(to)                                                                                                       \
    {                                                                                                                  \
        .choose = to                                                                                                   \
    }
#define VEC DOOR(vec_choose)
#define LINEAR DOOR(linear_choose)
#define SCALED DOOR(linear_scaled_choose)
#define GROUPED DOOR(grouped_choose)
#define GROUPED_SCALED DOOR(grouped_scaled_choose)
#define CODED DOOR(coded_choose)
#define PARTS DOOR(parts_choose)
#define ATTENTION DOOR(attention_choose)

#define ARRAY(op, name) [OP_##op] = {[KERNEL_FWD] = {.run = array_##name##_cpu, .way = "vectors"}},

/* clang-format off */
const struct kernel_family kernel_family_cpu = {
    .name = "cpu",
    .slot = {
        [OP_EMBED] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_LINEAR] = {[KERNEL_FWD] = LINEAR, [KERNEL_BWD_IN] = LINEAR, [KERNEL_BWD_W] = LINEAR},
        [OP_RMSNORM] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_LAYERNORM] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_HEADNORM] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_SQUARES] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_NORM_BY] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_ADAPTED_SQUARES] = {[KERNEL_FWD] = VEC},
        [OP_MAGNITUDES] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_ROTARY] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_ATTENTION] = {[KERNEL_FWD] = ATTENTION, [KERNEL_BWD_IN] = ATTENTION},
        [OP_ATTENTION_PART] = {[KERNEL_FWD] = ATTENTION, [KERNEL_BWD_IN] = ATTENTION},
        [OP_ATTENTION_BIASED] = {[KERNEL_FWD] = ATTENTION, [KERNEL_BWD_IN] = ATTENTION},
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
        [OP_CODED] = {[KERNEL_FWD] = CODED},
        [OP_EXPERT_BIAS] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_AMAX] = {[KERNEL_FWD] = VEC},
        [OP_QUANTISE] = {[KERNEL_FWD] = VEC},
        [OP_LINEAR_SCALED] = {[KERNEL_FWD] = SCALED, [KERNEL_BWD_IN] = SCALED, [KERNEL_BWD_W] = SCALED},
        [OP_AMAX_PARTS] = {[KERNEL_FWD] = PARTS},
        [OP_QUANTISE_PARTS] = {[KERNEL_FWD] = PARTS},
        [OP_GROUPED_SCALED] = {[KERNEL_FWD] = GROUPED_SCALED,
                               [KERNEL_BWD_IN] = GROUPED_SCALED,
                               [KERNEL_BWD_W] = GROUPED_SCALED},
        [OP_MLA_KV] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_TRIM] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_JOIN] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_CONV] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_GATED_NORM] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_SCAN] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC, [KERNEL_BWD_W] = VEC},
        [OP_SCAN_END] = {[KERNEL_FWD] = VEC, [KERNEL_BWD_IN] = VEC},
        [OP_SCAN_CACHED] = {[KERNEL_FWD] = VEC},
        ARRAY_OPS(ARRAY) /* whole arrays */
    },
};
/* clang-format on */
