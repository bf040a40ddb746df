/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h: the parts of the operation rows, one file each; only ops.c and its siblings include this.
 *   ops_shape.c  infer_*   shapes and dtypes; ops_shape_attention.c, ops_shape_experts.c
 *   ops_cost.c   flops_*, bytes_*
 *   ops_rule.c   rule_*    mesh types
 *   ops_lowered.c          all of it, for rows of fewer bits; ops_parts.c for those of experts
 *   ops_scan.c             all of it, for rows of state spaces
 *   ops_array.c            all of it, for whole arrays; update.c: shapes of updates
 *   ops_place.c            what goes by a token's place
 * Order: Local. */
#ifndef TUTTI_KERNEL_OPS_H
#define TUTTI_KERNEL_OPS_H

#include "kernel/kernel.h"

/* In an infer_fn: what is needed, or the text that says so. */
#define NEED(cond, text)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) return text;                                                                                      \
    } while (0)

/* What they ask of views, and make. */
static inline bool is_float(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }
/* Of activations or weights. */
static inline bool is_matrix(const struct view *v) { return v->nd == 2 && is_float(v->dtype) && v->stride >= v->n[1]; }
static inline bool is_vector(const struct view *v, enum dtype t) { return v->nd == 1 && v->dtype == t; }
static inline bool is_vector_of(const struct view *v, enum dtype t, int64_t n)
{
    return is_vector(v, t) && v->n[0] == n;
}
static inline struct view dense1(enum dtype t, int64_t n)
{
    return (struct view){.dtype = t, .nd = 1, .n = {n}, .stride = n};
}
static inline struct view dense2(enum dtype t, int64_t rows, int64_t cols)
{
    return (struct view){.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
}

typedef const char *infer_fn(const struct op_attrs *at, int n_in, const struct view *in, struct view *out);
typedef double cost_fn(const struct kernel_call *c);
typedef const char *rule_fn(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out);

infer_fn infer_embed, infer_linear, infer_rmsnorm, infer_headnorm, infer_squares, infer_norm_by, infer_layernorm,
    infer_rotary, infer_attention, infer_attention_cached, infer_attention_part, infer_context, infer_act, infer_add,
    infer_dropout, infer_xent, infer_xent_part, infer_copy, infer_same, infer_rows_whole, infer_rows_part;
cost_fn flops_linear, flops_norm, flops_rotary, flops_attention, flops_attention_cached, flops_attention_part,
    flops_context, flops_act, flops_elementwise, flops_xent, flops_embed, flops_none;
cost_fn bytes_whole, bytes_embed;
rule_fn rule_embed, rule_linear, rule_norm, rule_headnorm, rule_squares, rule_norm_by, rule_rotary, rule_attention,
    rule_attention_cached, rule_context, rule_act, rule_add, rule_dropout, rule_xent, rule_xent_part, rule_copy;

infer_fn infer_router, infer_load, infer_balance, infer_permute, infer_grouped, infer_unpermute, infer_expert_bias,
    infer_mla_kv, infer_trim, infer_join, infer_patches, infer_pool, infer_insert, infer_dispatch, infer_combine;
cost_fn flops_grouped;
rule_fn rule_router, rule_load, rule_balance, rule_permute, rule_grouped, rule_unpermute, rule_expert_bias, rule_mla_kv,
    rule_join, rule_patches, rule_pool, rule_insert, rule_dispatch, rule_combine;

/* Of state spaces: ops_scan.c. */
infer_fn infer_conv, infer_times, infer_scan, infer_scan_end, infer_gated_norm, infer_conv_cached, infer_scan_cached,
    infer_tails, infer_halo, infer_carry;
cost_fn flops_conv, flops_times, flops_scan, flops_gated_norm;
rule_fn rule_conv, rule_times, rule_scan, rule_scan_end, rule_gated_norm, rule_conv_cached, rule_scan_cached,
    rule_tails, rule_halo;

/* Of matrices in few bits: ops_coded.c. */
infer_fn infer_coded;
cost_fn flops_coded;
rule_fn rule_coded;
/* Of encoder and decoder: ops_biased.c. */
infer_fn infer_pick, infer_distances, infer_attention_biased, infer_attention_cached_biased;
cost_fn flops_attention_biased, flops_attention_cached_biased;
rule_fn rule_pick, rule_distances, rule_attention_biased, rule_attention_cached_biased;
/* Of matrices that are a direction and lengths: ops_adapted.c. */
infer_fn infer_adapted_squares, infer_magnitudes;
cost_fn flops_adapted_squares, flops_magnitudes;
rule_fn rule_adapted_squares, rule_magnitudes;

/* Of what lowering puts in: ops_lowered.c, ops_parts.c. */
infer_fn infer_amax, infer_quantise, infer_linear_scaled, infer_amax_parts, infer_quantise_parts, infer_grouped_scaled;
cost_fn flops_linear_scaled, flops_grouped_scaled;
rule_fn rule_lowered;

/* Of whole arrays: ops_array.c, update.c. */
infer_fn infer_cast, infer_sum_into, infer_sum_tree, infer_sum_parts, infer_sum_squares, infer_exact_squares,
    infer_find_nonfinite, infer_encode, infer_decode, infer_unpack, infer_rounded, infer_exponents, infer_losses,
    infer_clip, infer_update;
cost_fn flops_update, bytes_added, bytes_update;

#endif
