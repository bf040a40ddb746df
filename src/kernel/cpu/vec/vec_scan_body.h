/* SPDX-License-Identifier: Apache-2.0 */
/* vec_scan_body.h: a table of vector kernels, defined once per build: scans of state spaces.
 * All bodies are written in the words of vec.h. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_SCAN_BODY_H
#define TUTTI_KERNEL_CPU_VEC_VEC_SCAN_BODY_H

#include "kernel/cpu/build.h"
#include "kernel/cpu/vec/scan_bwd_body.h"

static bool accepts_scan(const struct kernel_call *c) { return at_scan(&c->at)->heads > 0 && v_takes(c->in[0].dtype); }

#define VEC_SCAN_TABLE(isa, words)                                                                                     \
    const struct kernel_family kernel_vec_scan_##isa =                                                                 \
        {                                                                                                              \
            .name = words,                                                                                             \
            .slot =                                                                                                    \
                {                                                                                                      \
                    [OP_SCAN] = {[KERNEL_FWD] = {scan_fwd, scan_fwd_scratch, accepts_scan, words ", f32 panels", NULL, \
                                                 NULL},                                                                \
                                 [KERNEL_BWD_IN] = {scan_bwd, scan_bwd_scratch, accepts_scan, words ", f32 panels",    \
                                                    NULL, NULL},                                                       \
                                 [KERNEL_BWD_W] = {scan_skip, scan_skip_scratch, accepts_scan, words, NULL, NULL}},    \
                    [OP_SCAN_END] = {[KERNEL_FWD] = {scan_fwd, scan_fwd_scratch, accepts_scan, words ", f32 panels",   \
                                                     NULL, NULL},                                                      \
                                     [KERNEL_BWD_IN] = {scan_bwd, scan_bwd_scratch, accepts_scan,                      \
                                                        words ", f32 panels", NULL, NULL}},                            \
                    [OP_SCAN_CACHED] = {[KERNEL_FWD] = {scan_fwd, scan_fwd_scratch, accepts_scan,                      \
                                                        words ", f32 panels", NULL, NULL}},                            \
                },                                                                                                     \
    }

#endif
