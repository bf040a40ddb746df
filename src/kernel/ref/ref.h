/* SPDX-License-Identifier: Apache-2.0 */
/* ref.h: what the reference kernels share: element access by dtype and work split by row.
 *
 * The reference computes in double and rounds once, when it stores: it says what an operation means, and every
 * other family is held against it. Each row of a result is formed by one thread in a fixed order, so the number
 * of threads cannot change a bit. Only src/kernel/ref/ includes this. Order: Local.
 */
#ifndef TUTTI_KERNEL_REF_REF_H
#define TUTTI_KERNEL_REF_REF_H

#include "kernel/array_ops.h"
#include "kernel/kernel.h"

static inline double ref_load(const void *p, enum dtype t, int64_t i)
{
    switch (t) {
    case DT_F32: return ((const float *)p)[i];
    case DT_BF16: return bf16_to_f32(((const bf16 *)p)[i]);
    case DT_F16: return f16_to_f32(((const uint16_t *)p)[i]);
    case DT_F64: return ((const double *)p)[i];
    default: CHECK(0, "no arithmetic on %s", dtype_name(t)); return 0;
    }
}

static inline void ref_store(void *p, enum dtype t, int64_t i, double v)
{
    switch (t) {
    case DT_F32: ((float *)p)[i] = (float)v; return;
    case DT_BF16: ((bf16 *)p)[i] = bf16_from_f32((float)v); return;
    case DT_F16: ((uint16_t *)p)[i] = f16_from_f32((float)v); return;
    case DT_F64: ((double *)p)[i] = v; return;
    default: CHECK(0, "no arithmetic on %s", dtype_name(t));
    }
}

/* Element of row r (of all dims but the last), column c. */
static inline double ref_get(const struct view *v, int64_t r, int64_t c)
{
    return ref_load(v->p, v->dtype, r * v->stride + c);
}
static inline void ref_set(const struct view *v, int64_t r, int64_t c, double x)
{
    ref_store(v->p, v->dtype, r * v->stride + c, x);
}

static inline int32_t ref_int(const struct view *v, int64_t i) { return ((const int32_t *)v->p)[i]; }

/* din[i] = acc[i] + g at one element, where a gradient of in[i] is wanted. */
static inline void ref_put_grad(const struct kernel_call *c, int i, int64_t row, int64_t col, double g)
{
    if (!c->din[i].p) return;
    double before = c->acc[i].p ? ref_get(&c->acc[i], row, col) : 0;
    ref_set(&c->din[i], row, col, before + g);
}

/* fn for every row in [0, n), split over the call's team. mine: the member's own `each` doubles of c->scratch. */
typedef void ref_row_fn(const struct kernel_call *c, int64_t row, double *mine);
void ref_each_row(const struct kernel_call *c, int64_t n, int64_t each, ref_row_fn *fn);
/* Bytes of scratch for ref_each_row with `each` doubles per member. */
size_t ref_scratch(int64_t each, int n_threads);

kernel_fn embed_fwd_ref, embed_bwd_w_ref;
kernel_fn linear_fwd_ref, linear_bwd_in_ref, linear_bwd_w_ref;
kernel_fn rmsnorm_fwd_ref, rmsnorm_bwd_in_ref, rmsnorm_bwd_w_ref;
kernel_fn squares_fwd_ref, squares_bwd_in_ref, norm_by_fwd_ref, norm_by_bwd_in_ref, norm_by_bwd_w_ref;
kernel_fn headnorm_fwd_ref, headnorm_bwd_in_ref, headnorm_bwd_w_ref;
kernel_fn layernorm_fwd_ref, layernorm_bwd_in_ref, layernorm_bwd_w_ref;
kernel_fn rotary_fwd_ref, rotary_bwd_in_ref;
kernel_fn attention_fwd_ref, attention_bwd_in_ref, attention_cached_fwd_ref, attention_part_fwd_ref,
    attention_part_bwd_in_ref;
