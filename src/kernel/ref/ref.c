/* SPDX-License-Identifier: Apache-2.0 */
/* The reference family: every row, every phase, plain loops. It is the last of every chain, so it accepts every
 * call that infer accepted. */
#include "kernel/ref/ref.h"

#include "kernel/exponent_bins.h"
#include "kernel/rounded.h"
#include "kernel/words.h"

struct row_job {
    const struct kernel_call *c;
    int64_t n, each;
    ref_row_fn *fn;
};

static void run_rows(void *arg, int member, int n_members)
{
    const struct row_job *j = arg;
    int64_t lo, hi;
    team_split(j->n, member, n_members, &lo, &hi);
    double *mine = j->each ? (double *)j->c->scratch + member * j->each : NULL;
    for (int64_t row = lo; row < hi; row++) j->fn(j->c, row, mine);
}

void ref_each_row(const struct kernel_call *c, int64_t n, int64_t each, ref_row_fn *fn)
{
    struct row_job j = {c, n, each, fn};
    team_run(kernel_team(c), run_rows, &j);
}

size_t ref_scratch(int64_t each, int n_threads) { return (size_t)each * (size_t)n_threads * sizeof(double); }

#define ARRAY(op, name) [OP_##op] = {[KERNEL_FWD] = {.run = array_##name##_ref}},

