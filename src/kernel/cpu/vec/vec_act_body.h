/* SPDX-License-Identifier: Apache-2.0 */
/* vec_act_body.h: a table of vector kernels, defined once per build: activations, gates, short convolutions.
 * All bodies are written in the words of vec.h. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_ACT_BODY_H
#define TUTTI_KERNEL_CPU_VEC_VEC_ACT_BODY_H

#include "kernel/cpu/vec/act_body.h"
#include "kernel/cpu/build.h"
#include "kernel/cpu/vec/conv_body.h"
#include "kernel/cpu/vec/gate_body.h"

/* Taps and their sums are floats, whatever x is. */
static bool accepts_conv(const struct kernel_call *c) { return v_takes(c->in[0].dtype) && c->in[1].n[1] <= CONV_MOST; }

#define VEC_ACT_TABLE(isa, words)                                                                                      \
    const struct kernel_family kernel_vec_act_##isa =                                                                  \
        {                                                                                                              \
            .name = words,                                                                                             \
            .slot =                                                                                                    \
                {                                                                                                      \
                    [OP_ACT] = {[KERNEL_FWD] = {act_fwd, NULL, accepts_main, words, NULL, NULL},                       \
                                [KERNEL_BWD_IN] = {act_bwd_in, NULL, accepts_main, words, NULL, NULL}},                \
                    [OP_GATED_NORM] = {[KERNEL_FWD] = {gated_norm_fwd, NULL, accepts_heads, words, NULL, NULL},        \
                                       [KERNEL_BWD_IN] = {gated_norm_bwd_in, NULL, accepts_heads, words, NULL, NULL},  \
                                       [KERNEL_BWD_W] = {gated_norm_bwd_w, gated_norm_bwd_w_scratch, accepts_heads,    \
                                                         words, NULL, NULL}},                                          \
                    [OP_CONV] = {[KERNEL_FWD] = {conv_fwd, conv_scratch, accepts_conv, words, NULL, NULL},             \
                                 [KERNEL_BWD_IN] = {conv_bwd_in, conv_scratch, accepts_conv, words, NULL, NULL},       \
                                 [KERNEL_BWD_W] = {conv_bwd_w, conv_scratch, accepts_conv, words, NULL, NULL}},        \
                },                                                                                                     \
    }

#endif
