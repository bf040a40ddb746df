/* SPDX-License-Identifier: Apache-2.0 */
/* vec_move_body.h: a table of vector kernels, defined once per build: what looks up, adds, turns and sorts rows.
 * All bodies are written in the words of vec.h. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_MOVE_BODY_H
#define TUTTI_KERNEL_CPU_VEC_VEC_MOVE_BODY_H

#include "kernel/cpu/vec/add_body.h"
#include "kernel/cpu/build.h"
#include "kernel/cpu/vec/embed_body.h"
#include "kernel/cpu/vec/experts_body.h"
#include "kernel/cpu/vec/rotary_body.h"

static bool accepts_embed(const struct kernel_call *c)
{
    enum dtype t = c->phase == KERNEL_FWD ? c->in[1].dtype : c->dout[0].dtype;
    return v_takes(t);
}

#define VEC_MOVE_TABLE(isa, words)                                                                                     \
    const struct kernel_family kernel_vec_move_##isa =                                                                 \
        {                                                                                                              \
            .name = words,                                                                                             \
            .slot =                                                                                                    \
                {                                                                                                      \
                    [OP_EMBED] = {[KERNEL_FWD] = {embed_fwd, NULL, accepts_embed, words, NULL, NULL},                  \
                                  [KERNEL_BWD_W] = {embed_bwd_w, NULL, accepts_embed, words, NULL, NULL}},             \
                    [OP_COPY] = {[KERNEL_FWD] = {copy_run, NULL, copy_accepts, words, NULL, NULL},                     \
                                 [KERNEL_BWD_IN] = {copy_run, NULL, copy_accepts, words, NULL, NULL}},                 \
                    [OP_ADD] = {[KERNEL_FWD] = {add_fwd, NULL, accepts_main, words, NULL, NULL},                       \
                                [KERNEL_BWD_IN] = {add_bwd_in, NULL, accepts_main, words, NULL, NULL}},                \
                    [OP_DROPOUT] = {[KERNEL_FWD] = {dropout_fwd, NULL, accepts_main, words, NULL, NULL},               \
                                    [KERNEL_BWD_IN] = {dropout_bwd_in, NULL, accepts_main, words, NULL, NULL}},        \
                    [OP_ROTARY] = {[KERNEL_FWD] = {rotary_run, NULL, accepts_main, words, NULL, NULL},                 \
                                   [KERNEL_BWD_IN] = {rotary_run, NULL, accepts_main, words, NULL, NULL}},             \
                    [OP_PERMUTE] = {[KERNEL_FWD] = {permute_fwd, permute_fwd_scratch, accepts_main, words, NULL,       \
                                                    NULL},                                                             \
                                    [KERNEL_BWD_IN] = {permute_bwd_in, NULL, accepts_main, words, NULL, NULL}},        \
                    [OP_UNPERMUTE] = {[KERNEL_FWD] = {unpermute_fwd, NULL, accepts_main, words, NULL, NULL},           \
                                      [KERNEL_BWD_IN] = {unpermute_bwd_in, NULL, accepts_main, words, NULL, NULL}},    \
                    [OP_EXPERT_BIAS] = {[KERNEL_FWD] = {expert_bias_fwd, NULL, accepts_main, words, NULL, NULL},       \
                                        [KERNEL_BWD_IN] = {expert_bias_bwd_in, NULL, accepts_main, words, NULL, NULL}, \
                                        [KERNEL_BWD_W] = {expert_bias_bwd_w, NULL, accepts_main, words, NULL, NULL}},  \
                    [OP_MLA_KV] = {[KERNEL_FWD] = {mla_kv_fwd, NULL, accepts_main, words, NULL, NULL},                 \
                                   [KERNEL_BWD_IN] = {mla_kv_bwd, NULL, accepts_main, words, NULL, NULL}},             \
                    [OP_TRIM] = {[KERNEL_FWD] = {trim_run, NULL, accepts_main, words, NULL, NULL},                     \
                                 [KERNEL_BWD_IN] = {trim_run, NULL, accepts_main, words, NULL, NULL}},                 \
                    [OP_JOIN] = {[KERNEL_FWD] = {join_run, NULL, accepts_main, words, NULL, NULL},                     \
                                 [KERNEL_BWD_IN] = {join_run, NULL, accepts_main, words, NULL, NULL}},                 \
                },                                                                                                     \
    }

#endif
