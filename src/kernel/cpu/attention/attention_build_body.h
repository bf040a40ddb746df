/* SPDX-License-Identifier: Apache-2.0 */
/* attention_build_body.h: the functions of one build of attention, gathered into its table. */
#ifndef TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_BUILD_BODY_H
#define TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_BUILD_BODY_H

#include "kernel/cpu/attention/attention_bwd_body.h"
#include "kernel/cpu/attention/attention_cached_body.h"
#include "kernel/cpu/attention/attention_fwd_body.h"
#include "kernel/cpu/build.h"

static size_t attention_build_scratch(const struct kernel_call *c, const struct tile_ops *o, int n_threads)
{
    if (c->op == OP_ATTENTION_CACHED) return attention_cached_scratch(c, o, n_threads);
    struct attn x = attn_of(c, o);
    attn_tables(&x, NULL);
    struct attn_fwd f;
    struct attn_bwd w;
    size_t each = c->phase == KERNEL_FWD ? attn_fwd_carve(&x, &f, NULL) : attn_bwd_carve(&x, &w, NULL);
    return x.tables + each * (size_t)n_threads;
}

#define ATTENTION_TABLE(isa)                                                                                           \
    const struct attention_build attention_##isa = {attention_fwd,           attention_bwd, attention_cached,          \
                                                    attention_build_scratch, cached_few,    cached_few_scratch}

#endif