kernel_fn act_fwd_ref, act_bwd_in_ref;
kernel_fn add_fwd_ref, add_bwd_in_ref, dropout_fwd_ref, dropout_bwd_in_ref;
kernel_fn xent_fwd_ref, xent_bwd_in_ref, xent_part_ref;
kernel_fn copy_fwd_ref, copy_bwd_in_ref;
kernel_fn router_fwd_ref, router_bwd_in_ref, load_fwd_ref, balance_fwd_ref, balance_bwd_in_ref;
kernel_fn permute_fwd_ref, permute_bwd_in_ref, unpermute_fwd_ref, unpermute_bwd_in_ref;
kernel_fn grouped_fwd_ref, grouped_bwd_in_ref, grouped_bwd_w_ref;
kernel_fn expert_bias_fwd_ref, expert_bias_bwd_in_ref, expert_bias_bwd_w_ref;
kernel_fn coded_fwd_ref;
kernel_fn adapted_squares_fwd_ref, magnitudes_fwd_ref, magnitudes_bwd_in_ref, magnitudes_bwd_w_ref;
kernel_fn amax_ref, quantise_ref, linear_scaled_fwd_ref, linear_scaled_bwd_in_ref, linear_scaled_bwd_w_ref;
kernel_fn amax_parts_ref, quantise_parts_ref, grouped_scaled_ref;
kernel_fn mla_kv_fwd_ref, mla_kv_bwd_in_ref, trim_fwd_ref, trim_bwd_in_ref;
kernel_fn join_fwd_ref, join_bwd_in_ref;
kernel_fn patches_fwd_ref, pool_fwd_ref, pool_bwd_in_ref, insert_fwd_ref, insert_bwd_in_ref;
kernel_fn conv_fwd_ref, conv_bwd_in_ref, conv_bwd_w_ref, times_fwd_ref, times_bwd_in_ref, times_bwd_w_ref;
kernel_fn scan_fwd_ref, scan_bwd_in_ref, scan_bwd_w_ref, scan_cached_fwd_ref, conv_cached_fwd_ref;
kernel_fn gated_norm_fwd_ref, gated_norm_bwd_in_ref, gated_norm_bwd_w_ref;
kernel_fn tails_fwd_ref, tails_bwd_in_ref, halo_fwd_ref, halo_bwd_in_ref, carry_fwd_ref, carry_bwd_in_ref;

kernel_fn pick_fwd_ref, distances_fwd_ref, distances_bwd_w_ref, attention_biased_fwd_ref, attention_biased_bwd_in_ref,
    attention_cached_biased_fwd_ref;

size_t linear_scratch_ref(const struct kernel_call *c, int n_threads);
size_t attention_scratch_ref(const struct kernel_call *c, int n_threads);
size_t attention_part_scratch_ref(const struct kernel_call *c, int n_threads);
size_t xent_scratch_ref(const struct kernel_call *c, int n_threads);
size_t router_scratch_ref(const struct kernel_call *c, int n_threads);
size_t permute_scratch_ref(const struct kernel_call *c, int n_threads);
size_t unpermute_scratch_ref(const struct kernel_call *c, int n_threads);
size_t grouped_scratch_ref(const struct kernel_call *c, int n_threads);
size_t conv_scratch_ref(const struct kernel_call *c, int n_threads);
size_t conv_cached_scratch_ref(const struct kernel_call *c, int n_threads);
size_t scan_scratch_ref(const struct kernel_call *c, int n_threads);
size_t carry_scratch_ref(const struct kernel_call *c, int n_threads);
size_t attention_biased_scratch_ref(const struct kernel_call *c, int n_threads);
size_t attention_cached_biased_scratch_ref(const struct kernel_call *c, int n_threads);

/* Whole arrays: arrays.c. */
#define DECLARE(op, name) kernel_fn array_##name##_ref;
ARRAY_OPS(DECLARE)
#undef DECLARE

#endif
