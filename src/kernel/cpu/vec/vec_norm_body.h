/* SPDX-License-Identifier: Apache-2.0 */
/* vec_norm_body.h: a table of vector kernels, defined once per build: norms and what goes with them, the loss.
 * All bodies are written in the words of vec.h. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_NORM_BODY_H
#define TUTTI_KERNEL_CPU_VEC_VEC_NORM_BODY_H

#include "kernel/cpu/vec/adapted_body.h"
#include "kernel/cpu/build.h"
#include "kernel/cpu/vec/norm_body.h"
#include "kernel/cpu/vec/xent_body.h"

static bool accepts_squares(const struct kernel_call *c) { return v_takes(c->in[0].dtype); }

#define VEC_NORM_TABLE(isa, words)                                                                                     \
    const struct kernel_family kernel_vec_norm_##isa =                                                                 \
        {                                                                                                              \
            .name = words,                                                                                             \
            .slot =                                                                                                    \
                {                                                                                                      \
                    [OP_RMSNORM] = {[KERNEL_FWD] = {rmsnorm_fwd, NULL, accepts_main, words, NULL, NULL},               \
                                    [KERNEL_BWD_IN] = {rmsnorm_bwd_in, NULL, accepts_main, words, NULL, NULL},         \
                                    [KERNEL_BWD_W] = {norm_bwd_w, norm_bwd_w_scratch, accepts_main, words, NULL,       \
                                                      NULL}},                                                          \
                    [OP_LAYERNORM] = {[KERNEL_FWD] = {layernorm_fwd, NULL, accepts_main, words, NULL, NULL},           \
                                      [KERNEL_BWD_IN] = {layernorm_bwd_in, NULL, accepts_main, words, NULL, NULL},     \
                                      [KERNEL_BWD_W] = {norm_bwd_w, norm_bwd_w_scratch, accepts_main, words, NULL,     \
                                                        NULL}},                                                        \
                    [OP_HEADNORM] = {[KERNEL_FWD] = {rmsnorm_fwd, NULL, accepts_heads, words, NULL, NULL},             \
                                     [KERNEL_BWD_IN] = {rmsnorm_bwd_in, NULL, accepts_heads, words, NULL, NULL},       \
                                     [KERNEL_BWD_W] = {norm_bwd_w, norm_bwd_w_scratch, accepts_heads, words, NULL,     \
                                                       NULL}},                                                         \
                    [OP_SQUARES] = {[KERNEL_FWD] = {squares_fwd, NULL, accepts_main, words, NULL, NULL},               \
                                    [KERNEL_BWD_IN] = {squares_bwd, NULL, accepts_squares, words, NULL, NULL}},        \
                    [OP_NORM_BY] = {[KERNEL_FWD] = {norm_by_fwd, NULL, accepts_main, words, NULL, NULL},               \
                                    [KERNEL_BWD_IN] = {norm_by_bwd, NULL, accepts_main, words, NULL, NULL},            \
                                    [KERNEL_BWD_W] = {norm_bwd_w, norm_bwd_w_scratch, accepts_main, words, NULL,       \
                                                      NULL}},                                                          \
                    [OP_ADAPTED_SQUARES] = {[KERNEL_FWD] = {adapted_squares_fwd, NULL,                                 \
                                                            accepts_main, words, NULL, NULL}},                         \
                    [OP_MAGNITUDES] = {[KERNEL_FWD] = {magnitudes, NULL, accepts_main, words, NULL, NULL},             \
                                       [KERNEL_BWD_IN] = {magnitudes, NULL, accepts_main, words, NULL, NULL},          \
                                       [KERNEL_BWD_W] = {magnitudes_bwd_w, NULL, accepts_main, words, NULL, NULL}},    \
                    [OP_XENT] = {[KERNEL_FWD] = {xent_fwd, xent_fwd_scratch, accepts_main, words, NULL, NULL},         \
                                 [KERNEL_BWD_IN] = {xent_bwd_in, NULL, accepts_main, words, NULL, NULL}},              \
                    [OP_XENT_PART] = {[KERNEL_FWD] = {xent_part, NULL, accepts_main, words, NULL, NULL}},              \
                },                                                                                                     \
    }

#endif
