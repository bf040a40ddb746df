/* SPDX-License-Identifier: Apache-2.0 */
/* vec_body.h: the table of vector kernels, defined once per build.
 * All bodies are written in the words of vec.h; attention's matrix products come from tile.h and live elsewhere. */
#ifndef TUTTI_KERNEL_CPU_VEC_BODY_H
#define TUTTI_KERNEL_CPU_VEC_BODY_H

#include "kernel/cpu/act_body.h"
#include "kernel/cpu/adapted_body.h"
#include "kernel/cpu/add_body.h"
#include "kernel/cpu/build.h"
#include "kernel/cpu/conv_body.h"
#include "kernel/cpu/embed_body.h"
#include "kernel/cpu/experts_body.h"
#include "kernel/cpu/gate_body.h"
#include "kernel/cpu/norm_body.h"
#include "kernel/cpu/rotary_body.h"
#include "kernel/cpu/scan_bwd_body.h"
#include "kernel/cpu/xent_body.h"

static bool accepts_embed(const struct kernel_call *c)
{
    enum dtype t = c->phase == KERNEL_FWD ? c->in[1].dtype : c->dout[0].dtype;
    return v_takes(t);
}
static bool accepts_main(const struct kernel_call *c)
{
    enum dtype t = main_view(c)->dtype;
    return v_takes(t);
}

/* No head is here: ref's. */
static bool accepts_heads(const struct kernel_call *c) { return at_norm(&c->at)->heads > 0 && accepts_main(c); }

/* Taps and their sums are floats, whatever x is. */
static bool accepts_conv(const struct kernel_call *c) { return v_takes(c->in[0].dtype) && c->in[1].n[1] <= CONV_MOST; }

static bool accepts_scan(const struct kernel_call *c) { return at_scan(&c->at)->heads > 0 && v_takes(c->in[0].dtype); }

static bool accepts_squares(const struct kernel_call *c) { return v_takes(c->in[0].dtype); }