/* clang-format off */
const struct kernel_family kernel_family_ref = {
    .name = "ref",
    .slot = {
        [OP_EMBED] = {[KERNEL_FWD] = {.run = embed_fwd_ref}, [KERNEL_BWD_W] = {.run = embed_bwd_w_ref}},
        [OP_LINEAR] = {[KERNEL_FWD] = {.run = linear_fwd_ref},
                       [KERNEL_BWD_IN] = {.run = linear_bwd_in_ref, .scratch = linear_scratch_ref},
                       [KERNEL_BWD_W] = {.run = linear_bwd_w_ref, .scratch = linear_scratch_ref}},
        [OP_RMSNORM] = {[KERNEL_FWD] = {.run = rmsnorm_fwd_ref},
                        [KERNEL_BWD_IN] = {.run = rmsnorm_bwd_in_ref},
                        [KERNEL_BWD_W] = {.run = rmsnorm_bwd_w_ref}},
        [OP_LAYERNORM] = {[KERNEL_FWD] = {.run = layernorm_fwd_ref},
                          [KERNEL_BWD_IN] = {.run = layernorm_bwd_in_ref},
                          [KERNEL_BWD_W] = {.run = layernorm_bwd_w_ref}},
        [OP_HEADNORM] = {[KERNEL_FWD] = {.run = headnorm_fwd_ref},
                         [KERNEL_BWD_IN] = {.run = headnorm_bwd_in_ref},
                         [KERNEL_BWD_W] = {.run = headnorm_bwd_w_ref}},
        [OP_SQUARES] = {[KERNEL_FWD] = {.run = squares_fwd_ref}, [KERNEL_BWD_IN] = {.run = squares_bwd_in_ref}},
        [OP_NORM_BY] = {[KERNEL_FWD] = {.run = norm_by_fwd_ref},
                        [KERNEL_BWD_IN] = {.run = norm_by_bwd_in_ref},
                        [KERNEL_BWD_W] = {.run = norm_by_bwd_w_ref}},
        [OP_ROTARY] = {[KERNEL_FWD] = {.run = rotary_fwd_ref}, [KERNEL_BWD_IN] = {.run = rotary_bwd_in_ref}},
        [OP_ATTENTION] = {[KERNEL_FWD] = {.run = attention_fwd_ref, .scratch = attention_scratch_ref},
                          [KERNEL_BWD_IN] = {.run = attention_bwd_in_ref, .scratch = attention_scratch_ref}},
        [OP_ACT] = {[KERNEL_FWD] = {.run = act_fwd_ref}, [KERNEL_BWD_IN] = {.run = act_bwd_in_ref}},
        [OP_ADD] = {[KERNEL_FWD] = {.run = add_fwd_ref}, [KERNEL_BWD_IN] = {.run = add_bwd_in_ref}},
        [OP_DROPOUT] = {[KERNEL_FWD] = {.run = dropout_fwd_ref}, [KERNEL_BWD_IN] = {.run = dropout_bwd_in_ref}},
        [OP_XENT] = {[KERNEL_FWD] = {.run = xent_fwd_ref, .scratch = xent_scratch_ref},
                     [KERNEL_BWD_IN] = {.run = xent_bwd_in_ref}},
        [OP_XENT_PART] = {[KERNEL_FWD] = {.run = xent_part_ref}},
        [OP_ATTENTION_CACHED] = {[KERNEL_FWD] = {.run = attention_cached_fwd_ref,
                                                 .scratch = attention_scratch_ref}},
        [OP_ATTENTION_PART] = {[KERNEL_FWD] = {.run = attention_part_fwd_ref, .scratch = attention_part_scratch_ref},
                               [KERNEL_BWD_IN] = {.run = attention_part_bwd_in_ref,
                                                  .scratch = attention_part_scratch_ref}},
        [OP_COPY] = {[KERNEL_FWD] = {.run = copy_fwd_ref}, [KERNEL_BWD_IN] = {.run = copy_bwd_in_ref}},
        [OP_ROUTER] = {[KERNEL_FWD] = {.run = router_fwd_ref, .scratch = router_scratch_ref},
                       [KERNEL_BWD_IN] = {.run = router_bwd_in_ref, .scratch = router_scratch_ref}},
        [OP_LOAD] = {[KERNEL_FWD] = {.run = load_fwd_ref}},
        [OP_BALANCE] = {[KERNEL_FWD] = {.run = balance_fwd_ref, .scratch = router_scratch_ref},
                        [KERNEL_BWD_IN] = {.run = balance_bwd_in_ref, .scratch = router_scratch_ref}},
        [OP_PERMUTE] = {[KERNEL_FWD] = {.run = permute_fwd_ref, .scratch = permute_scratch_ref},
                        [KERNEL_BWD_IN] = {.run = permute_bwd_in_ref}},
        [OP_GROUPED] = {[KERNEL_FWD] = {.run = grouped_fwd_ref},
                        [KERNEL_BWD_IN] = {.run = grouped_bwd_in_ref, .scratch = grouped_scratch_ref},
                        [KERNEL_BWD_W] = {.run = grouped_bwd_w_ref, .scratch = grouped_scratch_ref}},
        [OP_UNPERMUTE] = {[KERNEL_FWD] = {.run = unpermute_fwd_ref},
                          [KERNEL_BWD_IN] = {.run = unpermute_bwd_in_ref, .scratch = unpermute_scratch_ref}},
        [OP_EXPERT_BIAS] = {[KERNEL_FWD] = {.run = expert_bias_fwd_ref},
                            [KERNEL_BWD_IN] = {.run = expert_bias_bwd_in_ref},
                            [KERNEL_BWD_W] = {.run = expert_bias_bwd_w_ref}},
        [OP_MLA_KV] = {[KERNEL_FWD] = {.run = mla_kv_fwd_ref}, [KERNEL_BWD_IN] = {.run = mla_kv_bwd_in_ref}},
        [OP_TRIM] = {[KERNEL_FWD] = {.run = trim_fwd_ref}, [KERNEL_BWD_IN] = {.run = trim_bwd_in_ref}},
        [OP_JOIN] = {[KERNEL_FWD] = {.run = join_fwd_ref}, [KERNEL_BWD_IN] = {.run = join_bwd_in_ref}},
        [OP_PATCHES] = {[KERNEL_FWD] = {.run = patches_fwd_ref}},
        [OP_POOL] = {[KERNEL_FWD] = {.run = pool_fwd_ref}, [KERNEL_BWD_IN] = {.run = pool_bwd_in_ref}},
        [OP_INSERT] = {[KERNEL_FWD] = {.run = insert_fwd_ref}, [KERNEL_BWD_IN] = {.run = insert_bwd_in_ref}},
        [OP_CONV] = {[KERNEL_FWD] = {.run = conv_fwd_ref},
                     [KERNEL_BWD_IN] = {.run = conv_bwd_in_ref},
                     [KERNEL_BWD_W] = {.run = conv_bwd_w_ref, .scratch = conv_scratch_ref}},
        [OP_TIMES] = {[KERNEL_FWD] = {.run = times_fwd_ref},
                      [KERNEL_BWD_IN] = {.run = times_bwd_in_ref},
                      [KERNEL_BWD_W] = {.run = times_bwd_w_ref}},
        [OP_SCAN] = {[KERNEL_FWD] = {.run = scan_fwd_ref, .scratch = scan_scratch_ref},
                     [KERNEL_BWD_IN] = {.run = scan_bwd_in_ref, .scratch = scan_scratch_ref},
                     [KERNEL_BWD_W] = {.run = scan_bwd_w_ref}},
        [OP_SCAN_END] = {[KERNEL_FWD] = {.run = scan_fwd_ref, .scratch = scan_scratch_ref},
                         [KERNEL_BWD_IN] = {.run = scan_bwd_in_ref, .scratch = scan_scratch_ref}},
        [OP_GATED_NORM] = {[KERNEL_FWD] = {.run = gated_norm_fwd_ref},
                           [KERNEL_BWD_IN] = {.run = gated_norm_bwd_in_ref},
                           [KERNEL_BWD_W] = {.run = gated_norm_bwd_w_ref}},
        [OP_CONV_CACHED] = {[KERNEL_FWD] = {.run = conv_cached_fwd_ref, .scratch = conv_cached_scratch_ref}},
        [OP_SCAN_CACHED] = {[KERNEL_FWD] = {.run = scan_cached_fwd_ref, .scratch = scan_scratch_ref}},
        [OP_TAILS] = {[KERNEL_FWD] = {.run = tails_fwd_ref}, [KERNEL_BWD_IN] = {.run = tails_bwd_in_ref}},
        [OP_HALO] = {[KERNEL_FWD] = {.run = halo_fwd_ref}, [KERNEL_BWD_IN] = {.run = halo_bwd_in_ref}},
        [OP_CARRY] = {[KERNEL_FWD] = {.run = carry_fwd_ref},
                      [KERNEL_BWD_IN] = {.run = carry_bwd_in_ref, .scratch = carry_scratch_ref}},
        [OP_AMAX] = {[KERNEL_FWD] = {.run = amax_ref}},
        [OP_QUANTISE] = {[KERNEL_FWD] = {.run = quantise_ref}},
        [OP_CODED] = {[KERNEL_FWD] = {.run = coded_fwd_ref}},
        [OP_LINEAR_SCALED] = {[KERNEL_FWD] = {.run = linear_scaled_fwd_ref},
                              [KERNEL_BWD_IN] = {.run = linear_scaled_bwd_in_ref},
                              [KERNEL_BWD_W] = {.run = linear_scaled_bwd_w_ref}},
        [OP_AMAX_PARTS] = {[KERNEL_FWD] = {.run = amax_parts_ref}},
        [OP_QUANTISE_PARTS] = {[KERNEL_FWD] = {.run = quantise_parts_ref}},
        [OP_GROUPED_SCALED] = {[KERNEL_FWD] = {.run = grouped_scaled_ref},
                               [KERNEL_BWD_IN] = {.run = grouped_scaled_ref},
                               [KERNEL_BWD_W] = {.run = grouped_scaled_ref}},
        [OP_PICK] = {[KERNEL_FWD] = {.run = pick_fwd_ref}},
        [OP_DISTANCES] = {[KERNEL_FWD] = {.run = distances_fwd_ref}, [KERNEL_BWD_W] = {.run = distances_bwd_w_ref}},
        [OP_ADAPTED_SQUARES] = {[KERNEL_FWD] = {.run = adapted_squares_fwd_ref}},
        [OP_MAGNITUDES] = {[KERNEL_FWD] = {.run = magnitudes_fwd_ref},
                           [KERNEL_BWD_IN] = {.run = magnitudes_bwd_in_ref},
                           [KERNEL_BWD_W] = {.run = magnitudes_bwd_w_ref}},
        [OP_ATTENTION_CACHED_BIASED] = {[KERNEL_FWD] = {.run = attention_cached_biased_fwd_ref,
                                                        .scratch = attention_cached_biased_scratch_ref}},
        [OP_ATTENTION_BIASED] = {[KERNEL_FWD] = {.run = attention_biased_fwd_ref,
                                                 .scratch = attention_biased_scratch_ref},
                                 [KERNEL_BWD_IN] = {.run = attention_biased_bwd_in_ref,
                                                    .scratch = attention_biased_scratch_ref}},
        [OP_ROUNDED] = {[KERNEL_FWD] = {.run = rounded_count}},
        [OP_ROUNDED_PARTS] = {[KERNEL_FWD] = {.run = rounded_count}},
        [OP_EXPONENTS] = {[KERNEL_FWD] = {.run = exponents_add}},
        [OP_LOSSES] = {[KERNEL_FWD] = {.run = losses_count}},
        [OP_CLIP] = {[KERNEL_FWD] = {.run = clip_words}},
        ARRAY_OPS(ARRAY) /* whole arrays */
    },
};
/* clang-format on */