#define VEC_TABLE(isa, words)                                                                                          \
    const struct kernel_family kernel_vec_##isa =                                                                      \
        {                                                                                                              \
            .name = words,                                                                                             \
            .slot =                                                                                                    \
                {                                                                                                      \
                    [OP_EMBED] = {[KERNEL_FWD] = {embed_fwd, NULL, accepts_embed, words, NULL, NULL},                  \
                                  [KERNEL_BWD_W] = {embed_bwd_w, NULL, accepts_embed, words, NULL, NULL}},             \
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
                    [OP_ADAPTED_SQUARES] = {[KERNEL_FWD] = {adapted_squares_fwd, NULL,                                 \
                                                            accepts_main, words, NULL, NULL}},                         \
                    [OP_MAGNITUDES] = {[KERNEL_FWD] = {magnitudes, NULL, accepts_main, words, NULL, NULL},             \
                                       [KERNEL_BWD_IN] = {magnitudes, NULL, accepts_main, words, NULL, NULL},          \
                                       [KERNEL_BWD_W] = {magnitudes_bwd_w, NULL, accepts_main, words, NULL, NULL}},    \
                    [OP_SQUARES] = {[KERNEL_FWD] = {squares_fwd, NULL, accepts_main, words, NULL, NULL},               \
                                    [KERNEL_BWD_IN] = {squares_bwd, NULL, accepts_squares, words, NULL, NULL}},        \
                    [OP_NORM_BY] = {[KERNEL_FWD] = {norm_by_fwd, NULL, accepts_main, words, NULL, NULL},               \
                                    [KERNEL_BWD_IN] = {norm_by_bwd, NULL, accepts_main, words, NULL, NULL},            \
                                    [KERNEL_BWD_W] = {norm_bwd_w, norm_bwd_w_scratch, accepts_main, words, NULL,       \
                                                      NULL}},                                                          \
                    [OP_ROTARY] = {[KERNEL_FWD] = {rotary_run, NULL, accepts_main, words, NULL, NULL},                 \
                                   [KERNEL_BWD_IN] = {rotary_run, NULL, accepts_main, words, NULL, NULL}},             \
                    [OP_ACT] = {[KERNEL_FWD] = {act_fwd, NULL, accepts_main, words, NULL, NULL},                       \
                                [KERNEL_BWD_IN] = {act_bwd_in, NULL, accepts_main, words, NULL, NULL}},                \
                    [OP_ADD] = {[KERNEL_FWD] = {add_fwd, NULL, accepts_main, words, NULL, NULL},                       \
                                [KERNEL_BWD_IN] = {add_bwd_in, NULL, accepts_main, words, NULL, NULL}},                \
                    [OP_DROPOUT] = {[KERNEL_FWD] = {dropout_fwd, NULL, accepts_main, words, NULL, NULL},               \
                                    [KERNEL_BWD_IN] = {dropout_bwd_in, NULL, accepts_main, words, NULL, NULL}},        \
                    [OP_XENT] = {[KERNEL_FWD] = {xent_fwd, xent_fwd_scratch, accepts_main, words, NULL, NULL},         \
                                 [KERNEL_BWD_IN] = {xent_bwd_in, NULL, accepts_main, words, NULL, NULL}},              \
                    [OP_XENT_PART] = {[KERNEL_FWD] = {xent_part, NULL, accepts_main, words, NULL, NULL}},              \
                    [OP_COPY] = {[KERNEL_FWD] = {copy_run, NULL, copy_accepts, words, NULL, NULL},                     \
                                 [KERNEL_BWD_IN] = {copy_run, NULL, copy_accepts, words, NULL, NULL}},                 \
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
                    [OP_CONV] = {[KERNEL_FWD] = {conv_fwd, conv_scratch, accepts_conv, words, NULL, NULL},             \
                                 [KERNEL_BWD_IN] = {conv_bwd_in, conv_scratch, accepts_conv, words, NULL, NULL},       \
                                 [KERNEL_BWD_W] = {conv_bwd_w, conv_scratch, accepts_conv, words, NULL, NULL}},        \
                    [OP_GATED_NORM] = {[KERNEL_FWD] = {gated_norm_fwd, NULL, accepts_heads, words, NULL, NULL},        \
                                       [KERNEL_BWD_IN] = {gated_norm_bwd_in, NULL, accepts_heads, words, NULL, NULL},  \
                                       [KERNEL_BWD_W] = {gated_norm_bwd_w, gated_norm_bwd_w_scratch, accepts_heads,    \
                                                         words, NULL, NULL}},                                          \
                    [OP_SCAN] = {[KERNEL_FWD] = {scan_fwd, scan_fwd_scratch, accepts_scan, words ", f32 panels", NULL, \
                                                 NULL},                                                                \
                                 [KERNEL_BWD_IN] = {scan_bwd, scan_bwd_scratch, accepts_scan,                          \
                                                    words ", f32 panels", NULL, NULL},                                 \
                                 [KERNEL_BWD_W] = {scan_skip, scan_skip_scratch, accepts_scan, words, NULL, NULL}},    \
                    [OP_SCAN_END] = {[KERNEL_FWD] = {scan_fwd, scan_fwd_scratch, accepts_scan, words ", f32 panels",   \
                                                     NULL, NULL},                                                      \
                                     [KERNEL_BWD_IN] = {scan_bwd, scan_bwd_scratch, accepts_scan,                      \
                                                        words ", f32 panels", NULL, NULL}},                            \
                    [OP_SCAN_CACHED] = {[KERNEL_FWD] = {scan_fwd, scan_fwd_scratch, accepts_scan,                      \
                                                        words ", f32 panels", NULL, NULL}},                            \
                    [OP_TRIM] = {[KERNEL_FWD] = {trim_run, NULL, accepts_main, words, NULL, NULL},                     \
                                 [KERNEL_BWD_IN] = {trim_run, NULL, accepts_main, words, NULL, NULL}},                 \
                    [OP_JOIN] = {[KERNEL_FWD] = {join_run, NULL, accepts_main, words, NULL, NULL},                     \
                                 [KERNEL_BWD_IN] = {join_run, NULL, accepts_main, words, NULL, NULL}},                 \
                },                                                                                                     \
    }

#endif
